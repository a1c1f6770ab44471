"""The picture of a tensor on its page: heatmap or token chips, with the controls that choose what it shows."""

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

import numpy as np

from app.explorer import Explorer
from app.pages.drawn import Drawn, drawn_of
from app.pages.links import values_url
from app.pages.scope import Stop
from app.pages.view import QUERY, View, ViewAxis, headings_along, plural_of
from app.pictures.heatmap import Legend, Ticks, alternative, cell_size, legend, tick_indices, ticks
from app.pictures.plane import Plane, Side
from provenance.axes import Counts
from provenance.pictures.cells import Array, Mask
from provenance.pictures.reduce import Is, Reduce
from provenance.prompt import Token
from provenance.summary import Summary

MOST_CHIPS = 400
_MOST_STOPS = 25


@dataclass(frozen=True, slots=True)
class Option:
    """One choice of a select box."""

    value: str
    text: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class Field:
    """A number that can be typed: an index of an axis, or where the window begins."""

    name: str
    label: str
    value: int
    most: int


@dataclass(frozen=True, slots=True)
class Controls:
    """The form below a picture; what it does not ask for goes along in `hidden`."""

    action: str
    hidden: tuple[tuple[str, str], ...]
    rows: tuple[Option, ...]
    cols: tuple[Option, ...]
    fields: tuple[Field, ...]
    reduce: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """A link to another part of the picture."""

    id: str
    text: str
    url: str


@dataclass(frozen=True, slots=True)
class HeatmapView:
    """A heatmap to show. `pieces`, `window` and `names` tell the script which cell lies under the pointer.

    `window` holds, for rows and then columns, the first cell, the number of cells, and how many of
    them a drawn cell stands for.
    """

    png_url: str
    width: int
    height: int
    square: bool
    alternative: str
    rows: Ticks
    cols: Ticks
    legend: Legend
    notes: tuple[str, ...]
    slice_url: str
    pieces: str
    window: str
    names: str
    fixed: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Chips:
    """Tokens in the place of a heatmap, and how many more there are than are shown."""

    tokens: tuple[Token, ...]
    more: int


@dataclass(frozen=True, slots=True)
class Strip:
    """An axis that the picture does not show, as links to each of its indices."""

    label: str
    stops: tuple[Stop, ...]


def heatmap_view(
    explorer: Explorer, view: View, array: Array, hidden: Mask | None, summary: Summary, drawn: Drawn | None = None
) -> HeatmapView:
    """The heatmap of what a view shows; the array, the tensor's own unless `drawn` is given, has a cell at least."""
    plane = view.plane()
    drawn = drawn or drawn_of(view, plane, array, hidden, summary)
    high, wide = cell_size(plane, square=view.square)
    sides = tuple(
        ticks(name, side, headings_along(explorer, view, axis, tick_indices(side)))
        for name, side, axis in zip(view.names, (plane.rows, plane.cols), (view.rows, view.cols), strict=True)
    )
    shown = [axis for axis in view.axes if axis not in (view.rows, view.cols)]
    return HeatmapView(
        png_url=view.url(ending="/heatmap.png"),
        width=wide * plane.cols.drawn,
        height=high * plane.rows.drawn,
        square=view.square and plane.rows.drawn > 1,
        alternative=alternative(array, hidden, plane, view.names, says(explorer, view)),
        rows=sides[0],
        cols=sides[1],
        legend=legend(drawn.scale, summary, _ends(drawn) if drawn.joined else None),
        notes=_notes(view, plane),
        slice_url=values_url(view.trace.id, view.address, "/slice"),
        pieces=",".join(plane.pieces),
        window=",".join(f"{side.first},{side.count},{side.block}" for side in (plane.rows, plane.cols)),
        names=",".join(view.names),
        fixed=", ".join(f"{axis.label} {view.chosen[axis.name]}" for axis in shown if axis.size > 1),
        turns=_turns(view, plane),
    )


def _ends(drawn: Drawn) -> tuple[float, float] | None:
    values = drawn.blocks.values[drawn.blocks.kinds == Is.VALUE]
    return (float(values.min()), float(values.max())) if values.size else None


def says(explorer: Explorer, view: View) -> Callable[[int, int], str]:
    """Says what stands at an index of the rows (0) or columns (1): `token 3 “ fox”`."""

    def words(side: int, index: int) -> str:
        axis = (view.rows, view.cols)[side]
        if axis is None:
            return ""
        return f"{axis.label} {headings_along(explorer, view, axis, [index])[0]}"

    return words


def chips_of(view: View, array: Array) -> Chips | None:
    """The tokens that a tensor holds the ids of; None where its cells are anything else."""
    if array.dtype.kind != "i" or view.cols is None or view.cols.counts is not Counts.TOKEN:
        return None
    tokens = view.trace.tokens_of(view.address.step)
    if array.size != len(tokens) or not np.array_equal(array.ravel(), [token.id for token in tokens]):
        return None
    return Chips(tokens[:MOST_CHIPS], max(0, len(tokens) - MOST_CHIPS))


def strips_of(view: View) -> tuple[Strip, ...]:
    """Links for the short axes that the picture does not show."""
    return tuple(
        Strip(
            axis.label,
            tuple(
                Stop(
                    f"{'' if axis.counts is Counts.HEAD else 'at-'}{axis.name.replace('.', '-')}-{n}",
                    str(n),
                    f"{axis.label} {n}" + (f" of {axis.meaning}" if axis.counts is Counts.PART else ""),
                    view.url({axis.name: n or None}),
                    n == view.chosen[axis.name],
                )
                for n in range(axis.size)
            ),
        )
        for axis in view.fixed
        if axis.size <= _MOST_STOPS and axis.counts not in (Counts.TOKEN, Counts.CHANNEL)
    )


def controls_of(view: View) -> Controls | None:
    """The form that chooses axes, indices and the way cells are joined; None where there is no choice."""
    plane = view.plane()
    typed = [axis for axis in view.axes if axis.size > 1 and (axis in view.fixed or axis.name == QUERY)]
    fields = [Field(axis.name, axis.label, view.chosen[axis.name], axis.size - 1) for axis in typed]
    for name, side, axis in (("r0", plane.rows, view.rows), ("c0", plane.cols, view.cols)):
        if axis is not None and side.count < side.size:
            fields.append(Field(name, f"from {axis.label}", side.first, side.size - 1))
    joined = plane.rows.block * plane.cols.block > 1
    if not fields and not joined and len([axis for axis in view.axes if axis.size > 1]) < 2:
        return None
    asked = {field.name for field in fields} | {"rows", "cols", "reduce"}
    hidden = parse_qsl(urlsplit(view.url()).query)
    return Controls(
        action=view.url().split("?")[0],
        hidden=tuple((name, value) for name, value in hidden if name not in asked),
        rows=_options(view, view.rows),
        cols=_options(view, view.cols),
        fields=tuple(fields),
        reduce=(
            Option("maxabs", "the one furthest from zero", view.reduce is Reduce.LARGEST),
            Option("mean", "their mean", view.reduce is Reduce.MEAN),
        )
        if joined
        else (),
    )


def _options(view: View, chosen: ViewAxis | None) -> tuple[Option, ...]:
    if chosen is None:
        return ()
    return tuple(
        Option(
            axis.symbol,
            axis.label if axis.symbol in axis.label else f"{axis.symbol}, {axis.label}",
            axis == chosen,
        )
        for axis in view.axes
    )


def _notes(view: View, plane: Plane) -> tuple[str, ...]:
    notes = []
    joined = [
        f"{side.block} {plural_of(name, side.block)}"
        for side, name in zip((plane.rows, plane.cols), view.names, strict=True)
        if side.block > 1
    ]
    if joined:
        notes.append(f"Each drawn cell stands for {' by '.join(joined)}: {view.reduce.says} them.")
    parts = [
        f"{name} {side.first}–{side.last} of {side.size}"
        for side, name in zip((plane.rows, plane.cols), view.names, strict=True)
        if side.count < side.size
    ]
    if parts:
        notes.append(f"Shown: {', '.join(parts)}.")
    return tuple(notes)


def _turns(view: View, plane: Plane) -> tuple[Turn, ...]:
    """Closer, farther, and the blocks beside this one, each where there is such a thing."""
    turns = []
    sides = (("row", "r0", plane.rows, view.names[0]), ("col", "c0", plane.cols, view.names[1]))
    if max(plane.rows.block, plane.cols.block) > 1:
        # Closer shows the first cells of the window, at most down to one drawn cell for each.
        closer = min(view.zoom * 2, max(-(-s.size // max(1, s.drawn)) for _, _, s, _ in sides))
        turns.append(Turn("zoom-in", "look closer", view.url({"zoom": closer})))
    if view.zoom > 1:
        turns.append(
            Turn("zoom-out", "from farther away", view.url({"zoom": view.zoom // 2 if view.zoom > 3 else None}))
        )
        turns.append(Turn("zoom-whole", "the whole tensor", view.url({"zoom": None, "r0": None, "c0": None})))
    for word, first, side, name in sides:
        if side.first > 0:
            back = max(0, side.first - side.count)
            turns.append(Turn(f"{word}-back", f"← {_span(side, name, back)}", view.url({first: back or None})))
        if side.last < side.size - 1:
            on = min(side.size - side.count, side.last + 1)
            turns.append(Turn(f"{word}-on", f"{_span(side, name, on)} →", view.url({first: on})))
    return tuple(turns)


def _span(side: Side, name: str, start: int) -> str:
    return f"{plural_of(name, 2)} {start}–{start + side.count - 1}"
