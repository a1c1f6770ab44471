"""Parts of the lessons' pages: checks beside formulas, pictures, tables, questions, what GPT-2 does there."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from app.explorer import Explorer
from app.pages.lessons.reading import Array, Live, Reading
from app.pages.links import site_url, source_url
from app.pages.numbers import Number, measure
from app.pages.scope import Link
from app.pages.view import Asked, view_of
from app.pages.what import mathml
from app.pictures.heatmap import cell_size
from provenance.catalogues import CATALOGUES
from provenance.verdict import TOLERANCE

_READABLE = 1e-3
"""From here on a difference is a measure like any other."""

Cell = Live | Number | str | None
"""What a table's cell holds; None is a dash."""


@dataclass(frozen=True, slots=True)
class Check:
    """A formula, and how far its recomputation from recorded tensors is from the recorded result."""

    formula: Markup
    sentence: str
    of: tuple[Link, ...]
    difference: Number
    tolerance: Number
    holds: bool
    link: Link


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture that the application serves for a tensor; `low` and `high` are the ends of its colours."""

    png_url: str
    width: int
    height: int
    alternative: str
    caption: str
    url: str
    axes: str
    small: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table: its heading, its cells, and whether it is the present state of the form."""

    heading: str
    cells: tuple[Cell, ...]
    url: str = ""
    current: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers side by side. `columns` has one heading more than a row has cells: that of the headings."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its computed answer, and the tensor that the answer was computed from."""

    text: str
    answer: Markup
    link: Link


@dataclass(frozen=True, slots=True)
class Cited:
    """Cited lines: `src/model.py 103` and the page that shows them."""

    label: str
    text: str
    url: str


@dataclass(frozen=True, slots=True)
class Place:
    """A GPT-2 tensor at the same point: its architecture page, its values where there is a run, its lines."""

    site: str
    title: str
    name: str
    url: str
    values_url: str
    cited: tuple[Cited, ...]


def check(
    reading: Reading,
    site: str,
    layer: int | None,
    recomputed: Array,
    latex: str,
    of: tuple[str, ...],
    sentence: str = "recomputed from the recorded",
    *,
    entries: int | None = None,
) -> Check:
    """Compare a float64 recomputation with the recorded tensor, cell by cell; `of` are the sites it was made from.

    With `entries` it is one of the first entries of the batch only. Cells that are the same infinity in both agree.
    """
    recorded = reading.array(site, layer)[:entries]
    assert recomputed.shape == recorded.shape, f"{site}: {recomputed.shape} is not {recorded.shape}"
    same = np.isinf(recorded) & (recorded == recomputed)
    ours, theirs = np.where(same, 0.0, recomputed), np.where(same, 0.0, recorded)
    difference = float(np.abs(ours - theirs).max(initial=0.0))
    tolerance = TOLERANCE * max(1.0, float(np.abs(theirs).max(initial=0.0)))
    return Check(
        formula=mathml(latex),
        sentence=sentence,
        of=tuple(reading.link(each, layer) for each in of),
        difference=small(difference),
        tolerance=small(tolerance),
        holds=difference <= tolerance,
        link=reading.link(site, layer),
    )


def small(value: float) -> Number:
    """A difference with two significant digits: 2.1e-7."""
    if value == 0:
        return Number("0", "0.0")
    lead, _, power = f"{value:.1e}".partition("e")
    return Number(f"{lead}e{int(power)}", repr(value))


def apart(value: float) -> Number:
    """A difference as a person reads it: a large one in four digits, a small one by its power of ten."""
    return measure(float(value)) if abs(value) >= _READABLE else small(float(value))


def figure(
    reading: Reading,
    site: str,
    caption: str,
    layer: int | None = None,
    step: int = 0,
    *,
    small: bool = False,
    **at: int,
) -> Figure:
    """A tensor's heatmap; `at` chooses an index of the axes that it does not show (`head=3`, `batch=1`)."""
    explorer, address = reading.explorer, reading.address(site, layer, step)
    shape = reading.array(site, layer, step).shape
    asked = Asked(at={name: index for name, index in at.items() if index})
    view = view_of(explorer.catalogue(reading.trace), reading.trace, address, shape, asked)
    plane = view.plane(small=small)
    high, wide = cell_size(plane, square=view.square, small=small)
    return Figure(
        png_url=view.url({"size": "small"} if small else {}, "/heatmap.png"),
        width=wide * plane.cols.drawn,
        height=high * plane.rows.drawn,
        alternative=f"Heatmap of {address}{_at(at)}: {plane.rows.count} by {plane.cols.count} cells",
        caption=caption,
        url=view.url(),
        axes=" × ".join(name for name in view.names if name),
        small=small,
    )


def _at(at: dict[str, int]) -> str:
    return "".join(f", {name} {index}" for name, index in at.items())


def places(explorer: Explorer, sites: Iterable[str], reading: Reading | None, layer: int = 0) -> tuple[Place, ...]:
    """What GPT-2 has at the same point: its sites with their cited lines, and values where there is a run."""
    catalogue = CATALOGUES["gpt2"]
    found = []
    for site in sites:
        row = catalogue.row(site)
        cited = tuple(
            Cited(
                evidence.citation.pin.label,
                f"{evidence.citation.pin.path.rpartition('/')[2]} {evidence.citation.lines}",
                source_url(evidence.citation.pin, evidence.citation.first),
            )
            for evidence in catalogue.operation_of(row).evidence
        )
        values = reading.url(site, layer) if reading is not None and reading.has(site) else ""
        found.append(Place(site, row.title, row.name, site_url(site), values, cited))
    return tuple(found)


def answer(template: str, *values: Live | Number | str) -> Markup:
    """A sentence with numbers put in for `{}`: each exact on hover, a live one with a link to its tensor."""
    return Markup(template).format(*(shown(value) for value in values))


def shown(value: Live | Number | str) -> Markup | str:
    """A number as the templates print it."""
    match value:
        case Number():
            return Markup('<data value="{0}" title="{0}">{1}</data>').format(value.exact, value.text)
        case Live():
            return Markup('<a class="live-number" href="{}" title="{}">{}</a>').format(
                value.url, value.says, shown(value.number)
            )
        case _:
            return value
