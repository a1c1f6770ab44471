"""Direct logit attribution: how much each head, MLP and embedding added to one logit, without gradients.

The stream that enters the model's output is a sum of terms, and with its recorded scale a logit
reads it linearly: so the logit is the sum of what the terms give, and of an offset. Computed in
float64 from the recorded tensors; what is then missing from the recorded logit is its rounding.

Axes: d channels of the residual stream, V vocabulary.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from provenance.errors import InvalidInput, OutOfRange
from provenance.lens import Position, distribution, residuals, tolerance_of
from provenance.model import Get, Model, Readout, Split, Write
from provenance.names import Address
from provenance.trace import Trace

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Term:
    """One summand: what wrote it, the place of the tensor to look at, and what it adds to the logit.

    A write that is split by head has a term for each `head`, and one for what all heads share (`shared`);
    `write` is the place of the whole.
    """

    writer: str
    write: str
    place: str
    layer: int | None
    value: float
    head: int | None = None
    shared: bool = False

    @property
    def kind(self) -> str:
        """What the term counts as, beside others of its kind."""
        return f"{self.writer} bias" if self.shared else self.writer if self.head is None else f"{self.writer} heads"


@dataclass(frozen=True, slots=True)
class Stage:
    """The sum up to a kept residual stream, offset included, with the final scale.

    `unexplained` is what the stream gained since the stage before beyond the terms written to it: the
    rounding of its sums, or an edit.
    """

    place: str
    layer: int | None
    value: float
    unexplained: float


@dataclass(frozen=True, slots=True)
class Attribution:
    """What made the logit of `token` at a position, or its lead over the logit of `against`.

    `terms` stand in order of computation; in a trace with edits that of an `edit` is what the stream
    gained beyond its writes. `offset` is what the output adds whatever the stream is.
    `holds` says that all of it sums to the `recorded` logit within `tolerance`. `scale` and
    `offset_place` are the places of the recorded scale and of the offset.
    """

    position: Position
    token: int
    against: int | None
    terms: tuple[Term, ...]
    offset: float
    stages: tuple[Stage, ...]
    recorded: float
    tolerance: float
    scale: str
    offset_place: str

    @property
    def tokens(self) -> tuple[int, ...]:
        """The ids of the token, and of the one that it is compared with."""
        return (self.token,) if self.against is None else (self.token, self.against)

    @property
    def total(self) -> float:
        """The sum of all terms and the offset."""
        return math.fsum([self.offset, *(term.value for term in self.terms)])

    @property
    def remainder(self) -> float:
        """What the sum lacks of the recorded logit."""
        return self.recorded - self.total

    @property
    def holds(self) -> bool:
        """Whether the sum is the recorded logit, within the tolerance."""
        return abs(self.remainder) <= self.tolerance

    @property
    def by_kind(self) -> dict[str, float]:
        """The sum of each kind of term, in order of computation."""
        return _sums((term.kind, term.value) for term in self.terms)

    @property
    def by_layer(self) -> dict[int | None, float]:
        """The sum of each layer's terms; None are the terms outside the layers."""
        return _sums((term.layer, term.value) for term in self.terms)

    def largest(self, most: int) -> tuple[Term, ...]:
        """The terms that are furthest from zero, the furthest first."""
        return tuple(sorted(self.terms, key=lambda term: -abs(term.value))[:most])


@torch.inference_mode()
def attribute(
    model: Model,
    trace: Trace,
    position: Position,
    token: int | None,
    tensor: Callable[[Address], Tensor],
    against: int | None = None,
) -> Attribution:
    """Attribute a logit at a position; without a token that of the most likely one.

    `tensor` gives any tensor of the trace. Raises OutOfRange for an id outside the vocabulary, and
    InvalidInput where the logits are no numbers, or a token is compared with itself.
    """

    def get(place: str) -> Tensor:
        address = Address.parse(place)
        return tensor(Address(address.site, address.layer, position.step))

    logits = get("logits")[0, position.index]  # (V)
    chosen = _checked(logits, position, token, against)
    readout = _readout(model, position, get, chosen, against)
    terms = tuple(term for write in model.writes for term in _terms(write, readout, position, get))
    recorded = float(logits[chosen].double())
    if against is not None:
        recorded -= float(logits[against].double())
    # Of a difference both sides are rounded.
    tolerance = tolerance_of(logits[logits.isfinite()]) * (1 if against is None else 2)
    stages = _stages(model, trace, position, readout, terms)
    if trace.recipe.edits:
        terms = _with_edits(terms, stages, tolerance)
    return Attribution(
        position, chosen, against, terms, readout.offset, stages, recorded,
        tolerance, readout.scale, readout.offset_place,
    )  # fmt: skip


def _sums(values: Iterable[tuple[_Key, float]]) -> dict[_Key, float]:
    found: dict[_Key, list[float]] = {}
    for key, value in values:
        found.setdefault(key, []).append(value)
    return {key: math.fsum(listed) for key, listed in found.items()}


def _checked(logits: Tensor, position: Position, token: int | None, against: int | None) -> int:
    """The token to attribute, once all that was asked can be done."""
    for id in (token, against):
        if id is not None and not 0 <= id < len(logits):
            raise OutOfRange(f"The vocabulary has no token {id}.", hint=f"Its ids are 0 to {len(logits) - 1}.")
    found = distribution(logits, 1)
    if found.best is None:
        raise InvalidInput(f"Nothing can be attributed at position {position.number}. {found.problem}")
    chosen = found.best if token is None else token
    if chosen == against:
        raise InvalidInput(
            f"Token {against} has no lead over itself.", hint="Compare with another token, or with none."
        )
    if not logits[[id for id in (chosen, against) if id is not None]].isfinite().all():
        raise InvalidInput(f"A logit of position {position.number} is −Inf: no sum of terms makes it.")
    return chosen


def _readout(model: Model, position: Position, get: Get, token: int, against: int | None) -> Readout:
    """How the logit reads the stream; a difference of two reads the difference of what they read."""
    one = model.readout(token, position.index, get)
    if against is None:
        return one
    other = model.readout(against, position.index, get)
    return Readout(one.direction - other.direction, one.offset - other.offset, one.scale, one.offset_place)


def _terms(write: Write, readout: Readout, position: Position, get: Get) -> Iterator[Term]:
    layer = Address.parse(write.place).layer
    if write.split is None:
        value = float(get(write.place)[0, position.index].double() @ readout.direction)
        yield Term(write.writer, write.place, write.place, layer, value)
        return
    split = write.split
    for head, value in enumerate(_by_head(split, readout, position, get)):
        yield Term(write.writer, write.place, split.by_head, layer, value, head=head)
    value = float(get(split.bias).double() @ readout.direction)
    yield Term(write.writer, write.place, split.bias, layer, value, shared=True)


def _by_head(split: Split, readout: Readout, position: Position, get: Get) -> list[float]:
    channels = get(split.joined)[0, position.index].double()  # (heads · channels)
    through = get(split.weight)[0].double() @ readout.direction  # (heads · channels)
    values: list[float] = (channels * through).view(split.count, -1).sum(-1).tolist()
    return values


def _stages(
    model: Model, trace: Trace, position: Position, readout: Readout, terms: tuple[Term, ...]
) -> tuple[Stage, ...]:
    """The kept residual streams, read as the final one is."""
    streams = residuals(trace, model.residuals, [position])[:, 0].double()  # (stages, d)
    found = []
    before, written = readout.offset, _sums((term.layer, term.value) for term in terms)
    for place, stream in zip(model.residuals, streams, strict=True):
        layer = Address.parse(place).layer
        value = float(stream @ readout.direction) + readout.offset
        found.append(Stage(place, layer, value, value - before - written[layer]))
        before = value
    return tuple(found)


def _with_edits(terms: tuple[Term, ...], stages: tuple[Stage, ...], tolerance: float) -> tuple[Term, ...]:
    """The terms, each layer's followed by what edits put into the stream there in the place of its writes."""
    found: list[Term] = []
    for stage in stages:
        found += [term for term in terms if term.layer == stage.layer]
        if abs(stage.unexplained) > tolerance:
            found.append(Term("edit", stage.place, stage.place, stage.layer, stage.unexplained))
    return tuple(found)
