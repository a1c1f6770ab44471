"""The results as Markdown."""

from collections.abc import Iterable, Iterator, Sequence

from benchmarks.figures import ALWAYS, Figure, figures
from benchmarks.forward import EAGER, TAPPED
from benchmarks.machine import Machine
from benchmarks.results import Results
from benchmarks.scale import growth_with_size
from benchmarks.timing import Growth

NAMES = {"defaults": "glibc's defaults", "raised": "thresholds raised"}


def markdown(results: Results) -> str:
    """Everything: the figures, then what they were taken from."""
    makers = (_head, _figures, _forward, _peers, _scale, _largest, _rest)
    return "\n".join(line for make in makers for line in make(results)).rstrip() + "\n"


def figure_line(figure: Figure, allocators: Sequence[str]) -> str:
    """One row of the table of figures: a value and a verdict for each allocator, or one for all."""
    names = [ALWAYS] if ALWAYS in figure.measured else [name for name in allocators if name in figure.measured]
    sign = "≥" if figure.at_least else "≤"
    measured = " / ".join(number(figure.measured[name], figure.unit) for name in names)
    verdicts = " / ".join(dict.fromkeys(_verdict(figure, name) for name in names))
    target = f"{sign} {number(figure.limit, figure.unit)}"
    return f"| {figure.point} | {figure.what} | {target} | {measured} | {verdicts} |"


def number(value: float, unit: str) -> str:
    """A value with its unit, to three digits or so; a ratio always to two decimals."""
    if unit == "×":
        return f"{value:.2f} ×"
    size = abs(value)
    digits = 0 if size >= 100 or value == int(value) else 1 if size >= 10 else 2 if size >= 0.1 else 4
    return f"{value:,.{digits}f}{'' if unit in ('%', '/s', '') else ' '}{unit}"


def _verdict(figure: Figure, allocator: str) -> str:
    missed = figure.missed_by(allocator)
    if figure.met(allocator):
        return "met"
    return "**missed**" if missed == float("inf") else f"**missed by {missed:.{0 if missed >= 0.1 else 1}%}**"


def _head(results: Results) -> Iterator[str]:
    yield "# Benchmarks"
    yield ""
    if results.quick:
        yield "A quick run on tiny models: it shows that everything runs, and its numbers mean nothing."
        yield ""
    yield from _machine(results.machine)
    dates = sorted(results.dates.values())
    if dates:
        yield f"- Measured from {dates[0]} to {dates[-1]}"
    yield "- Allocator: glibc's, with its defaults, and with its mmap and trim thresholds raised, so that it keeps"
    yield "  freed memory; both sides of a comparison always have the same. Two values in a cell are in this order."
    yield "- Ratios are medians of the ratios round by round; the sides take turns in a random order in one process."
    yield "  Releasing what was kept is part of the time."
    for part, problem in results.problems.items():
        yield f"- Not measured: {part} ({problem})"
    yield ""


def _machine(machine: Machine) -> Iterator[str]:
    yield f"- Machine: {machine.cpu}, {machine.cores} cores, {machine.memory_bytes / 2**30:.1f} GiB"
    yield f"- System: {machine.kernel}, {machine.libc}; load average {machine.load} when the run began"
    found = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    yield f"- Revision {machine.revision}; {found}"


def _figures(results: Results) -> Iterator[str]:
    allocators = results.allocators
    yield "## Figures"
    yield ""
    shown = " / ".join(NAMES[name] for name in allocators)
    yield f"| | Figure | Target | Measured{f' ({shown})' if shown else ''} | |"
    yield "|---|---|---|---|---|"
    yield from (figure_line(figure, allocators) for figure in figures(results))
    yield ""


def _forward(results: Results) -> Iterator[str]:
    for allocator, forward in results.forward.items():
        bounds = forward.limits
        yield f"## Forward passes, {NAMES[allocator]}"
        yield ""
        yield (
            f"Limits: products {bounds.flops_per_second / 1e9:.0f} GFLOP/s; memory "
            f"{bounds.read_bytes_per_second / 1e9:.0f} GB/s read, {bounds.write_bytes_per_second / 1e9:.0f} written, "
            f"{bounds.fresh_bytes_per_second / 1e9:.1f} written afresh. `use_cache` of transformers is "
            f"{forward.use_cache}."
        )
        yield ""
        names = dict.fromkeys(timed.name for at in forward.lengths for timed in at.timed)
        rows = []
        for name in names:
            cells = []
            for at in forward.lengths:
                timed, eager = at.of(name), at.of(EAGER)
                cells.append(f"{timed.median:,.1f} ms ({timed.over(eager):.3f})" if timed and eager else "–")
            rows.append([_capital(name), *cells])
        rows.append(["The machine's limit", *(f"{at.limit_ms:,.1f} ms" for at in forward.lengths)])
        rows.append(["The limit, every tensor written", *(f"{at.tapped_limit_ms:,.1f} ms" for at in forward.lengths)])
        yield from table(["Median (ratio to eager)", *(f"T = {at.tokens:,}" for at in forward.lengths)], rows)
        named = forward.lengths[0].named
        apart = max(at.largest_difference for at in forward.lengths)
        same = "the same bits" if all(at.same_bits for at in forward.lengths) else "OTHER BITS"
        yield f"{named} named tensors. Our logits differ from transformers' by at most {apart:.1e};"
        yield f"with everything tapped they have {same}."
        yield ""


def _peers(results: Results) -> Iterator[str]:
    for allocator, peers in results.peers.items():
        yield f"## Others that name inner tensors, {NAMES[allocator]}"
        yield ""
        yield "Ratio to transformers' eager forward in the same process; in brackets ours, everything tapped, there."
        yield ""
        rows = []
        for peer in peers:
            found = ", ".join(f"{name} {version}" for name, version in peer.versions.items() if name != "torch")
            for way in peer.ways:
                ratios = [
                    f"{at.of(way).over(at.of(EAGER)):.2f} ({at.of(TAPPED).over(at.of(EAGER)):.2f})"
                    for at in peer.lengths
                ]
                rows.append([way, found, f"{peer.tensors(way)} ({peer.tensors(TAPPED)})", *ratios])
        lengths = [f"T = {at.tokens:,}" for at in peers[0].lengths]
        yield from table(["", "Versions", "Tensors", *lengths], rows)


def _scale(results: Results) -> Iterator[str]:
    head = ["", "Parameters", "T", "Recorded", "Kept", "A tensor opened"]
    costs = [("", cost) for cost in results.lengths.costs] if results.lengths else []
    costs += [(size.name, size.cost) for size in results.model_sizes]
    if costs:
        yield "## Cost against length and size"
        yield ""
        yield from table(
            head,
            [
                [
                    name,
                    f"{cost.parameters / 1e6:,.1f} M",
                    f"{cost.tokens:,}",
                    f"{cost.recorded.median:,.0f} ms",
                    f"{cost.kept / 1e6:,.1f} MB",
                    f"{cost.opened.median:,.1f} ms",
                ]
                for name, cost in costs
            ],
        )
    if results.lengths:
        yield f"Against T: the time grows as T to the power {_grows(results.lengths.seconds)};"
        yield f"kept bytes as T to the power {_grows(results.lengths.kept)}."
    if len(results.model_sizes) > 1:
        fitted = _grows(growth_with_size(results.model_sizes))
        yield f"Against parameters: the time grows as their number to the power {fitted}."
    if costs:
        yield ""


def _largest(results: Results) -> Iterator[str]:
    if large := results.largest:
        yield "## The largest shape"
        yield ""
        yield f"- {large.layers} layers, width {large.width}, {large.parameters / 1e9:.2f} G parameters, untrained"
        yield f"- {large.dtype}: the weights take {large.weights / 1e9:.2f} GB, and are made in {large.made:.0f} s"
        yield f"- {large.tokens:,} tokens are recorded in {large.recorded:.1f} s; {large.kept / 1e6:,.0f} MB are kept"
        yield f"- They are stored in {large.stored:.1f} s; a tensor of {large.opened_bytes / 1e6:.0f} MB"
        yield f"  inside a block is opened in {large.opened:.2f} s, and again in {large.again * 1e3:.3f} ms"
        yield f"- The whole process takes {large.peak_recording / 1e9:.2f} GB at most while it records,"
        yield f"  and {large.peak_opening / 1e9:.2f} GB while it stores the trace and opens the tensor"
        yield ""


def _rest(results: Results) -> Iterator[str]:
    for allocator, found in results.summaries.items():
        yield f"Summaries, {NAMES[allocator]}: {found.tensors} tensors of {found.cells:,} cells in"
        yield f"{found.summaries_ms:.1f} ms, a forward in {found.forward_ms:.1f} ms;"
        yield f"on one thread the ratio of processor times is {found.processor_ratio:.2f}."
        yield f"The machine code was ready after {found.prepared_s:.1f} s."
        yield ""
    if commands := results.commands:
        said = ", ".join(commands.imported) or "none"
        alone = commands.python_alone.median
        yield f"Of the heavy packages, `--help` imports: {said}. Python alone takes {alone:.0f} ms."
        yield ""
    if pages := results.pages:
        yield "## First visits"
        yield ""
        rows = [
            [f"`{visit.path}`", str(len(visit.files)), f"{visit.without_pictures:,}", f"{visit.with_pictures:,}"]
            for visit in pages.visits
        ]
        yield from table(["Page", "Files", "Bytes without pictures", "with pictures"], rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table, and an empty line after it."""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def _grows(growth: Growth) -> str:
    return f"{growth.exponent:.2f} (fit within a factor of {growth.largest_departure:.2f})"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
