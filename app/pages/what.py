"""What a tensor is: names, shape, formula, and its neighbours in the computation."""

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from latex2mathml.converter import convert
from markupsafe import Markup

from app.pages.frame import layered_title
from app.pages.scope import Link, Scope
from provenance.catalogue import Intermediate, Kind, Read, Steps
from provenance.families import FAMILIES
from provenance.names import Address
from provenance.variants import exists_in

_MOST_NEIGHBOURS = 12


@dataclass(frozen=True, slots=True)
class Crumb:
    """One part of the path through the hierarchy."""

    title: str
    url: str


@dataclass(frozen=True, slots=True)
class AxisChip:
    """One axis of a symbolic shape, and what it counts."""

    text: str
    meaning: str


@dataclass(frozen=True, slots=True)
class OperationView:
    """An operation: its title and formula."""

    title: str
    formula: Markup


@dataclass(frozen=True, slots=True)
class Alias:
    """Another name of a tensor, and whose it is."""

    scheme: str
    name: str
    note: str


@dataclass(frozen=True, slots=True)
class Holder:
    """A variable of another cited file that holds a tensor. `note` says how its values lie there, or when."""

    text: str
    note: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The variables of one other cited file, at one release."""

    release: str
    file: str
    holders: tuple[Holder, ...]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Links to tensors, and how many more there are than are shown."""

    shown: tuple[Link, ...]
    more: int


@dataclass(frozen=True, slots=True)
class What:
    """What a tensor is. `decode_axes` is empty where the shape is the same in a decode step.

    `lesson` is the chapter of the lessons that explains it, where one does.
    """

    site: str
    name: str
    kind: str
    title: str
    description: str
    crumbs: tuple[Crumb, ...]
    axes: tuple[AxisChip, ...]
    decode_axes: tuple[AxisChip, ...]
    exists_in: str
    formula: Markup
    producer: OperationView
    consumers: tuple[OperationView, ...]
    inputs: Neighbours
    readers: Neighbours
    aliases: tuple[Alias, ...]
    points: tuple[str, ...]
    elsewhere: tuple[Elsewhere, ...]
    map_url: str
    map_title: str
    lesson: Link | None


def what_is(scope: Scope, row: Intermediate, address: Address | None = None, *, lesson: Link | None = None) -> What:
    """What a row is, or one of its tensors where an address is given."""
    catalogue = scope.catalogue
    decode = row.steps is Steps.DECODE or (address is not None and address.step > 0)
    axes = axis_chips(scope, row, decode=decode)
    other = axis_chips(scope, row, decode=True) if address is None else axes
    inputs, readers = _neighbours(scope, row, address)
    return What(
        site=row.site,
        name=row.name,
        kind=row.kind.value,
        title=row.title,
        description=row.description,
        crumbs=crumbs(scope, row.group),
        axes=axes,
        decode_axes=() if other == axes else other,
        exists_in=exists_in(row),
        formula=mathml(with_left_side(row)),
        producer=_operation(scope, row.operation),
        consumers=tuple(_operation(scope, operation.id) for operation in catalogue.consumers(row.site)),
        inputs=inputs,
        readers=readers,
        aliases=tuple(
            Alias(alias.scheme, _spelled(alias.pattern, scope, address is not None), alias.note)
            for alias in row.aliases
        ),
        points=tuple(str(point) for point in row.points),
        elsewhere=_elsewhere(scope, row),
        map_url=_map_url(scope, row),
        map_title=row.group[-1],
        lesson=lesson,
    )


def axis_chips(scope: Scope, row: Intermediate, *, decode: bool) -> tuple[AxisChip, ...]:
    """The symbolic shape of a row, axis by axis."""
    catalogue = scope.catalogue
    return tuple(
        AxisChip(catalogue.axis_text(symbol, scope.constants, decode=decode), catalogue.axes[symbol].meaning)
        for symbol in row.shape
    )


def crumbs(scope: Scope, path: tuple[str, ...]) -> tuple[Crumb, ...]:
    """The groups above and including a path of the hierarchy."""
    groups = (group for top in scope.catalogue.tree for group in top.walk())
    above = [group for group in groups if path[: len(group.path)] == group.path]
    return tuple(Crumb(layered_title(scope, group), scope.group_url(group)) for group in above)


@lru_cache(maxsize=1024)
def mathml(latex: str) -> Markup:
    """A formula as MathML."""
    return Markup(convert(latex, display="block"))


def with_left_side(row: Intermediate) -> str:
    """A row's formula, with the variable of the cited code before it where the formula names none."""
    names = (row.name, *(point.expression for point in row.points))
    variables = [name for name in names if name.isidentifier()]
    named = "=" in row.formula or r"\leftarrow" in row.formula
    if row.kind is not Kind.TENSOR or not variables or named or row.formula == variables[0]:
        return row.formula
    variable = variables[0]
    bare = re.sub(r"\\[a-zA-Z]+", " ", row.formula)
    again = re.search(rf"(?<![A-Za-z]){re.escape(variable)}(?![A-Za-z])", bare)
    letters = variable if len(variable) == 1 else rf"\mathrm{{{variable}}}"
    sign = r"\leftarrow" if again else "="
    return f"{letters} {sign} {row.formula}"


def _elsewhere(scope: Scope, row: Intermediate) -> tuple[Elsewhere, ...]:
    return tuple(
        Elsewhere(
            file.release,
            file.pin.path.rpartition("/")[2],
            tuple(Holder(str(point), note) for point, note in file.points[row.site]),
        )
        for file in FAMILIES[scope.catalogue.family].elsewhere
        if row.site in file.points
    )


def _map_url(scope: Scope, row: Intermediate) -> str:
    """The map of the row's group, with the row lit."""
    group = next(group for top in scope.catalogue.tree for group in top.walk() if group.path == row.group)
    return scope.map_url(group, row.site)


def _operation(scope: Scope, id: str) -> OperationView:
    operation = scope.catalogue.operations[id]
    return OperationView(operation.title, mathml(operation.formula))


def _neighbours(scope: Scope, row: Intermediate, address: Address | None) -> tuple[Neighbours, Neighbours]:
    catalogue = scope.catalogue
    if address is None or scope.trace is None:
        inputs = [
            replace(scope.link(catalogue.row(site)), place=place) for site, place in _variants(row.inputs).items()
        ]
        readers = [
            replace(scope.link(reader), place=reader.variant or _variants(reader.inputs)[row.site])
            for reader in catalogue.readers(row.site)
        ]
    else:
        layers, last = scope.trace.layers, scope.trace.last_step
        inputs = [scope.link_to(found) for found in catalogue.inputs_of(address, layers)]
        readers = [scope.link_to(found) for found in catalogue.readers_of(address, layers, last)]
    return _bounded(inputs), _bounded(readers)


def _variants(reads: tuple[Read, ...]) -> dict[str, str]:
    """Each site that is read, and the kinds of model in which it is, where these are not all."""
    found: dict[str, list[str]] = {}
    for read in reads:
        found.setdefault(read.site, []).append(read.variant)
    return {site: " or ".join(variants) if all(variants) else "" for site, variants in found.items()}


def _bounded(links: list[Link]) -> Neighbours:
    return Neighbours(tuple(links[:_MOST_NEIGHBOURS]), max(0, len(links) - _MOST_NEIGHBOURS))


def _spelled(pattern: str, scope: Scope, in_trace: bool) -> str:
    return pattern.replace("{layer}", str(scope.layer) if in_trace else "N")
