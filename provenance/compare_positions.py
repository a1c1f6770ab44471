"""Two traces position by position: what one computed in its prefill against what the other did in decode steps.

A place's rows of the common positions are put together to one tensor a side, so that its figures are
those of the place. Axes of a row: T the token axis, S the key axis; n common positions.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from provenance.axes import Counts
from provenance.catalogue import Intermediate, Kind
from provenance.comparison import Recorded, by_segment
from provenance.difference import Difference, Status, difference
from provenance.names import Address

_CELLS_AT_ONCE = 1 << 22


def common_positions(a: Recorded, b: Recorded) -> int:
    """How many positions from the start both sides have run with the same tokens, or the same vectors."""
    number = 0
    if _seed(a) != _seed(b):
        return number
    for one, other in zip(run_ids(a), run_ids(b), strict=False):
        if one != other:
            break
        number += 1
    return number


def _seed(side: Recorded) -> int | None:
    """What the numbers of a side's vectors point into; None where they are tokens."""
    drawn = side.trace.recipe.drawn
    return drawn.seed if drawn else None


def run_ids(side: Recorded) -> tuple[int, ...]:
    """The tokens that a trace has run: the prompt's, then one of each decode step."""
    trace = side.trace
    return tuple(token.id for step in range(trace.last_step + 1) for token in trace.tokens_of(step))


def by_positions(
    a: Recorded, b: Recorded, n: int, relative: float | None, tell: Callable[[Address], None]
) -> Iterator[Difference]:
    """The difference of every place that both sides have, over their first n positions.

    The address is that of step 0; in `first` the token axis counts positions of the whole sequence.
    """
    theirs = set(b.order(0))
    shared = tuple(address for address in a.order(0) if address in theirs)
    for addresses in by_segment(shared):
        one, other = _Side(a, n), _Side(b, n)
        one.read_steps(addresses)
        other.read_steps(addresses)
        for address in addresses:
            row = a.catalogue.row(address.site)
            if row.kind is Kind.PARAMETER:
                found = difference(address, a.tensor(address), b.tensor(address), relative=relative)
            elif n and _comparable(row, a) and _comparable(b.catalogue.row(address.site), b):
                found = _compare(one, other, address, relative)
            else:
                continue
            tell(address)
            yield found


def both_at_positions(a: Recorded, b: Recorded, n: int, address: Address) -> tuple[Tensor, Tensor, Tensor | None]:
    """A place of both sides over their first n positions, and which of its cells count; None for all."""
    sides = [_Side(a, n), _Side(b, n)]
    for side in sides:
        side.read_steps((address,))
    one, other = (side.rows(address) for side in sides)
    return one, other, sides[0].seen(address, one.ndim)


def not_by_position(a: Recorded, b: Recorded) -> tuple[str, ...]:
    """Sites that are not compared by position: they have no axis of tokens, or count within a step."""
    found: dict[str, None] = {}
    for side in (a, b):
        for row in side.catalogue:
            step = 0 if row.steps.cover(0) else 1
            exists = step <= side.trace.last_step
            if exists and row.kind is not Kind.PARAMETER and not _comparable(row, side):
                found[row.site] = None
    return tuple(found)


def _comparable(row: Intermediate, side: Recorded) -> bool:
    by_token = _axis(row, side, Counts.TOKEN) is not None and row.kind is not Kind.PARAMETER
    return row.steps.cover(0) and by_token and row.site not in side.family.differ_by_split


def _axis(row: Intermediate, side: Recorded, counts: Counts) -> int | None:
    found = [n for n, symbol in enumerate(row.shape) if side.catalogue.axes[symbol].counts is counts]
    return found[0] if found else None


class _Side:
    """One side's rows of the first n positions, for the places of one segment."""

    def __init__(self, recorded: Recorded, n: int) -> None:
        self.recorded = recorded
        self.n = n
        self.prompt = len(recorded.trace.recipe.tokens)
        self.steps = range(1, n - self.prompt + 1)
        self._parts: Mapping[Address, list[Tensor]] = {}

    def read_steps(self, addresses: tuple[Address, ...]) -> None:
        """Read the decode steps' rows, one step after the other: each is replayed once."""
        rows = self.recorded.catalogue.rows
        wanted = {at: None for at in addresses if _comparable(rows[at.site], self.recorded)}
        wanted |= {mask: None for at in wanted if (mask := self._mask(at)) is not None}
        parts: dict[Address, list[Tensor]] = {at: [] for at in wanted}
        for step in self.steps:
            for at in wanted:
                if self.recorded.catalogue.row(at.site).steps.cover(step):
                    parts[at].append(self.recorded.tensor(Address(at.site, at.layer, step)).clone())
        self._parts = parts

    def rows(self, address: Address) -> Tensor:
        """A place over the first n positions; keys behind a position are zero."""
        row = self.recorded.catalogue.row(address.site)
        tokens, keys = _axis(row, self.recorded, Counts.TOKEN), _axis(row, self.recorded, Counts.KEY)
        assert tokens is not None
        tensor = self.recorded.tensor(address).narrow(tokens, 0, min(self.prompt, self.n))
        parts = [tensor, *self._parts[address]]
        if keys is not None:
            parts = [_to_length(part, keys, self.n) for part in parts]
        return torch.cat(parts, dim=tokens) if len(parts) > 1 else parts[0]

    def seen(self, address: Address, rank: int) -> Tensor | None:
        """Which cells of a place count: the keys up to each position, and of scores the visible ones."""
        row = self.recorded.catalogue.row(address.site)
        tokens, keys = _axis(row, self.recorded, Counts.TOKEN), _axis(row, self.recorded, Counts.KEY)
        if tokens is None or keys is None:
            return None
        shape = [1] * rank
        shape[tokens] = shape[keys] = self.n
        square = torch.ones(self.n, self.n, dtype=torch.bool).tril()
        seen = (square if tokens < keys else square.T).reshape(shape)
        mask = self._mask(address)
        return seen if mask is None else seen & self.rows(mask)

    def _mask(self, address: Address) -> Address | None:
        site = self.recorded.family.compared_where_visible.get(address.site)
        return None if site is None else Address(site, address.layer)

    def where(self, position: int) -> str:
        """Which step ran a position."""
        step = position - self.prompt + 1
        return f"decode step {step}" if step > 0 else "the prefill"


def _to_length(tensor: Tensor, axis: int, length: int) -> Tensor:
    size = tensor.shape[axis]
    if size >= length:
        return tensor.narrow(axis, 0, length)
    behind = tensor.ndim - 1 - axis
    return pad(tensor, [0, 0] * behind + [0, length - size])


def _compare(one: _Side, other: _Side, address: Address, relative: float | None) -> Difference:
    a, b = one.rows(address), other.rows(address)
    visible = one.seen(address, a.ndim)
    scale = one.recorded.scale(address)
    found = difference(address, a, b, visible=visible, relative=relative, scale=scale)
    if found.status in (Status.SAME, Status.UNFIT):
        return found
    tokens = _axis(one.recorded.catalogue.row(address.site), one.recorded, Counts.TOKEN)
    assert tokens is not None
    worst = _worst(a, b, visible, tokens)
    note = f"largest at position {worst} (A: {one.where(worst)}, B: {other.where(worst)})"
    return replace(found, note="; ".join(filter(None, (note, found.note))))


def _worst(a: Tensor, b: Tensor, visible: Tensor | None, tokens: int) -> int:
    """The position with the largest difference; what is finite on one side only counts as infinite."""
    if visible is not None:
        a, b = a.where(visible, 0), b.where(visible, 0)
    a, b = a.movedim(tokens, 0), b.movedim(tokens, 0)
    at_once = max(1, _CELLS_AT_ONCE * len(a) // max(1, a.numel()))
    largest = []
    for first in range(0, len(a), at_once):
        wide, theirs = a[first : first + at_once].double(), b[first : first + at_once].double()
        apart = (wide - theirs).abs().where(wide != theirs, 0.0).nan_to_num(nan=torch.inf)
        apart = apart.where(~(wide.isnan() & theirs.isnan()), 0.0)
        largest.append(apart.flatten(1).amax(dim=1))
    return int(torch.cat(largest).argmax())
