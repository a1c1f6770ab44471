"""The residual stream of a run over its blocks, and what each half of a block adds to it."""

from dataclasses import dataclass

from app.pages.lessons.parts import Cell, Row, Table
from app.pages.lessons.reading import Live, Reading
from app.pages.numbers import measure
from app.pictures.curves import CurvesPicture, Series, curves
from provenance.lessons.block import Part, part, stream
from provenance.lessons.options import Options


@dataclass(frozen=True, slots=True)
class Sites:
    """Where the five tensors of a block stand: `first` enters block 0, `leaving` any block after it."""

    first: str
    attention: str
    middle: str
    mlp: str
    leaving: str


GPT2_SITES = Sites("embed.h", "h.attn.out", "h.resid_mid", "h.mlp.h2", "h.resid_post")


def textbook_sites(options: Options) -> Sites:
    """The sites of a textbook model: a post-norm block adds its MLP to the normalised stream."""
    middle = "h.resid_mid" if options.norm == "pre" else "h.post.norm1.out"
    config = options.config
    return Sites(config.stream_in, "h.attn.out", middle, "h.mlp.out", config.stream_out)


@dataclass(frozen=True, slots=True)
class Streamed:
    """A run's stream, block by block."""

    name: str
    reading: Reading
    sites: Sites
    parts: tuple[Part, ...]

    @property
    def sizes(self) -> tuple[float, ...]:
        """The RMS of the stream before the first block and after each."""
        return stream(self.parts)

    @property
    def start(self) -> Live:
        """The RMS of what enters the first block."""
        return self.reading.live(measure(self.sizes[0]), self.sites.first)

    @property
    def end(self) -> Live:
        """The RMS of what leaves the last block."""
        return self.reading.live(measure(self.sizes[-1]), self.sites.leaving, len(self.parts) - 1)

    @property
    def growth(self) -> float:
        """How many times larger the stream is after the last block than before the first."""
        return self.sizes[-1] / self.sizes[0]

    def at(self, block: int) -> Live:
        """The RMS of what enters a block; after the last, of what left it."""
        number = measure(self.sizes[block])
        site, layer = (self.sites.leaving, block - 1) if block else (self.sites.first, None)
        return self.reading.live(number, site, layer)

    def attention_share(self, block: int) -> Live:
        """What the attention of a block adds, relative to the stream."""
        return self.reading.live(measure(self.parts[block].attention_share), self.sites.attention, block)

    def mlp_share(self, block: int) -> Live:
        """What the MLP of a block adds, relative to the stream."""
        return self.reading.live(measure(self.parts[block].mlp_share), self.sites.mlp, block)


def streamed(name: str, reading: Reading, sites: Sites) -> Streamed:
    """Measure every block of a run."""

    def block(layer: int) -> Part:
        entering = reading.array(sites.leaving, layer - 1) if layer else reading.array(sites.first)
        later = (reading.array(site, layer) for site in (sites.attention, sites.middle, sites.mlp, sites.leaving))
        return part(entering, *later)

    return Streamed(name, reading, sites, tuple(block(layer) for layer in range(reading.trace.layers)))


def stream_chart(runs: tuple[Streamed, ...]) -> CurvesPicture | None:
    """The stream over the blocks, as a curve for each run."""
    series = [Series(run.name, tuple(range(len(run.sizes))), run.sizes) for run in runs]
    return curves(series, "blocks passed", "RMS of the residual stream")


def stream_table(runs: tuple[Streamed, ...]) -> Table:
    """The stream, and what is added to it, block by block; all runs have as many blocks."""
    columns = ["Blocks passed"]
    for run in runs:
        columns += [f"{run.name}: stream", "attention adds", "MLP adds"]
    blocks = len(runs[0].parts)

    def row(block: int) -> Row:
        cells: list[Cell] = []
        for run in runs:
            added = [run.attention_share(block), run.mlp_share(block)] if block < blocks else [None, None]
            cells += [run.at(block), *added]
        return Row(str(block), tuple(cells))

    return Table(
        caption="RMS of the stream, and of what the next block’s halves add, relative to the stream they add to",
        columns=tuple(columns),
        rows=tuple(row(block) for block in range(blocks + 1)),
    )
