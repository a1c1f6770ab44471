"""How many parameters a block has, and how much larger GPT-2 is: counted from shapes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.lessons.parts import Row, Table
from app.pages.lessons.reading import Live, Reading
from app.pages.numbers import Number, count, measure
from provenance.catalogue import Intermediate, Kind
from provenance.catalogues import OUTLINES, outline_of
from provenance.lessons.block import SIZES, Size, parameters, ratios
from provenance.names import is_layered
from provenance.variants import catalogue_of

_WORDS: Mapping[str, str] = {
    "layers": "blocks",
    "width": "channels d",
    "heads": "heads",
    "head_width": "channels of a head",
    "context": "positions C",
    "per_block": "parameters of a block",
    "total": "parameters",
}
_HALVES: tuple[tuple[str, str], ...] = (("attention", "h.attn."), ("MLP", "h.mlp."), ("norms", "h.norm"))


@dataclass(frozen=True, slots=True)
class Half:
    """The parameters of one part of a block, counted from the recorded weights."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    site: str

    @property
    def weights(self) -> int:
        """Numbers in its matrices."""
        return parameters(shape for shape in self.shapes if len(shape) > 1)

    @property
    def total(self) -> int:
        """All of its parameters, with the biases and gains."""
        return parameters(self.shapes)


def halves_of(reading: Reading) -> tuple[Half, ...]:
    """The parts of block 0 of a textbook run."""
    rows = parameter_rows(reading.explorer.catalogue(reading.trace))
    found = []
    for name, start in _HALVES:
        sites = [row.site for row in rows if row.site.startswith(start)]
        found.append(Half(name, tuple(reading.array(site).shape for site in sites), sites[0]))
    return tuple(found)


def halves_table(reading: Reading, halves: tuple[Half, ...], width: int) -> Table:
    """The parts of a block: shapes, parameters, and their matrices as a multiple of d²."""

    def row(half: Half) -> Row:
        matrices = " and ".join(" × ".join(map(str, shape)) for shape in half.shapes if len(shape) > 1)
        cells = (
            matrices or "–",
            reading.live(measure(half.weights / width**2), half.site) if half.weights else None,
            count(half.total - half.weights),
            reading.live(count(half.total), half.site),
        )
        return Row(half.name, cells, reading.url(half.site))

    return Table(
        caption=f"Parameters of one block, counted from the recorded weights; d = {width}",
        columns=("Part", "matrices", "in d²", "biases and gains", "together"),
        rows=tuple(row(half) for half in halves),
    )


@dataclass(frozen=True, slots=True)
class Sizes:
    """The run's model beside GPT-2 small and, where it is here and another one, the default model."""

    textbook: Size
    small: Size
    default: Size | None
    default_name: str

    @property
    def nearest(self) -> tuple[tuple[str, Number], ...]:
        """The sizes of GPT-2 small that are nearest to ten times the textbook's, with how many times they are."""
        found = ratios(self.small, self.textbook)
        apart = min(abs(times - 10) for times in found.values())
        return tuple((_WORDS[name], measure(times)) for name, times in found.items() if abs(times - 10) == apart)

    def times(self, name: str) -> Number:
        """How many times larger GPT-2 small is in one size."""
        return measure(ratios(self.small, self.textbook)[name])

    @property
    def table(self) -> Table:
        """All sizes, and how many times larger they are."""
        others = [("GPT-2 small", self.small)]
        if self.default is not None:
            others.append((self.default_name, self.default))
        columns = ["Size", "textbook, this run"]
        for name, _ in others:
            columns += [name, "times"]

        def row(field: str) -> Row:
            cells = [count(getattr(self.textbook, field))]
            for _, size in others:
                cells += [count(getattr(size, field)), measure(ratios(size, self.textbook)[field])]
            return Row(_WORDS[field], tuple(cells))

        return Table("The sizes of the models, from their configs and shapes", tuple(columns), tuple(map(row, SIZES)))


def sizes_of(explorer: Explorer, reading: Reading, gpt2: Reading | None) -> Sizes:
    """The sizes of a textbook run and of GPT-2."""
    outline = OUTLINES["gpt2"]
    # Without a variant's rows: GPT-2 small's output is tied, so it has no matrix of its own.
    small = _size(catalogue_of(outline.catalogue, frozenset()), outline.example, outline.example["L"])
    textbook = _size_of(reading)
    default = _size_of(gpt2) if gpt2 is not None else None
    name = gpt2.trace.recipe.model.name if gpt2 is not None else ""
    return Sizes(textbook, small, None if default == small else default, name)


def total_live(reading: Reading, halves: tuple[Half, ...]) -> Live:
    """All parameters of block 0."""
    return reading.live(count(sum(half.total for half in halves)), halves[0].site)


def _size_of(reading: Reading) -> Size:
    info = reading.trace.recipe.model
    constants = outline_of(info).constants_of(info.config)
    return _size(reading.explorer.catalogue(reading.trace), constants, reading.trace.layers)


def _size(rows: Iterable[Intermediate], constants: Mapping[str, int], layers: int) -> Size:
    kept = parameter_rows(rows)

    def counted(*, layered: bool) -> int:
        chosen = (row for row in kept if is_layered(row.site) == layered)
        return parameters(tuple(constants[axis] for axis in row.shape) for row in chosen)

    block = counted(layered=True)
    return Size.of(constants, layers, block, layers * block + counted(layered=False))


def parameter_rows(rows: Iterable[Intermediate]) -> list[Intermediate]:
    """The sites of a catalogue that are parameters."""
    return [row for row in rows if row.kind is Kind.PARAMETER]
