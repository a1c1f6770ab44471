"""The first page: what this is, the form that records a prompt, the traces, and where to start."""

from dataclasses import dataclass, replace

from app.explorer import EXAMPLE, Explorer
from app.pages.frame import Frame, frame
from app.pages.groups import Section, sections_of
from app.pages.links import lens_url, sites_url, tensor_url, trace_url, with_query
from app.pages.record_form import DTYPES, RecordForm, VectorsForm
from app.pages.scope import Link, Scope
from app.pages.trace import starts_of
from app.pages.traces import INPUTS, JobRow, TraceRow, input_of, job_rows, trace_row
from provenance.catalogues import OUTLINES, Reads
from provenance.errors import ProvenanceError
from provenance.inputs import said
from provenance.names import Address
from provenance.prompt import MOST_BATCH
from provenance.store import Listed
from provenance.trace import Trace

_MOST_TRACES = 6


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model to choose."""

    name: str
    description: str
    available: bool


@dataclass(frozen=True, slots=True)
class FamilyChoice:
    """A model family: all its tensors, how many there are, and whether the page shows them."""

    title: str
    url: str
    current: bool
    count: int


@dataclass(frozen=True, slots=True)
class Unlisted:
    """Traces that the first page does not list: what they read, how many there are, and where they are listed."""

    title: str
    url: str
    count: int


@dataclass(frozen=True, slots=True)
class HomePage:
    """The first page.

    `starts` lead into a trace where there is one, else to the architecture; `highlights` lead to what
    the default model's showcase names, once its trace is there. `lens_url` is empty where nothing is
    predicted. `families` has every model family with the number of its tensors. `traces` are the newest that
    read tokens, so that the many runs of the lessons hide nobody's own; `unlisted` counts the others.
    """

    frame: Frame
    families: tuple[FamilyChoice, ...]
    form: RecordForm
    models: tuple[ModelChoice, ...]
    vectors: VectorsForm
    vector_models: tuple[ModelChoice, ...]
    most_batch: int
    dtypes: tuple[str, ...]
    steps_limit: int
    jobs: tuple[JobRow, ...]
    traces: tuple[TraceRow, ...]
    all_traces: int
    unlisted: tuple[Unlisted, ...]
    start_text: str
    start_url: str
    lens_url: str
    untrained: bool
    highlights: tuple[Link, ...]
    starts: tuple[Link, ...]
    sections: tuple[Section, ...]
    count: int


def home_page(explorer: Explorer, form: RecordForm | None = None, vectors: VectorsForm | None = None) -> HomePage:
    """The first page, with the forms as given."""
    listed = explorer.store.list()
    scope = Scope.of(explorer, _example(explorer, listed))
    bare = Scope.of(explorer, family=scope.family)
    title = "Tensor Provenance"
    if form or vectors:
        title = "Record a prompt" if form else "Record seeded vectors"
    form = form or RecordForm(prompt=EXAMPLE)
    vectors = vectors or VectorsForm()
    offered = _models(explorer, Reads.VECTORS)
    usual = offered[0].name if offered else ""
    return HomePage(
        frame=frame(bare, title),
        families=tuple(
            FamilyChoice(each.title, sites_url(family), family == scope.family, len(each.catalogue.rows))
            for family, each in OUTLINES.items()
        ),
        form=form if form.model else replace(form, model=explorer.settings.model),
        models=_models(explorer, Reads.TOKENS),
        vectors=vectors if vectors.model else replace(vectors, model=usual),
        vector_models=offered,
        most_batch=MOST_BATCH,
        dtypes=DTYPES,
        steps_limit=explorer.settings.steps_limit,
        jobs=job_rows(explorer),
        traces=tuple(trace_row(found) for found in _shown(listed)[:_MOST_TRACES]),
        all_traces=len(listed),
        unlisted=_unlisted(listed),
        start_text=said(scope.trace.recipe) if scope.trace else "",
        start_url=trace_url(scope.trace.id) if scope.trace else "",
        lens_url=lens_url(scope.trace.id) if scope.trace and scope.outline.predicts else "",
        untrained=scope.trace is not None and not scope.trace.recipe.model.trained,
        highlights=_highlights(explorer, listed),
        starts=starts_of(scope),
        sections=sections_of(bare),
        count=len(bare.catalogue.rows),
    )


def _shown(listed: tuple[Listed, ...]) -> tuple[Listed, ...]:
    """The traces that the page lists: those that read tokens, or all where none did."""
    others = [found for found in listed if found.record is None or input_of(found.record.recipe) == "tokens"]
    return tuple(others) if any(found.record for found in others) else listed


def _unlisted(listed: tuple[Listed, ...]) -> tuple[Unlisted, ...]:
    """How many of the other traces read what."""
    shown = {found.id for found in _shown(listed)}
    read = [input_of(found.record.recipe) for found in listed if found.record and found.id not in shown]
    return tuple(
        Unlisted(title, with_query("/traces", input=input), read.count(input))
        for input, title in INPUTS.items()
        if input in read
    )


def _models(explorer: Explorer, reads: Reads) -> tuple[ModelChoice, ...]:
    """The models on offer that read text, or vectors."""
    return tuple(
        ModelChoice(source.name, source.description, source.available)
        for source in explorer.models.sources()
        if OUTLINES[source.family].reads is reads
    )


def _example(explorer: Explorer, listed: tuple[Listed, ...]) -> Trace | None:
    """The example trace, or the newest that can be read; rather one of the first family that nobody changed.

    The default model's comes before another's: what readers record does not move where readers start.
    """
    first, model = explorer.catalogue().family, explorer.settings.model
    good = sorted(
        (f for f in listed if f.record is not None), key=lambda found: _less_of_an_example(found, first, model)
    )
    for found in good:
        try:
            return explorer.store.open(found.id)
        except ProvenanceError:
            continue
    return None


def _less_of_an_example(found: Listed, family: str, model: str) -> tuple[bool, bool, bool, bool]:
    assert found.record is not None
    recipe = found.record.recipe
    return recipe.model.family != family, bool(recipe.edits), recipe.text != EXAMPLE, recipe.model.name != model


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
