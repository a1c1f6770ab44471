"""Recording into a store: a run, and for a run with edits the one without them first."""

from collections.abc import Callable

from torch import Tensor

from provenance.editing import patches_of
from provenance.models import Models
from provenance.names import Address
from provenance.recorder import Progress, record
from provenance.storage import Store
from provenance.trace import Recipe, Trace

Read = Callable[[str, Address], tuple[Trace, Tensor]]
"""Gives a stored trace by its id, with one of its tensors."""


def record_into(store: Store, models: Models, recipe: Recipe, read: Read, progress: Progress | None = None) -> None:
    """Run a recipe and store the trace. What edits did is seen beside the run without them: that comes along.

    Raises UnknownModel, InvalidInput for a patch that does not fit, and UnknownTrace where its source is gone.
    """
    tell = progress or (lambda done, total: None)
    if recipe.edits and recipe.unedited.id not in store:
        later = tell
        _record(store, models, recipe.unedited, read, lambda done, total: later(done, 2 * total))
        tell = lambda done, total: later(total + done, 2 * total)  # noqa: E731
    _record(store, models, recipe, read, tell)


def _record(store: Store, models: Models, recipe: Recipe, read: Read, progress: Progress) -> None:
    model = models.of(recipe)
    patches = patches_of(model.catalogue, recipe, read)
    ids, tensors = record(model, recipe, progress, patches)
    store.save(recipe, models.tokens(recipe.model.name, ids), tensors, patches)
