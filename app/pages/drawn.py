"""The cells that a picture draws, and their colours; kept for a while, since page and image both ask."""

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

from app.pages.view import View
from app.pictures.plane import Plane
from provenance.pictures.cells import Array, Mask
from provenance.pictures.colours import Scale, scale_of_blocks, scale_of_summary
from provenance.pictures.reduce import Blocks, Reduce, reduce_blocks
from provenance.summary import Summary

_MOST = 64
_Key = tuple[str, str, Plane, Reduce]
_kept: OrderedDict[_Key, "Drawn"] = OrderedDict()
_lock = Lock()


@dataclass(frozen=True, slots=True)
class Drawn:
    """Drawn cells and their scale. Where cells are `joined`, the limits are those of the drawn ones."""

    blocks: Blocks
    scale: Scale
    joined: bool


def drawn_of(view: View, plane: Plane, array: Array, hidden: Mask | None, summary: Summary) -> Drawn:
    """What is drawn of a tensor's plane."""
    key = (view.trace.id, str(view.address), plane, view.reduce)
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    mask = None if hidden is None else plane.take(hidden)
    blocks = reduce_blocks(plane.take(array), mask, plane.rows.block, plane.cols.block, view.reduce)
    joined = plane.rows.block * plane.cols.block > 1
    drawn = Drawn(blocks, scale_of_blocks(blocks) if joined else scale_of_summary(summary), joined)
    with _lock:
        _kept[key] = drawn
        while len(_kept) > _MOST:
            _kept.popitem(last=False)
    return drawn
