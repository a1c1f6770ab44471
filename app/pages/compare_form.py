"""The form of a comparison: two traces, or a trace and a file of tensors."""

from dataclasses import dataclass, replace

from app.comparing import FILE
from app.explorer import Explorer
from app.pages.frame import Frame, frame
from app.pages.numbers import plural, short
from app.pages.scope import Scope
from provenance.errors import InvalidInput, NotFound, ProvenanceError
from provenance.inputs import said
from provenance.store import Listed
from provenance.trace import Trace

LARGEST_TOLERANCE = 1.0


@dataclass(frozen=True, slots=True)
class CompareForm:
    """The form as it was typed, and what is wrong with it: the field's name and a sentence.

    `b` is a trace's id, or an uploaded file's behind `file:`.
    """

    a: str = ""
    b: str = ""
    tolerance: str = ""
    how: str = ""
    wrong: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """Something to compare: its value in the form, and in words."""

    value: str
    text: str


@dataclass(frozen=True, slots=True)
class FormPage:
    """The form. `golden` is the command that writes a reference file, `limit` how large a file may be."""

    frame: Frame
    form: CompareForm
    traces: tuple[Choice, ...]
    files: tuple[Choice, ...]
    golden: str
    limit: str


def form_page(explorer: Explorer, form: CompareForm) -> FormPage:
    """The form, with what can be chosen in it."""
    listed = [found for found in explorer.store.list() if found.record is not None]
    known = {found.id for found in listed}
    chosen = replace(form, a=_full(explorer, form.a, known), b=_full(explorer, form.b, known))
    scope = Scope.of(explorer, _trace(explorer, chosen.a))
    sample = chosen.a or (listed[0].id if listed else "TRACE")
    return FormPage(
        frame=frame(scope, "Compare"),
        form=chosen,
        traces=tuple(Choice(found.id, trace_text(found)) for found in listed),
        files=files_of(explorer),
        golden=f"tensor-provenance golden {sample[:12]} --out reference.safetensors",
        limit=f"at most {explorer.settings.upload_limit_mib} MiB",
    )


def refused(form: CompareForm, problem: ProvenanceError, field: str = "") -> CompareForm:
    """The form with a problem, at the field that it is about."""
    return replace(form, wrong=field, message=str(problem))


def tolerance_of(text: str) -> float | None:
    """A typed relative tolerance; None where none is given. Raises InvalidInput."""
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= LARGEST_TOLERANCE:
        raise InvalidInput(
            f"The tolerance must be a number from 0 to 1, not {text[:40]!r}.",
            hint="It is relative to the largest value of the reference, such as 1e-5.",
        )
    return value


def check_choice(form: CompareForm) -> None:
    """Raise NotFound or InvalidInput where a side is missing, or both are the same."""
    if not form.a:
        raise InvalidInput("Trace A is missing.", hint="Choose the trace that is the reference.")
    if not form.b:
        raise InvalidInput("There is nothing to compare it with.", hint="Choose trace B, or hand in a file.")
    if form.a == form.b:
        raise InvalidInput("Both sides are the same trace.", hint="Choose another one.")


def missing_field(form: CompareForm) -> str:
    """The field that `check_choice` complains about."""
    return "b" if form.a else "a"


def trace_text(found: Listed) -> str:
    """A trace in one line, as the select boxes show it."""
    if found.record is None:
        return found.id[:12]
    recipe = found.record.recipe
    steps = f", {len(recipe.tokens)} + {recipe.steps} tokens" if recipe.steps else f", {len(recipe.tokens)} tokens"
    if recipe.drawn is not None:
        steps = ""  # what was read says how many
    edited = ", edited" if recipe.edits else ""
    dtype = "" if recipe.model.dtype == "float32" else f" {recipe.model.dtype}"
    return f"{said(recipe, 44)} · {recipe.model.name}{dtype}{steps}{edited} · {found.id[:8]}"


def _full(explorer: Explorer, id: str, known: set[str]) -> str:
    if not id or id in known or id.startswith(FILE):
        return id
    try:
        return explorer.store.full_id(id)
    except NotFound:
        return ""


def _trace(explorer: Explorer, id: str) -> Trace | None:
    try:
        return explorer.store.open(id) if id else None
    except ProvenanceError:
        return None


def files_of(explorer: Explorer) -> tuple[Choice, ...]:
    """The files that were handed in, the newest first."""
    return tuple(
        Choice(FILE + found.id, f"{short(found.name, 50)} · {plural(found.tensors, 'tensor')} · {found.id[:8]}")
        for found in explorer.uploads.list()
    )
