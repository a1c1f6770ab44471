"""Both tensors of one row of a comparison, laid out alike, for a picture of their difference."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from provenance.compare_positions import both_at_positions, common_positions
from provenance.comparison import Comparison, How, Recorded
from provenance.difference import Difference
from provenance.errors import InvalidInput
from provenance.schemes import Fitted, Resolved, fitted, resolve


@dataclass(frozen=True, slots=True)
class Pair:
    """One tensor of both sides. `visible` is True at the cells that count, broadcast to both; None for all."""

    a: Tensor
    b: Tensor
    visible: Tensor | None = None

    @property
    def apart(self) -> Tensor:
        """|a − b| in float64: 0 where both are equal or no numbers, NaN or infinite where only one side is so."""
        a, b = self.a.double(), self.b.double()
        same = (a == b) | (a.isnan() & b.isnan())
        return torch.where(same, 0.0, (a - b).abs())

    @property
    def masked(self) -> Tensor | None:
        """True at the cells that do not count."""
        return None if self.visible is None else ~self.visible


def pair_of(comparison: Comparison, found: Difference, a: Recorded, b: Recorded | Mapping[str, Tensor]) -> Pair:
    """The tensors that a row compared. Raises InvalidInput where they were not compared."""
    address = found.address
    if not isinstance(b, Recorded):
        return _named(found, a, b)
    if comparison.how is How.POSITIONS and "token" in _counts(a, found):
        return Pair(*both_at_positions(a, b, common_positions(a, b), address))
    pair = Pair(a.tensor(address), b.tensor(address), a.visible(address))
    if pair.a.shape != pair.b.shape:
        raise _not_compared(found)
    return pair


def _named(found: Difference, a: Recorded, tensors: Mapping[str, Tensor]) -> Pair:
    ours, name = a.tensor(found.address), resolve(a.catalogue, found.name)
    if found.name not in tensors or not isinstance(name, Resolved):
        raise _not_compared(found)
    fit = fitted(tensors[found.name], name.row, name.alias, tuple(ours.shape))
    if not isinstance(fit, Fitted):
        raise _not_compared(found)
    return Pair(ours, fit.tensor, a.visible(found.address))


def _counts(side: Recorded, found: Difference) -> set[str]:
    return {side.catalogue.axes[symbol].counts.value for symbol in side.catalogue.row(found.address.site).shape}


def _not_compared(found: Difference) -> InvalidInput:
    return InvalidInput(f"{found.name} was not compared.", hint=found.note)
