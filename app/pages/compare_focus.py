"""The tensor that a comparison looks at: its figures, its operation with the cited lines, what lies upstream."""

from dataclasses import dataclass

from markupsafe import Markup

from app.explorer import Explorer
from app.pages.badge import Badge
from app.pages.compare_links import Wanted
from app.pages.compare_picture import Apart, DifferencePicture, apart, picture_of
from app.pages.compare_rows import badge_of, cosine_of, figure, index_text, key_of, size_of
from app.pages.compare_sides import Compared
from app.pages.evidence import EvidenceView, evidence_of
from app.pages.numbers import Number, measure
from app.pages.scope import Link, step_name
from app.pages.view import Asked, headings_along
from app.pages.what import mathml, with_left_side
from provenance.catalogue import Kind
from provenance.comparison import upstream
from provenance.difference import Difference, Status
from provenance.names import Address


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a comparison, and what it measures."""

    label: str
    number: Number
    meaning: str


@dataclass(frozen=True, slots=True)
class First:
    """The first cell that differs: its index, where that is in words, and both values."""

    index: str
    where: str
    a: Number
    b: Number


@dataclass(frozen=True, slots=True)
class Before:
    """A tensor from which this one is computed, whether it agrees, and where it can be looked at."""

    badge: Badge
    link: Link
    relative: Number | None


@dataclass(frozen=True, slots=True)
class Focus:
    """One tensor of both sides. `pages` are its own pages, `agreeing` the operations above it that agree.

    `heading` says why it is shown: it is the first divergence, or was chosen.
    """

    heading: str
    is_first: bool
    first_url: str
    address: str
    title: str
    name: str
    place: str
    called: str
    badge: Badge
    note: str
    shapes: str
    figures: tuple[Figure, ...]
    first: First | None
    pages: tuple[Link, ...]
    operation: str
    formula: Markup
    tensor_formula: Markup
    differs: str
    columns: tuple[tuple[EvidenceView, ...], ...]
    before: tuple[Before, ...]
    agreeing: tuple[str, ...]
    picture: DifferencePicture | None
    previous: Link | None
    next: Link | None


@dataclass(frozen=True, slots=True)
class Around:
    """What a focus is made from; `pages` are links to the tensor on the traces' own pages."""

    explorer: Explorer
    compared: Compared
    wanted: Wanted
    pages: tuple[Link, ...]


def focus_of(around: Around, found: Difference, asked: Asked) -> Focus:
    """One tensor of a comparison. Raises OutOfRange and InvalidInput for a part that it does not have."""
    explorer, wanted, trace = around.explorer, around.wanted, around.compared.a.trace
    comparison, catalogue = around.compared.comparison, around.compared.a.catalogue
    row = catalogue.row(found.address.site)
    operation = catalogue.operation_of(row)
    evidence = evidence_of(catalogue, explorer.sources, row.site)
    produces = [group for group in evidence if group.id == f"evidence-{operation.id}"]
    first = comparison.first_divergence
    is_first = first is found
    above = upstream(comparison, catalogue, trace.layers) if is_first else None
    seen = None
    if found.status is not Status.UNFIT:
        seen = apart(explorer, trace, found, around.compared.pair(found), asked, wanted)
    beside = _beside(around, found)
    return Focus(
        heading="The first divergence" if is_first else "One tensor of both",
        is_first=is_first,
        first_url=wanted.url(at=None) if first is not None and not is_first else "",
        address=str(found.address),
        title=row.title,
        name=row.name,
        place=place_of(found.address),
        called="" if found.name == str(found.address) else found.name,
        badge=badge_of(found),
        note=found.note,
        shapes=_shapes(found),
        figures=tuple(_figures(found)),
        first=_first(explorer, found, seen),
        pages=around.pages,
        operation=operation.title,
        formula=mathml(operation.formula),
        tensor_formula=mathml(with_left_side(row)),
        differs=operation.difference,
        columns=produces[0].columns if produces else (),
        before=tuple(_before(around, found)),
        agreeing=tuple(each.title for each in above.agreeing) if above else (),
        picture=picture_of(explorer, seen) if seen else None,
        previous=beside[0],
        next=beside[1],
    )


def place_of(address: Address) -> str:
    """Where a tensor stands: `layer 3, step 1`."""
    parts = [] if address.layer is None else [f"layer {address.layer}"]
    return ", ".join([*parts, *([step_name(address.step)] if address.step else [])])


def _figures(found: Difference) -> list[Figure]:
    if found.status is Status.UNFIT:
        return []
    largest, relative = figure(found, found.largest), figure(found, found.relative)
    assert largest is not None and relative is not None
    return [
        Figure("max |A − B|", largest, "the largest difference of any compared cell"),
        Figure("relative", relative, "the largest difference over the largest value of A"),
        Figure("tolerance", size_of(found.tolerance), "what max |A − B| may be at most"),
        Figure("cosine", cosine_of(found), "cosine of the angle between the two, as vectors"),
        Figure("cells", Number(f"{found.compared:,}".replace(",", "\u202f"), str(found.compared)), "cells compared"),
    ]


def _shapes(found: Difference) -> str:
    (a, b), dtypes = found.shapes, found.dtypes
    if a == b and dtypes[0] == dtypes[1]:
        return f"{list(a)} {dtypes[0]}"
    return f"A {list(a)} {dtypes[0]}, B {list(b)} {dtypes[1]}"


def _first(explorer: Explorer, found: Difference, seen: Apart | None) -> First | None:
    if found.first is None or found.first_values is None or seen is None:
        return None
    a, b = found.first_values
    return First(index_text(found.first), _where(explorer, seen, found.first), measure(a), measure(b))


def _where(explorer: Explorer, seen: Apart, index: tuple[int, ...]) -> str:
    """An index in words: `head 3, query 4 “ fox”, key 0 “The”`."""
    view = seen.view
    return ", ".join(
        f"{axis.label} {headings_along(explorer, view, axis, [index[axis.index]])[0]}"
        for axis in view.axes
        if axis.size > 1
    )


def _before(around: Around, found: Difference) -> list[Before]:
    catalogue, rows = around.compared.a.catalogue, {row.address: row for row in around.compared.comparison.rows}
    before = []
    for address in catalogue.inputs_of(found.address, around.compared.a.trace.layers):
        row = catalogue.row(address.site)
        fixed = Address(address.site, address.layer) if row.kind is Kind.PARAMETER else address
        known = rows.get(fixed)
        url = around.wanted.url(at=key_of(known)) if known else ""
        link = Link(url, row.name, row.title, place_of(address))
        before.append(Before(badge_of(known), link, figure(known, known.relative) if known else None))
    return before


def _beside(around: Around, found: Difference) -> tuple[Link | None, Link | None]:
    """The compared tensors before and after, in computation order."""
    rows, catalogue = around.compared.comparison.rows, around.compared.a.catalogue
    at = rows.index(found)

    def link(row: Difference) -> Link:
        known = catalogue.row(row.address.site)
        return Link(around.wanted.url(at=key_of(row)), known.name, known.title, place_of(row.address))

    return (link(rows[at - 1]) if at else None, link(rows[at + 1]) if at + 1 < len(rows) else None)
