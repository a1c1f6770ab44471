"""What every tensor is: the types of the catalogue, and how it is asked.

A model family fills a `Catalogue` with rows (`Intermediate`) and operations. It is plain data.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from provenance.axes import Axis
from provenance.citation import Citation
from provenance.errors import UnknownSite
from provenance.names import Address, is_layered, slug


class Steps(StrEnum):
    """In which steps of a trace a site exists."""

    ALL = "every step"
    PREFILL = "prefill only"
    DECODE = "decode steps only"

    def cover(self, step: int) -> bool:
        """Whether the site exists in that step."""
        return self is Steps.ALL or (self is Steps.PREFILL) == (step == 0)


class Kind(StrEnum):
    """What a site holds: a tensor that is computed, a learned parameter, or the input."""

    TENSOR = "tensor"
    PARAMETER = "parameter"
    INPUT = "input"


class Across(StrEnum):
    """From where a site reads another one."""

    SAME = "the same layer and step"
    FIRST = "layer 0 only"
    PREVIOUS = "the layer before"
    LAST = "the last layer"
    EVERY = "every layer"
    EARLIER = "the earlier steps"


@dataclass(frozen=True, slots=True)
class Read:
    """One edge of the dataflow: the site that is read, from where, in which steps and in which variant."""

    site: str
    across: Across = Across.SAME
    steps: Steps = Steps.ALL
    variant: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """Where the cited file holds the value: function, line, expression, and how (`assign`, `return`,
    `argument` or `call`). `caller` is the line of the call, where there are several.
    """

    function: str
    line: int
    expression: str
    kind: str = "assign"
    caller: int | None = None

    def __str__(self) -> str:
        called = f", called at line {self.caller}" if self.caller else ""
        return f"{self.expression} ({self.function}, line {self.line}{called})"


@dataclass(frozen=True, slots=True)
class Alias:
    """Another name of a site; `{layer}` stands for the layer's number. `note` says how its values lie there.

    `axes` are its axes, where they stand in another order; `hides` says that its masked cells are −∞.
    """

    scheme: str
    pattern: str
    note: str = ""
    axes: tuple[str, ...] = ()
    hides: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """One claim in one sentence, the source that makes it, and the lines that prove it."""

    claim: str
    label: str
    citation: Citation


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What turns intermediates into intermediates, with its direct evidence. `formula` is LaTeX.

    `difference` says in one sentence what the cited sources do differently here.
    """

    id: str
    title: str
    formula: str
    evidence: tuple[Evidence, ...]
    difference: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intermediate:
    """A row of the catalogue: one distinct value of the forward pass.

    `name` is the cited code's own expression for it; `shape` lists axis symbols; `formula`
    (LaTeX) computes it from `inputs`; `points` say where the cited file holds it; `masked_by`
    names the boolean site whose False cells are masked here; `variant` names the kind of model that
    alone has the site (see `variants`); `stream` marks what lies on the residual stream; `product_of`
    are two tensors, where each cell is the dot product of a row of each, up to a constant factor;
    `discrete` marks whole numbers and truth values.
    """

    site: str
    name: str
    title: str
    description: str
    shape: tuple[str, ...]
    group: tuple[str, ...]
    operation: str
    formula: str
    points: tuple[Point, ...]
    inputs: tuple[Read, ...] = ()
    kind: Kind = Kind.TENSOR
    steps: Steps = Steps.ALL
    masked_by: str | None = None
    aliases: tuple[Alias, ...] = ()
    variant: str = ""
    stream: bool = False
    product_of: tuple[Read, ...] = ()
    discrete: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """Evidence of a neighbouring operation: it produces the tensor, or reads it."""

    operation: Operation
    produces: bool
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Group:
    """A node of the hierarchy: its path, its own rows, and the groups below it."""

    path: tuple[str, ...]
    rows: tuple[Intermediate, ...]
    children: tuple["Group", ...]

    @property
    def slug(self) -> str:
        """The path as it stands in an address: `transformer-block/attention`."""
        return "/".join(slug(part) for part in self.path)

    def walk(self) -> Iterator["Group"]:
        """This group and all below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()


class Catalogue:
    """All rows of a model family in order of computation, and its operations.

    Raises ValueError at construction when rows, operations and edges do not fit together.
    """

    def __init__(
        self, family: str, rows: Iterable[Intermediate], operations: Iterable[Operation], axes: Iterable[Axis]
    ) -> None:
        self.family = family
        self.rows: Mapping[str, Intermediate] = {row.site: row for row in rows}
        self.operations: Mapping[str, Operation] = {operation.id: operation for operation in operations}
        self.axes: Mapping[str, Axis] = {axis.symbol: axis for axis in axes}
        for row in self.rows.values():
            known = {row.operation} <= self.operations.keys() and set(row.shape) <= self.axes.keys()
            read = {read.site for read in (*row.inputs, *row.product_of)} | ({row.masked_by} - {None})
            if not known or not read <= self.rows.keys():
                raise ValueError(f"{row.site} names an operation, axis or site that does not exist")

    def __iter__(self) -> Iterator[Intermediate]:
        return iter(self.rows.values())

    def row(self, site: str) -> Intermediate:
        """The row of a site. Raises UnknownSite with near matches."""
        if row := self.rows.get(site):
            return row
        raise UnknownSite(site, self.near(site))

    def near(self, text: str) -> tuple[str, ...]:
        """Sites whose name, title or last part is close to the text, best first."""
        known = {site: site for site in self.rows}
        known |= {row.title.lower(): row.site for row in self}
        known |= {f"h.{row.site.split('.', 1)[-1]}": row.site for row in self if is_layered(row.site)}
        close = difflib.get_close_matches(text.lower(), known, n=4, cutoff=0.55)
        return tuple(dict.fromkeys(known[name] for name in close))[:3]

    def operation_of(self, row: Intermediate) -> Operation:
        """The operation that produces a row."""
        return self.operations[row.operation]

    def readers(self, site: str) -> tuple[Intermediate, ...]:
        """Rows that read a site, in order of computation."""
        return tuple(row for row in self if any(read.site == site for read in row.inputs))

    def consumers(self, site: str) -> tuple[Operation, ...]:
        """Operations that read a site, its own producer left out, in order of computation."""
        readers = dict.fromkeys(row.operation for row in self.readers(site))
        return tuple(self.operations[id] for id in readers if id != self.row(site).operation)

    def context(self, site: str) -> tuple[Context, ...]:
        """The evidence shown with a tensor: its producer's, then its consumers'."""
        producer = self.operation_of(self.row(site))
        found = [Context(producer, True, evidence) for evidence in producer.evidence]
        for operation in self.consumers(site):
            found += [Context(operation, False, evidence) for evidence in operation.evidence]
        return tuple(found)

    def inputs_of(self, address: Address, layers: int) -> tuple[Address, ...]:
        """The tensors that an address is computed from, in a model of that many layers."""
        row = self.row(address.site)
        return tuple(dict.fromkeys(a for read in row.inputs for a in reach(read, address, layers)))

    def factors_of(self, address: Address, layers: int) -> tuple[Address, ...]:
        """The two tensors whose rows' products an address sums up; none where it is no such sum."""
        return tuple(factor for read in self.row(address.site).product_of for factor in reach(read, address, layers))

    def readers_of(self, address: Address, layers: int, last_step: int) -> tuple[Address, ...]:
        """The tensors that are computed from an address, in order of computation."""
        found: dict[Address, None] = {}
        for row in self.readers(address.site):
            places = range(layers) if is_layered(row.site) else (None,)
            for step in range(address.step, last_step + 1):
                for layer in places:
                    reader = Address(row.site, layer, step)
                    if row.steps.cover(step) and address in self.inputs_of(reader, layers):
                        found[reader] = None
        return tuple(found)

    @cached_property
    def tree(self) -> tuple[Group, ...]:
        """The hierarchy of groups, in order of first appearance."""
        return self._children(())

    def _children(self, path: tuple[str, ...]) -> tuple[Group, ...]:
        depth = len(path)
        inside = [row for row in self if row.group[:depth] == path and len(row.group) > depth]
        paths = dict.fromkeys(row.group[: depth + 1] for row in inside)
        return tuple(
            Group(below, tuple(row for row in inside if row.group == below), self._children(below)) for below in paths
        )

    def group(self, address: str) -> Group:
        """A group by its slug. Raises UnknownSite."""
        groups = {group.slug: group for top in self.tree for group in top.walk()}
        if found := groups.get(address):
            return found
        raise UnknownSite(address, tuple(difflib.get_close_matches(address, groups, n=3)))

    def shape(self, row: Intermediate, constants: Mapping[str, int], *, decode: bool = False) -> str:
        """A symbolic shape with named axes: `[B batch, T, 768 d]`; in a decode step T is 1."""
        return "[" + ", ".join(self.axis_text(s, constants, decode=decode) for s in row.shape) + "]"

    def axis_text(self, symbol: str, constants: Mapping[str, int], *, decode: bool = False) -> str:
        """One axis of a symbolic shape: `768 d`."""
        axis = self.axes[symbol]
        fixed = axis.decode if decode else None
        return f"{fixed or constants.get(symbol, symbol)} {axis.name}".strip()


def reach(read: Read, at: Address, layers: int) -> Iterator[Address]:
    """The tensors that an edge reaches from one of the reader's addresses."""
    if not read.steps.cover(at.step):
        return
    layered = is_layered(read.site)
    match read.across:
        case Across.SAME:
            yield Address(read.site, at.layer if layered else None, at.step)
        case Across.FIRST if at.layer == 0:
            yield Address(read.site, None, at.step)
        case Across.PREVIOUS if at.layer:
            yield Address(read.site, at.layer - 1, at.step)
        case Across.LAST:
            yield Address(read.site, layers - 1, at.step)
        case Across.EVERY:
            yield from (Address(read.site, layer, at.step) for layer in range(layers))
        case Across.EARLIER:
            yield from (Address(read.site, at.layer if layered else None, step) for step in range(at.step))
