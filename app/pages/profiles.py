"""The profiles on a tensor's page: how large it is from row to row, and its largest columns."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.view import View, headings_along, plural_of
from app.pictures.heatmap import MOST_COLS
from app.pictures.profile import Leader, ProfilePicture, largest_columns, row_profile, sums_of
from provenance.axes import Counts
from provenance.pictures.cells import Array, Mask

_NOT = (Counts.KEY, Counts.ONE, Counts.TOKEN, Counts.PAST, Counts.BATCH)


@dataclass(frozen=True, slots=True)
class Top:
    """One of the largest columns, and the page on which the picture begins there."""

    leader: Leader
    url: str


@dataclass(frozen=True, slots=True)
class Profiles:
    """Both profiles of the plane that is shown, as a whole. `row_axis` is empty for a strip."""

    rows: ProfilePicture | None
    top: tuple[Top, ...]
    row_axis: str
    column_axis: str
    columns: int


def profiles_of(explorer: Explorer, view: View, array: Array, hidden: Mask | None) -> Profiles | None:
    """Profiles where the columns are channels or the like; None where they count tokens."""
    if view.cols is None or view.cols.counts in _NOT or array.dtype.kind != "f" or view.cols.size < 2:
        return None
    plane = view.plane().whole
    cells = plane.take(array)
    mask = None if hidden is None else plane.take(hidden)
    sums = sums_of(cells, mask)

    def column(index: int) -> str:
        return str(headings_along(explorer, view, view.cols, [index])[0])

    def row(index: int) -> str:
        return str(headings_along(explorer, view, view.rows, [index])[0])

    zoom = -(-plane.cols.size // MOST_COLS)
    return Profiles(
        rows=row_profile(cells, mask, view.names[0], row, sums) if view.rows is not None else None,
        top=tuple(
            Top(leader, view.url({"c0": leader.index or None, "zoom": zoom if zoom > 1 else None}))
            for leader in largest_columns(cells, mask, column, row, sums=sums)
        ),
        row_axis=view.names[0] if view.rows is not None and view.rows.size > 1 else "",
        column_axis=plural_of(view.names[1]),
        columns=view.cols.size,
    )
