"""The first page: what this is, the form that records a prompt, the traces, and where to start."""

from dataclasses import dataclass, replace

from app.explorer import EXAMPLE, Explorer
from app.pages.frame import Frame, frame
from app.pages.groups import Section, sections_of
from app.pages.links import trace_url
from app.pages.numbers import short
from app.pages.scope import Link, Scope
from app.pages.trace import Progress, progress_of
from provenance.errors import (
    InvalidInput,
    InvalidPrompt,
    PromptTooLong,
    ProvenanceError,
    UnknownModel,
    UnsupportedCheckpoint,
)
from provenance.names import is_layered
from provenance.store import Listed
from provenance.trace import Trace

_START = ("h.ln_1.out", "h.attn.pattern", "logits")
"""Sites to begin with, where the family has them."""

_MOST_TRACES = 20
DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True, slots=True)
class RecordForm:
    """The form as it was typed, and what is wrong with it: the field's name and a sentence."""

    prompt: str = ""
    steps: str = "3"
    model: str = ""
    dtype: str = "float32"
    temperature: str = "0"
    seed: str = "0"
    wrong: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model to choose."""

    name: str
    description: str
    available: bool


@dataclass(frozen=True, slots=True)
class TraceRow:
    """A trace in the list; `problem` says why it cannot be read."""

    id: str
    url: str
    text: str
    model: str
    untrained: bool
    tokens: int
    steps: int
    created_at: str
    problem: str


@dataclass(frozen=True, slots=True)
class JobRow:
    """A recording that waits or runs."""

    text: str
    progress: Progress


@dataclass(frozen=True, slots=True)
class HomePage:
    """The first page. `starts` lead into a trace where there is one, else to the architecture."""

    frame: Frame
    form: RecordForm
    models: tuple[ModelChoice, ...]
    dtypes: tuple[str, ...]
    steps_limit: int
    jobs: tuple[JobRow, ...]
    traces: tuple[TraceRow, ...]
    more_traces: int
    start_text: str
    starts: tuple[Link, ...]
    sections: tuple[Section, ...]
    count: int


def home_page(explorer: Explorer, form: RecordForm | None = None) -> HomePage:
    """The first page, with the form as given."""
    listed = explorer.store.list()
    scope = Scope.of(explorer, _example(explorer, listed))
    bare = Scope.of(explorer)
    title = "Tensor Provenance" if form is None else "Record a prompt"
    form = form or RecordForm(prompt=EXAMPLE)
    return HomePage(
        frame=frame(bare, title),
        form=form if form.model else replace(form, model=explorer.settings.model),
        models=tuple(ModelChoice(s.name, s.description, s.available) for s in explorer.models.sources()),
        dtypes=DTYPES,
        steps_limit=explorer.settings.steps_limit,
        jobs=tuple(
            JobRow(short(job.recipe.text or "token ids"), progress_of(job)) for job in explorer.jobs.waiting()
        ),
        traces=tuple(_row(found) for found in listed[:_MOST_TRACES]),
        more_traces=max(0, len(listed) - _MOST_TRACES),
        start_text=short(scope.trace.recipe.text or "token ids", 60) if scope.trace else "",
        starts=tuple(_start(scope, site) for site in _START if site in scope.catalogue.rows),
        sections=sections_of(bare),
        count=len(bare.catalogue.rows),
    )


def refused(form: RecordForm, problem: ProvenanceError) -> RecordForm:
    """The form with a problem, at the field that it is about."""
    return replace(form, wrong=_field(form, problem), message=str(problem))


def whole_number(text: str, name: str) -> int:
    """A typed whole number of at least 0. Raises InvalidInput."""
    if not (text.strip().isascii() and text.strip().isdigit()) or len(text.strip()) > 18:
        raise InvalidInput(f"{name} must be a whole number from 0 on, not {text[:40]!r}.")
    return int(text)


def temperature_of(text: str) -> float:
    """A typed temperature. Raises InvalidInput."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise InvalidInput(f"The temperature must be a number from 0 to 100, not {text[:40]!r}.")
    return value


def _field(form: RecordForm, problem: ProvenanceError) -> str:
    match problem:
        case InvalidPrompt() | PromptTooLong():
            return "prompt"
        case UnknownModel() | UnsupportedCheckpoint():
            return "model"
    for field, parse in (("steps", whole_number), ("seed", whole_number)):
        try:
            parse(getattr(form, field), field)
        except InvalidInput:
            return field
    try:
        temperature_of(form.temperature)
    except InvalidInput:
        return "temperature"
    if form.dtype not in DTYPES:
        return "dtype"
    return "steps" if isinstance(problem, InvalidInput) else ""


def _example(explorer: Explorer, listed: tuple[Listed, ...]) -> Trace | None:
    """The example trace, or the newest that can be read."""
    family = explorer.catalogue().family
    good = [f for f in listed if f.record is not None and f.record.recipe.model.family == family]
    good.sort(key=lambda found: found.record is not None and found.record.recipe.text != EXAMPLE)
    for found in good:
        try:
            return explorer.store.open(found.id)
        except ProvenanceError:
            continue
    return None


def _start(scope: Scope, site: str) -> Link:
    row = scope.catalogue.row(site)
    link = scope.link(row)
    place = "layer 0" if is_layered(site) and scope.trace else ""
    return Link(link.url, link.name, link.title, place)


def _row(found: Listed) -> TraceRow:
    if found.record is None:
        return TraceRow(found.id, trace_url(found.id), "", "", False, 0, 0, "", found.problem)
    recipe = found.record.recipe
    return TraceRow(
        id=found.id,
        url=trace_url(found.id),
        text=short(recipe.text or "token ids"),
        model=recipe.model.name,
        untrained=not recipe.model.trained,
        tokens=len(recipe.tokens),
        steps=recipe.steps,
        created_at=found.record.created_at.replace("T", " ").replace("+00:00", " UTC"),
        problem="",
    )
