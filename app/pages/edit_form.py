"""The form that changes a tensor and runs on: what it offers, and the edit that it asks for."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.explorer import Explorer
from app.pages.compare_form import Choice, trace_text
from app.pages.edited import Edited, edited_of
from app.pages.frame import Frame, frame
from app.pages.links import edit_url, tensor_url, trace_url
from app.pages.scope import Scope, step_name
from app.pages.view import Asked
from provenance.axes import Counts
from provenance.catalogue import Intermediate
from provenance.editing import positions
from provenance.edits import is_fixed
from provenance.errors import InvalidInput, ProvenanceError, UnknownModel, UnsupportedCheckpoint
from provenance.inputs import said
from provenance.models import constants_of
from provenance.names import Address
from provenance.recorder import check_address
from provenance.selection import axis_names, check_picks, is_sequence, parse_picks
from provenance.trace import Trace

SET, SCALE, PATCH = "set", "scale", "patch"
EVERY, STEP = "every", "step"
_MOST_SOURCES = 50
_TYPED = re.compile(r"[\d:,\s]{0,400}", re.ASCII)


@dataclass(frozen=True, slots=True)
class AxisField:
    """An axis along which cells can be chosen; `range` says which indices there are in this step."""

    name: str
    meaning: str
    range: str
    typed: str


@dataclass(frozen=True, slots=True)
class Typed:
    """The form as it was typed. `picks` has a text for each offered axis, in their order."""

    picks: tuple[str, ...] = ()
    when: str = EVERY
    what: str = SET
    value: str = "0"
    source: str = ""


@dataclass(frozen=True, slots=True)
class EditForm:
    """The form for one tensor. `wrong` is the field that `message` complains about, empty for the whole.

    `step` is the step in words where there is more than one to choose from.
    """

    action: str
    at: str
    title: str
    axes: tuple[AxisField, ...]
    step: str
    typed: Typed
    sources: tuple[Choice, ...]
    already: int
    wrong: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class EditPage:
    """The form on a page of its own: as it comes back where what was typed cannot be done."""

    frame: Frame
    title: str
    address: str
    tensor_url: str
    trace_url: str
    trace_text: str
    edited: Edited | None
    edit: EditForm


class Refused(Exception):
    """What was typed cannot be done: the field, and what is wrong with it."""

    def __init__(self, field: str, problem: ProvenanceError) -> None:
        super().__init__(str(problem))
        self.field = field


def edit_form(
    explorer: Explorer, trace: Trace, address: Address, asked: Asked | None = None, typed: Typed | None = None
) -> EditForm | None:
    """The form for a tensor, at the head that is looked at; None where it cannot be changed here."""
    scope = Scope.of(explorer, trace, address.layer or 0, address.step)
    row = scope.catalogue.row(address.site)
    if is_fixed(row):
        return None
    try:
        shape = tuple(explorer.tensor(trace, address).shape)
    except (UnknownModel, UnsupportedCheckpoint):
        return None
    axes = _axes(scope, trace, row, address.step, shape)
    if typed is None:
        head = (asked or Asked()).at.get(Counts.HEAD)
        typed = Typed(tuple(str(head) if name == Counts.HEAD and head is not None else "" for name, _ in axes))
    texts = (*typed.picks, *[""] * len(axes))
    return EditForm(
        action=edit_url(trace.id),
        at=str(address),
        title=row.title,
        axes=tuple(replace(field, typed=text) for (_, field), text in zip(axes, texts, strict=False)),
        step=step_name(address.step) if len(scope.steps(row)) > 1 else "",
        typed=typed,
        sources=_sources(explorer, trace),
        already=len(trace.recipe.edits),
    )


def edit_page(explorer: Explorer, trace: Trace, address: Address, form: EditForm) -> EditPage:
    """The form alone."""
    scope = Scope.of(explorer, trace, address.layer or 0, address.step)
    row = scope.catalogue.row(address.site)
    title = f"Change {row.title}"
    return EditPage(
        frame=frame(scope, f"{title}, {address}", site=row.site),
        title=title,
        address=str(address),
        tensor_url=tensor_url(trace.id, address),
        trace_url=trace_url(trace.id),
        trace_text=said(trace.recipe),
        edited=edited_of(explorer, trace, address),
        edit=form,
    )


def edit_text(explorer: Explorer, trace: Trace, address: Address, typed: Typed) -> str:
    """The edit that a form asks for, as `parse_edit` reads it. Raises Refused with the field that is wrong."""
    catalogue = explorer.catalogue(trace)
    check_address(catalogue, trace, address)
    row = catalogue.row(address.site)
    shape = tuple(explorer.tensor(trace, address).shape)
    scope = Scope.of(explorer, trace, address.layer or 0, address.step)
    names = [name for name, _ in _axes(scope, trace, row, address.step, shape)]
    total = len(trace.recipe.tokens) + trace.last_step
    batch = trace.recipe.drawn.batch if trace.recipe.drawn else 1
    picks = []
    for number, (name, text) in enumerate(zip(names, typed.picks, strict=False)):
        if not text.strip():
            continue
        try:
            if not _TYPED.fullmatch(text):
                raise InvalidInput(f"{text[:40]!r} is no index.", hint="An index is 3, a range 0:9 (end left out).")
            read = parse_picks(catalogue, row, f"{name}={text}")
            check_picks(catalogue, row, read, constants_of(trace.recipe.model), total, batch)
        except ProvenanceError as problem:
            raise Refused(f"pick-{number}", problem) from None
        picks.append(str(read[0]))
    at = f"{address.place}@{address.step}" if typed.when == STEP else address.place
    chosen = f"[{', '.join(picks)}]" if picks else ""
    return f"{at}{chosen} {_value(explorer, typed)}"


def _value(explorer: Explorer, typed: Typed) -> str:
    if typed.what == PATCH:
        try:
            return f"= trace:{explorer.store.full_id(typed.source)}"
        except ProvenanceError as problem:
            wrong = problem if typed.source else InvalidInput("No trace is chosen to take the values from.")
            raise Refused("source", wrong) from None
    try:
        value = float(typed.value)
    except ValueError:
        value = float("nan")
    if value - value != 0:
        what = InvalidInput(f"{typed.value[:40]!r} is no finite number.", hint="Write for example 0, 0.5 or -1e-3.")
        raise Refused("value", what)
    return f"{'*=' if typed.what == SCALE else '='} {value!r}"


def _axes(
    scope: Scope, trace: Trace, row: Intermediate, step: int, shape: Sequence[int]
) -> list[tuple[str, AxisField]]:
    """The axes that have more than one index here, each with a name that no other has."""
    names = axis_names(scope.catalogue, row)
    found: list[tuple[str, AxisField]] = []
    for name, symbol, size in zip(names, row.shape, shape, strict=True):
        axis = scope.catalogue.axes[symbol]
        if size < 2 or names.count(name) > 1:
            continue
        run = positions(axis.counts, step, len(trace.recipe.tokens)) or range(size)
        what = "positions " if is_sequence(axis.counts) else ""
        found.append((name, AxisField(name, axis.meaning, f"{what}{run.start} to {run.stop - 1}", "")))
    return found


def _sources(explorer: Explorer, trace: Trace) -> tuple[Choice, ...]:
    """The other stored traces of the same model, the newest ones."""
    mine = (trace.recipe.model.family, trace.recipe.model.weights_sha256)
    found: list[Choice] = []
    for listed in explorer.store.list():
        if listed.record is None or listed.id == trace.id or len(found) == _MOST_SOURCES:
            continue
        model = listed.record.recipe.model
        if (model.family, model.weights_sha256) == mine:
            found.append(Choice(listed.id, trace_text(listed)))
    return tuple(found)
