"""What the edits of a trace did: to the tensors they name, and to what the model predicts.

The edited run is compared with the same run without its edits. A decode step can be compared as long as
both runs have run the same tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from provenance.editing import Editor
from provenance.edits import Edit
from provenance.errors import InvalidInput
from provenance.lens import Candidate, Distribution, Position, distribution, position_of
from provenance.model import Model, Tap
from provenance.names import Address
from provenance.trace import Trace

_ROWS_AT_ONCE = 64
"""Rows of logits that are widened at one time: 26 MB in float64 for GPT-2's vocabulary."""

Read = Callable[[Trace, Address], Tensor]
"""Gives a tensor of a trace."""


@dataclass(frozen=True, slots=True)
class Touched:
    """What one edit did to its tensor in one step: cells that it chose, cells whose value it changed.

    `largest` is the largest change; it counts finite cells alone.
    """

    edit: Edit
    address: Address
    chosen: int
    changed: int
    largest: float


@dataclass(frozen=True, slots=True)
class Moved:
    """A token that is among the most likely of either run: what became of it."""

    id: int
    before: Candidate
    after: Candidate


@dataclass(frozen=True, slots=True)
class Shift:
    """The next token's distribution at a position, before and after the edits.

    `kl` is the divergence of the new distribution from the old one, D(before ‖ after), in nats; None where
    one of them is no distribution, and `problem` says why. `same` means that all logits are equal bit for bit.
    """

    position: Position
    kl: float | None
    same: bool
    moved: tuple[Moved, ...] = ()
    problem: str = ""

    @property
    def best_changed(self) -> bool:
        """Whether another token is the most likely one now."""
        before = [moved.id for moved in self.moved if moved.before.rank == 1]
        return before != [moved.id for moved in self.moved if moved.after.rank == 1]


@dataclass(frozen=True, slots=True)
class Effect:
    """All that the edits of a trace did. `shifts` has the last position of each step that can be compared.

    `along` is the divergence at every position that can be compared, in nats. `parted` is the first decode
    step that runs another token than the original; None where there is none.
    """

    original: str
    touched: tuple[Touched, ...]
    shifts: tuple[Shift, ...]
    along: tuple[float | None, ...]
    parted: int | None

    @property
    def none(self) -> str:
        """Why the edits have no effect, in a sentence; empty where they have one."""
        if not self.touched:
            return "No step of this run has the cells that the edits name, so nothing was changed."
        if not any(touched.changed for touched in self.touched):
            return "The chosen cells had these values before, so nothing was changed."
        if self.parted is None and all(shift.same for shift in self.shifts) and not any(self.along):
            return "The chosen cells were changed, but every logit is what it was: nothing computed after reads them."
        return ""


@torch.inference_mode()
def effect_of(model: Model, original: Trace, edited: Trace, read: Read, top: int = 5) -> Effect:
    """Compare an edited trace with its original. Raises InvalidInput where the two do not belong together."""
    if not edited.recipe.edits or edited.recipe.unedited.id != original.id:
        raise InvalidInput(f"Trace {edited.id[:12]} is no edited run of trace {original.id[:12]}.")
    torch.set_num_threads(edited.recipe.threads)
    parted = next((n for n in range(1, edited.last_step + 1) if _run(original, n) != _run(edited, n)), None)
    shifts: list[Shift] = []
    along: list[float | None] = []
    for step in range(edited.last_step + 1 if parted is None else parted):
        before, after = (read(trace, Address("logits", None, step))[0] for trace in (original, edited))
        along += _along(before, after)
        shifts.append(_shift(position_of(edited, step), before[-1], after[-1], top))
    return Effect(original.id, tuple(_touched(model, edited)), tuple(shifts), tuple(along), parted)


def _run(trace: Trace, step: int) -> Sequence[int]:
    return [token.id for token in trace.tokens_of(step)]


def _touched(model: Model, trace: Trace) -> list[Touched]:
    """Run the edited segments again, and look at each tensor just before and after each of its edits."""
    whole = Editor.of(model.catalogue, trace.recipe, trace.patches)
    editors = [whole.alone(number) for number in range(len(trace.recipe.edits))]
    found: list[Touched] = []
    for step in range(trace.last_step + 1):
        segments = {model.segment_of(edit.address) for edit in trace.recipe.edits if edit.step in (None, step)}
        for segment in [segment for segment in model.segments if segment in segments]:
            seen: list[Touched] = []
            model.run(segment, trace.kept(step), trace.earlier(step), _watch(editors, step, seen))
            # A table that two segments read counts where it belongs.
            found += [touched for touched in seen if model.segment_of(touched.address) == segment]
    return found


def _watch(editors: Sequence[Editor], step: int, seen: list[Touched]) -> Tap:
    def tap(place: str, tensor: Tensor) -> Tensor:
        address = Address.parse(f"{place}@{step}")
        for editor in editors:
            if chosen := editor.chosen(address, tensor):
                after = editor.changed(address, tensor)
                seen.append(_compared(editor.edits[0], address, chosen, tensor, after))
                tensor = after
        return tensor

    return tap


def _compared(edit: Edit, address: Address, chosen: int, before: Tensor, after: Tensor) -> Touched:
    apart = (after.double() - before.double()).abs()
    differ = (after != before) & ~(after.isnan() & before.isnan())
    finite = apart[apart.isfinite()]
    return Touched(edit, address, chosen, int(differ.sum()), float(finite.max()) if finite.numel() else 0.0)


def _shift(position: Position, before: Tensor, after: Tensor, top: int) -> Shift:
    old, new = distribution(before, top), distribution(after, top)
    problem = old.problem or new.problem
    if problem:
        return Shift(position, None, torch.equal(before, after), problem=problem)
    ids = dict.fromkeys([*(c.id for c in old.top), *(c.id for c in new.top)])
    moved = tuple(Moved(id, _candidate(before, old, id), _candidate(after, new, id)) for id in ids)
    return Shift(position, _along(before[None], after[None])[0], torch.equal(before, after), moved)


def _candidate(logits: Tensor, known: Distribution, id: int) -> Candidate:
    found = next((candidate for candidate in known.top if candidate.id == id), None)
    if found is None:
        found = distribution(logits, 1, id).watched
    assert found is not None
    return found


def _along(before: Tensor, after: Tensor) -> list[float | None]:
    """D(before ‖ after) of each row of logits (P, V), in nats and float64; None where a row is no distribution."""
    found: list[float | None] = []
    for first in range(0, len(before), _ROWS_AT_ONCE):
        part = slice(first, first + _ROWS_AT_ONCE)
        old, new = (torch.log_softmax(logits[part].double(), dim=-1) for logits in (before, after))
        weighted = torch.where(old.exp() > 0, old.exp() * (old - new), 0.0).sum(-1)
        found += [max(0.0, kl) if kl == kl else None for kl in weighted.tolist()]
    return found
