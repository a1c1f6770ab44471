"""The picture of a difference: |a − b| of one tensor, cell by cell, looked at like the tensor itself."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from app.explorer import Explorer
from app.pages.compare_links import Wanted
from app.pages.compare_rows import key_of
from app.pages.drawn import Drawn
from app.pages.picture import Controls, HeatmapView, Strip, controls_of, heatmap_view, strips_of
from app.pages.view import Asked, Changes, View, view_of
from app.pictures.heatmap import cell_size
from app.pictures.plane import Plane
from provenance.compare_pair import Pair
from provenance.difference import Difference
from provenance.pictures.cells import Array, Mask, array_of, mask_of
from provenance.pictures.colours import scale_of_blocks, scale_of_summary
from provenance.pictures.paint import heatmap_png
from provenance.pictures.reduce import reduce_blocks
from provenance.summary import Summary, summarize
from provenance.trace import Trace

_NONE: Changes = {}


@dataclass(frozen=True, slots=True)
class DifferenceView(View):
    """A difference as it is looked at; its links lead to the page of the comparison."""

    wanted: Wanted

    def url(self, changes: Changes = _NONE, ending: str = "") -> str:
        """The comparison's page, or with an ending its picture, with some parameters changed."""
        asked = self.asked
        # An index that is left out means where the difference is largest, so that 0 must be said.
        said = {name: 0 if value is None and name in self.chosen else value for name, value in changes.items()}
        given: Mapping[str, str | int | None] = {**asked.words, **asked.at, **asked.numbers, **said}
        return self.wanted.url(ending, **given)


@dataclass(frozen=True, slots=True)
class DifferencePicture:
    """A difference to show: the heatmap, links for the axes that it does not show, and its form."""

    heatmap: HeatmapView
    strips: tuple[Strip, ...]
    controls: Controls | None


@dataclass(frozen=True, slots=True)
class Apart:
    """|a − b| as cells: NaN where only one side is a number, infinite where only one side is finite."""

    view: DifferenceView
    array: Array
    hidden: Mask | None
    summary: Summary

    def drawn(self, plane: Plane) -> Drawn:
        """What is drawn of it."""
        mask = None if self.hidden is None else plane.take(self.hidden)
        blocks = reduce_blocks(plane.take(self.array), mask, plane.rows.block, plane.cols.block, self.view.reduce)
        joined = plane.rows.block * plane.cols.block > 1
        return Drawn(blocks, scale_of_blocks(blocks) if joined else scale_of_summary(self.summary), joined)


def apart(explorer: Explorer, trace: Trace, found: Difference, pair: Pair, asked: Asked, wanted: Wanted) -> Apart:
    """The difference of a row's pair, looked at as asked. Raises OutOfRange and InvalidInput."""
    wanted = replace(wanted, at=key_of(found))
    difference, masked = pair.apart, pair.masked
    array = array_of(difference)
    hidden = mask_of(masked, array.shape)
    seen = view_of(explorer.catalogue(trace), trace, found.address, difference.shape, asked)
    kept = {each.name: getattr(seen, each.name) for each in fields(View)}
    kept["chosen"] = {**seen.chosen, **_where_largest(seen, array, hidden), **asked.at}
    return Apart(DifferenceView(**kept, wanted=wanted), array, hidden, summarize(difference, masked))


def _where_largest(view: View, array: Array, hidden: Mask | None) -> dict[str, int]:
    """Where the axes that are not shown stand at the largest difference; what is no number is largest."""
    if not array.size or not view.fixed:
        return {}
    sizes = np.nan_to_num(array, nan=np.inf)
    place = np.unravel_index(int(np.argmax(sizes if hidden is None else np.where(hidden, -1.0, sizes))), array.shape)
    return {axis.name: int(place[axis.index]) for axis in view.fixed}


def picture_of(explorer: Explorer, found: Apart) -> DifferencePicture | None:
    """The picture on the page; None for a tensor without cells."""
    if not found.array.size:
        return None
    view = found.view
    picture = heatmap_view(explorer, view, found.array, found.hidden, found.summary, found.drawn(view.plane()))
    words = picture.alternative.replace("Heatmap of", "Heatmap of the difference |A − B|:", 1)
    return DifferencePicture(
        replace(picture, slice_url="/api" + view.url(ending="/slice"), alternative=words),
        strips_of(view),
        controls_of(view),
    )


def png_of(found: Apart) -> bytes:
    """The picture's pixels."""
    plane = found.view.plane()
    drawn = found.drawn(plane)
    return heatmap_png(drawn.blocks, drawn.scale, cell_size(plane, square=found.view.square))
