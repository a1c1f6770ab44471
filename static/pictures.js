// The read-out of heatmaps: the exact value under pointer or cursor, from tiles of the API.

const tiles = new Map();
let last = 0;

const sidesOf = (figure) => {
  const window = figure.dataset.window.split(",").map(Number);
  return figure.dataset.names.split(",").map((name, n) => {
    const [first, count, block] = window.slice(3 * n);
    return { name, first, end: first + count, block, drawn: Math.ceil(count / block) };
  });
};

// The cells that a drawn one stands for, and the tile (from, to) that holds them.
const range = ({ name, first, end, block }, drawn) => {
  const long = block * Math.max(1, Math.floor(64 / block));
  const start = first + drawn * block;
  const from = first + Math.floor((drawn * block) / long) * long;
  return { name, start, stop: Math.min(start + block, end), from, to: Math.min(from + long, end) };
};

const ask = ({ slice, pieces }, rows, cols) => {
  const piece = { R: `${rows.from}:${rows.to}`, C: `${cols.from}:${cols.to}` };
  const url = new URL(slice, location);
  url.searchParams.set("index", pieces.replace(/[RC]/g, (letter) => piece[letter]));
  if (tiles.size > 200) tiles.clear();
  if (!tiles.has(url.href)) tiles.set(url.href, fetch(url).then((got) => got.json()));
  return tiles.get(url.href).catch(() => tiles.delete(url.href));
};

const words = ({ name, start, stop }, axis) => {
  if (stop - start > 1) return `${name} ${start}–${stop - 1}`;
  const token = axis?.tokens[start - axis.first];
  return name && `${name} ${start}${token ? ` “${token}”` : ""}`;
};

const strong = (text) => Object.assign(document.createElement("b"), { textContent: text });

const valueOf = (cells) => {
  if (cells.length === 1) return [strong(cells[0].value), cells[0].masked ? " (masked)" : ""];
  const usable = cells.filter((cell) => !cell.masked && typeof cell.value === "number");
  if (!usable.length) return [cells.every((cell) => cell.masked) ? "masked" : "no finite value"];
  const far = usable.reduce((a, b) => (b.value ** 2 > a.value ** 2 ? b : a));
  const mean = usable.reduce((sum, cell) => sum + cell.value / usable.length, 0);
  return ["furthest from zero ", strong(far.value), ` at ${far.r}, ${far.c}; mean `, strong(mean.toPrecision(4))];
};

const tell = ({ pieces, fixed }, tile, rows, cols) => {
  if (!tile?.values) return ["This value cannot be read now."];
  const order = pieces.replace(/[^RC]/g, "");
  const cells = [];
  for (let r = rows.start; r < rows.stop; r++) {
    for (let c = cols.start; c < cols.stop; c++) {
      const [i, j] = [r - rows.from, c - cols.from];
      const at = order === "CR" ? j * (rows.to - rows.from) + i : i * (cols.to - cols.from) + j;
      cells.push({ r, c, value: tile.values[at], masked: tile.masked?.[at] });
    }
  }
  const axis = (letter) => tile.axes[order.indexOf(letter)];
  const where = [words(rows, axis("R")), words(cols, axis("C")), fixed];
  return [`${where.filter(Boolean).join(" · ")}: `, ...valueOf(cells)];
};

const show = async (frame, choose) => {
  const figure = frame.closest(".heatmap");
  const sides = sidesOf(figure);
  const at = sides.map((side, n) => Math.min(side.drawn - 1, Math.max(0, choose(n, side))));
  if (frame.dataset.at === String(at)) return;
  frame.dataset.at = at;
  const box = frame.querySelector("span") ?? frame.appendChild(document.createElement("span"));
  box.className = "cursor";
  for (const [n, key] of ["top", "left", "height", "width"].entries()) {
    box.style[key] = `${(100 * (n < 2 ? at[n] : 1)) / sides[n % 2].drawn}%`;
  }
  const mine = ++last;
  const [rows, cols] = sides.map((side, n) => range(side, at[n]));
  const tile = await ask(figure.dataset, rows, cols);
  if (mine !== last) return;
  figure.querySelector(".readout").replaceChildren(...tell(figure.dataset, tile, rows, cols));
};

for (const kind of ["pointermove", "pointerdown"]) {
  document.addEventListener(kind, ({ target, clientX, clientY }) => {
    const frame = target.closest?.(".heatmap .frame");
    if (!frame) return;
    const { top, left, height, width } = frame.getBoundingClientRect();
    const part = [(clientY - top) / height, (clientX - left) / width];
    show(frame, (n, side) => Math.floor(part[n] * side.drawn));
  });
}

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
document.addEventListener("keydown", (event) => {
  const frame = event.target.closest?.(".heatmap .frame");
  const step = STEPS[event.key];
  if (!frame || !step || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const now = frame.dataset.at?.split(",").map(Number);
  show(frame, (n) => (now ? now[n] + step[n] * (event.shiftKey ? 10 : 1) : 0));
});

// It takes the focus only where its keys do something.
const prepare = () => {
  for (const frame of document.querySelectorAll(".heatmap .frame")) {
    frame.tabIndex = 0;
    frame.role = "application";
    frame.ariaLabel = "Heatmap; arrow keys move between cells";
  }
};
document.addEventListener("htmx:afterSettle", prepare);
prepare();
