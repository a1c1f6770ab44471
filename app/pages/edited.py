"""That a run was changed on purpose, and how: what every page of such a trace says of it."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.links import compare_url, tensor_url, trace_url
from app.pages.numbers import short
from provenance.axes import Counts
from provenance.edits import Edit
from provenance.errors import UnknownModel, UnsupportedCheckpoint
from provenance.names import Address
from provenance.trace import Trace


@dataclass(frozen=True, slots=True)
class EditLink:
    """An edit as its text, the page of the tensor that it changes, and that tensor's title."""

    text: str
    url: str
    title: str


@dataclass(frozen=True, slots=True)
class Edited:
    """The edits of a trace, and the run without them.

    `here` are those of the tensor that the page shows, `edits` the others. Where the run without them is not stored,
    `original_url` and `compare_url` are empty.
    """

    edits: tuple[EditLink, ...]
    here: tuple[str, ...]
    trace_url: str
    original_url: str
    original: str
    compare_url: str


@dataclass(frozen=True, slots=True)
class ChangedRun:
    """A run of the same prompt with edits."""

    url: str
    id: str
    edits: tuple[str, ...]
    compare_url: str


def edited_of(explorer: Explorer, trace: Trace, address: Address | None = None) -> Edited | None:
    """The edits of a trace, those of one tensor set apart; None where it has none."""
    edits = trace.recipe.edits
    if not edits:
        return None
    original = trace.recipe.unedited.id
    stored = original in explorer.store
    return Edited(
        edits=tuple(_link(explorer, trace, edit) for edit in edits if not (address and edit.covers(address))),
        here=tuple(str(edit) for edit in edits if address and edit.covers(address)),
        trace_url=trace_url(trace.id),
        original_url=trace_url(original) if stored else "",
        original=original,
        compare_url=compare_url(original, trace.id) if stored else "",
    )


def changed_runs(explorer: Explorer, trace: Trace) -> tuple[ChangedRun, ...]:
    """The stored runs that are this one with edits, the newest first."""
    if trace.recipe.edits:
        return ()
    recipes = [found.record.recipe for found in explorer.store.list() if found.record and found.record.recipe.edits]
    mine = [recipe for recipe in recipes if recipe.unedited.id == trace.id]
    return tuple(
        ChangedRun(
            trace_url(recipe.id),
            recipe.id,
            tuple(short(str(edit), 120) for edit in recipe.edits),
            compare_url(trace.id, recipe.id),
        )
        for recipe in mine
    )


def changed_output(explorer: Explorer, trace: Trace) -> tuple[str, ...]:
    """The edits that act where the residual stream becomes logits: the model's own output is without them."""
    if not trace.recipe.edits:
        return ()
    try:
        return tuple(map(str, explorer.engine.output_edits(trace)))
    except (UnknownModel, UnsupportedCheckpoint):
        return ()


def _link(explorer: Explorer, trace: Trace, edit: Edit) -> EditLink:
    row = explorer.catalogue(trace).row(edit.address.site)
    first = next((n for n in range(trace.last_step + 1) if row.steps.cover(n)), 0)
    step = first if edit.step is None else edit.step
    heads = [pick.indices for pick in edit.picks if pick.axis == Counts.HEAD]
    head = heads[0][0] if heads and heads[0] else None
    return EditLink(str(edit), tensor_url(trace.id, Address.parse(f"{edit.place}@{step}"), head), row.title)
