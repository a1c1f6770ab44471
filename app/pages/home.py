"""The first page: what this is, the form that records a prompt, the traces, and where to start."""

from dataclasses import dataclass, replace

from app.explorer import EXAMPLE, Explorer
from app.pages.frame import Frame, frame
from app.pages.groups import Section, sections_of
from app.pages.links import lens_url, tensor_url, trace_url
from app.pages.numbers import short
from app.pages.scope import Link, Scope
from app.pages.traces import JobRow, TraceRow, job_rows, trace_row
from provenance.errors import (
    InvalidInput,
    InvalidPrompt,
    PromptTooLong,
    ProvenanceError,
    UnknownModel,
    UnsupportedCheckpoint,
)
from provenance.names import Address, is_layered
from provenance.store import Listed
from provenance.trace import Trace

_START = ("h.ln_1.out", "h.attn.scores", "h.attn.pattern", "h.resid_mid", "logits")
"""Sites to begin with, where the family has them."""

_MOST_TRACES = 6
DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True, slots=True)
class RecordForm:
    """The form as it was typed, and what is wrong with it: the field's name and a sentence.

    Token ids stand in the place of the prompt where there are any.
    """

    prompt: str = ""
    ids: str = ""
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
class HomePage:
    """The first page.

    `starts` lead into a trace where there is one, else to the architecture; `highlights` lead to what
    the default model's showcase names, once its trace is there.
    """

    frame: Frame
    form: RecordForm
    models: tuple[ModelChoice, ...]
    dtypes: tuple[str, ...]
    steps_limit: int
    jobs: tuple[JobRow, ...]
    traces: tuple[TraceRow, ...]
    all_traces: int
    start_text: str
    start_url: str
    lens_url: str
    untrained: bool
    highlights: tuple[Link, ...]
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
        jobs=job_rows(explorer),
        traces=tuple(trace_row(found) for found in listed[:_MOST_TRACES]),
        all_traces=len(listed),
        start_text=short(scope.trace.recipe.text or "token ids", 60) if scope.trace else "",
        start_url=trace_url(scope.trace.id) if scope.trace else "",
        lens_url=lens_url(scope.trace.id) if scope.trace else "",
        untrained=scope.trace is not None and not scope.trace.recipe.model.trained,
        highlights=_highlights(explorer, listed),
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


def ids_of(text: str) -> list[int]:
    """Typed token ids, apart by spaces, line ends or commas. Raises InvalidInput."""
    return [whole_number(part, "A token id") for part in text.replace(",", " ").split()]


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
            return "ids" if form.ids.strip() else "prompt"
        case UnknownModel() | UnsupportedCheckpoint():
            return "model"
    typed = {"ids": ids_of, "steps": _any_number, "seed": _any_number, "temperature": temperature_of}
    for field, parse in typed.items():
        try:
            parse(getattr(form, field))
        except InvalidInput:
            return field
    if form.dtype not in DTYPES:
        return "dtype"
    return "steps" if isinstance(problem, InvalidInput) else ""


def _any_number(text: str) -> int:
    return whole_number(text, "It")


def _example(explorer: Explorer, listed: tuple[Listed, ...]) -> Trace | None:
    """The example trace, or the newest that can be read; rather one that nobody changed."""
    family = explorer.catalogue().family
    good = [f for f in listed if f.record is not None and f.record.recipe.model.family == family]
    good.sort(key=_less_of_an_example)
    for found in good:
        try:
            return explorer.store.open(found.id)
        except ProvenanceError:
            continue
    return None


def _less_of_an_example(found: Listed) -> tuple[bool, bool]:
    assert found.record is not None
    return bool(found.record.recipe.edits), found.record.recipe.text != EXAMPLE


def _highlights(explorer: Explorer, listed: tuple[Listed, ...]) -> tuple[Link, ...]:
    """What the default model's showcase names, in the trace of its prompt; nothing before that is recorded."""
    showcase = explorer.showcase()
    for found in listed if showcase else ():
        recipe = found.record.recipe if found.record else None
        if not (showcase and recipe) or recipe.edits:
            continue
        if (recipe.text, recipe.model.name) == (showcase.prompt, explorer.settings.model):
            return tuple(
                Link(tensor_url(found.id, Address.parse(seen.address), seen.head), "", seen.title, seen.sentence)
                for seen in showcase.highlights
            )
    return ()


def _start(scope: Scope, site: str) -> Link:
    row = scope.catalogue.row(site)
    link = scope.link(row)
    place = "layer 0" if is_layered(site) and scope.trace else ""
    return Link(link.url, short(link.name, 30), link.title, place)
