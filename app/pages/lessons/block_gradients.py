"""The gradient on its way back through the blocks of a run, beside that of another run."""

from dataclasses import dataclass

from app.pages.lessons.block_sizes import parameter_rows
from app.pages.lessons.block_streams import Streamed
from app.pages.lessons.parts import Check, Row, Table, check
from app.pages.lessons.reading import Live
from app.pages.numbers import Number, measure
from provenance.lessons.gradients import WayBack, way_back
from provenance.names import is_layered
from provenance.textbook.config import Config


@dataclass(frozen=True, slots=True)
class Back:
    """One run's gradient: its growth from the last block to the first, and the two checks of it.

    `slope` is measured along the gradient of the stream before the first block, `length` that gradient's own.
    """

    name: str
    run: Streamed
    way: WayBack
    check: Check

    @property
    def growth(self) -> Live:
        """How many times larger it is before the first block than after the last."""
        return self.run.reading.live(measure(self.way.growth), self.run.sites.first)

    @property
    def slope(self) -> Number:
        """How much the sum changes for a step along the gradient, per length of the step."""
        return measure(self.way.slope)

    @property
    def length(self) -> Live:
        """The length of the gradient before the first block, which that should be."""
        return self.run.reading.live(measure(self.way.length), self.run.sites.first)

    def at(self, block: int) -> Live:
        """The RMS of the gradient at what enters a block; after the last, at what left it."""
        number = measure(self.way.sizes[block])
        site, layer = (self.run.sites.leaving, block - 1) if block else (self.run.sites.first, None)
        return self.run.reading.live(number, site, layer)


def back(run: Streamed) -> Back:
    """Differentiate a textbook run's blocks, from the recorded stream of the batch's first entry, and the weights."""
    read = run.reading
    config = Config.from_json(read.trace.recipe.model.config)
    weights = {
        read.address(row.site, layer).place: read.array(row.site, layer)
        for row in parameter_rows(read.explorer.catalogue(read.trace))
        for layer in (range(config.n_layer) if is_layered(row.site) else (None,))
    }
    way = way_back(config, read.array(run.sites.first)[:1], weights)
    last = config.n_layer - 1
    recomputed = check(
        read,
        run.sites.leaving,
        last,
        way.leaving,
        _all_blocks(config.n_layer),
        (run.sites.first,),
        f"{run.name}: recomputed through all blocks from",
        entries=1,
    )
    return Back(run.name, run, way, recomputed)


def _all_blocks(count: int) -> str:
    blocks = r"\mathrm{block}_0(x_0)"
    if count > 1:
        between = r"\circ \dots \circ" if count > 2 else r"\circ"
        blocks = rf"(\mathrm{{block}}_{{{count - 1}}} {between} \mathrm{{block}}_0)(x_0)"
    return f"x_{{{count}}} = {blocks}"


def gradient_table(runs: tuple[Back, ...]) -> Table:
    """The size of the gradient at each place of the stream; all runs have as many blocks."""
    return Table(
        caption="RMS of the gradient at the stream, of a sum of the result’s numbers with random weights; "
        "of the batch’s first sequence",
        columns=("Blocks passed", *(run.name for run in runs)),
        rows=tuple(Row(str(block), tuple(run.at(block) for run in runs)) for block in range(len(runs[0].way.sizes))),
    )
