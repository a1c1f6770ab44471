"""Carrying out edits: the tap that changes tensors while a model runs.

The same tap works at recording and at every replay, so that an edited trace gives back all of its
tensors bit for bit. What a patch takes from another trace is kept in the trace itself.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from provenance.axes import Counts
from provenance.catalogue import Catalogue, Intermediate
from provenance.edits import Action, Edit
from provenance.errors import InvalidInput
from provenance.model import Tap
from provenance.names import Address
from provenance.selection import axis_names
from provenance.trace import Recipe, Trace

Index = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Editor:
    """The edits of a run. `start` is the number of the prompt's tokens; `patches` the cells to put in."""

    catalogue: Catalogue
    edits: tuple[Edit, ...]
    start: int
    patches: Mapping[str, Tensor]

    @classmethod
    def of(cls, catalogue: Catalogue, recipe: Recipe, patches: Mapping[str, Tensor]) -> "Editor":
        """The editor of a recipe."""
        return cls(catalogue, recipe.edits, len(recipe.tokens), patches)

    def tap(self, step: int, then: Tap | None = None) -> Tap | None:
        """A tap that changes the tensors of one step, and hands them on to another tap."""
        if not self.edits:
            return then
        named = {edit.place for edit in self.edits if edit.step in (None, step)}

        def change(place: str, tensor: Tensor) -> Tensor:
            if place in named:
                tensor = self.changed(Address.parse(f"{place}@{step}"), tensor)
            return then(place, tensor) if then else tensor

        return change

    def changed(self, address: Address, tensor: Tensor) -> Tensor:
        """A tensor after all edits that name it; the given one is left as it is."""
        row = self.catalogue.row(address.site)
        for number, edit in enumerate(self.edits):
            if not edit.covers(address):
                continue
            index = cells(self.catalogue, row, edit, address.step, self.start, tensor.shape)
            chosen = tensor[index]
            if not chosen.numel():
                continue
            tensor = tensor.clone()
            match edit.action:
                case Action.SET:
                    # Through a tensor, since a number over the dtype's largest is refused; so it is infinite.
                    tensor[index] = torch.tensor(edit.value, dtype=torch.float64).to(tensor.dtype)
                case Action.SCALE:
                    tensor[index] = chosen * edit.value
                case Action.PATCH:
                    tensor[index] = _fitting(self.patches[patch_key(number, address.step)], chosen, edit)
        return tensor

    def alone(self, number: int) -> "Editor":
        """The editor of one of the edits."""
        own = {key.partition("@")[2]: cells for key, cells in self.patches.items() if key.startswith(f"{number}@")}
        patches = {f"0@{step}": cells for step, cells in own.items()}
        return Editor(self.catalogue, (self.edits[number],), self.start, patches)

    def chosen(self, address: Address, tensor: Tensor) -> int:
        """How many cells of a tensor the edits choose, each edit counted for itself."""
        row = self.catalogue.row(address.site)
        covering = [edit for edit in self.edits if edit.covers(address)]
        found = [cells(self.catalogue, row, edit, address.step, self.start, tensor.shape) for edit in covering]
        return sum(math.prod(part.numel() for part in index) for index in found)


def patch_key(number: int, step: int) -> str:
    """What a trace calls the cells that its edit of that number puts in at a step."""
    return f"{number}@{step}"


def cells(catalogue: Catalogue, row: Intermediate, edit: Edit, step: int, start: int, shape: Sequence[int]) -> Index:
    """The chosen cells of a tensor of one step, as an index for every axis.

    `start` is the number of the prompt's tokens. Empty where the step runs none of the chosen positions.
    """
    chosen = [list(range(size)) for size in shape]
    names = axis_names(catalogue, row)
    for pick in edit.picks:
        at = names.index(pick.axis)
        run = positions(catalogue.axes[row.shape[at]].counts, step, start) or range(shape[at])
        chosen[at] = [index - run.start for index in pick.indices if index in run]
    return tuple(
        torch.tensor(indices, dtype=torch.long).view([-1 if other == at else 1 for other in range(len(shape))])
        for at, indices in enumerate(chosen)
    )


def positions(counts: Counts, step: int, start: int) -> range | None:
    """The positions of the whole sequence along an axis in one step; None where it counts something else."""
    match counts:
        case Counts.TOKEN:
            return range(start + step - 1, start + step) if step else range(start)
        case Counts.KEY:
            return range(start + step)
        case Counts.PAST:
            return range(start + step - 1 if step else 0)
    return None


def acts(catalogue: Catalogue, row: Intermediate, edit: Edit, step: int, start: int) -> bool:
    """Whether an edit changes anything in one step: the tensor exists there, and a chosen position is run."""
    if edit.step not in (None, step) or not row.steps.cover(step):
        return False
    names = axis_names(catalogue, row)
    for pick in edit.picks:
        run = positions(catalogue.axes[row.shape[names.index(pick.axis)]].counts, step, start)
        if run is not None and not any(index in run for index in pick.indices):
            return False
    return True


def patches_of(
    catalogue: Catalogue, recipe: Recipe, read: Callable[[str, Address], tuple[Trace, Tensor]]
) -> dict[str, Tensor]:
    """The cells that each patch of a recipe takes from its source, by `patch_key`.

    `read` gives a trace by its id with one of its tensors. Raises OutOfRange where the source lacks the
    tensor, and InvalidInput where the source has not run the chosen positions in that step.
    """
    found: dict[str, Tensor] = {}
    for number, edit in enumerate(recipe.edits):
        row = catalogue.row(edit.address.site)
        for step in range(recipe.steps + 1):
            if edit.source is None or not acts(catalogue, row, edit, step, len(recipe.tokens)):
                continue
            address = Address.parse(f"{edit.place}@{step}")
            trace, tensor = read(edit.source, address)
            found[patch_key(number, step)] = tensor[
                cells(catalogue, row, edit, step, len(trace.recipe.tokens), tensor.shape)
            ]
            if not found[patch_key(number, step)].numel():
                raise InvalidInput(
                    f"Trace {edit.source[:12]} does not run the positions of “{edit}” in step {step}.",
                    hint="Name positions that both runs have in the same step.",
                )
    return found


def _fitting(patch: Tensor, target: Tensor, edit: Edit) -> Tensor:
    if patch.shape != target.shape:
        raise InvalidInput(
            f"“{edit}” does not fit: its source has {list(patch.shape)} there, this run {list(target.shape)}.",
            hint="Choose positions that both have, such as [token=3].",
        )
    return patch.to(target.dtype)
