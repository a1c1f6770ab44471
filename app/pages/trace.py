"""The page of a trace: its tokens, what the model predicts at each, its steps, how it was made."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.edited import ChangedRun, Edited, changed_runs, edited_of
from app.pages.effect import EffectView, effect_view
from app.pages.film import Film, film_of
from app.pages.frame import Frame, frame
from app.pages.groups import Section, sections_of
from app.pages.lens import LensTable, NoLens, lens_column
from app.pages.lessons.back import lesson_of_trace
from app.pages.links import attribution_url, lens_url, tensor_url, trace_url
from app.pages.numbers import count, short
from app.pages.predictions import Prediction, prediction_of
from app.pages.scope import Link, Scope, step_name
from app.pages.tokens import Tokens, tokens_of
from provenance.inputs import said
from provenance.lens import Position
from provenance.names import Address, is_layered
from provenance.trace import Trace


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of how a trace was made."""

    label: str
    text: str
    exact: str = ""
    code: bool = False


@dataclass(frozen=True, slots=True)
class TracePage:
    """A recorded trace, looked at from one position. `lens` is None where the prediction says why.

    A trace of a model that predicts nothing has no film, prediction and lens; `starts` are tensors to begin with.
    `lesson` is a chapter of the lessons in the state that the run is of, where it is of one.
    """

    frame: Frame
    id: str
    url: str
    text: str
    untrained: bool
    edited: Edited | None
    effect: EffectView | None
    changed_runs: tuple[ChangedRun, ...]
    position: int
    step: str
    vectors: str
    tokens: Tokens
    starts: tuple[Link, ...]
    film: Film | None
    prediction: Prediction | None
    logits_url: str
    next_url: str
    attribution_url: str
    lens: LensTable | None
    lens_url: str
    facts: tuple[Fact, ...]
    lesson: Link | None
    layers: int
    sections: tuple[Section, ...]


def trace_page(explorer: Explorer, trace: Trace, at: Position) -> TracePage:
    """The page of a stored trace, at one of its positions."""
    scope = Scope.of(explorer, trace, 0, at.step)
    predicts, recipe = scope.outline.predicts, trace.recipe
    lens = lens_column(explorer, trace, at) if predicts else None
    where = f", position {at.number}" if predicts else ""
    return TracePage(
        frame=frame(scope, f"Trace {said(recipe, 40)}{where}"),
        id=trace.id,
        url=trace_url(trace.id),
        text=said(recipe, 120),
        untrained=not trace.recipe.model.trained,
        edited=edited_of(explorer, trace),
        effect=effect_view(explorer, trace) if predicts else None,
        changed_runs=changed_runs(explorer, trace),
        position=at.number,
        step=step_name(at.step),
        vectors=_vectors(trace),
        tokens=tokens_of(trace, at),
        starts=starts_of(scope),
        film=film_of(explorer, trace, at) if predicts else None,
        prediction=prediction_of(explorer, trace, at) if predicts else None,
        logits_url=tensor_url(trace.id, Address("logits", None, at.step)),
        next_url=f"/api{trace_url(trace.id)}/next?position={at.number}",
        attribution_url=attribution_url(trace.id, at.number),
        lens=None if isinstance(lens, NoLens) else lens,
        lens_url=lens_url(trace.id, at.number),
        facts=_facts(trace),
        lesson=lesson_of_trace(explorer, trace),
        layers=trace.layers,
        sections=sections_of(scope),
    )


def starts_of(scope: Scope) -> tuple[Link, ...]:
    """The tensors that the family names to begin with, where the trace has them."""
    rows = [scope.catalogue.rows[site] for site in scope.outline.start if site in scope.catalogue.rows]
    links = [scope.link(row) for row in rows]
    return tuple(
        Link(link.url, short(link.name, 30), link.title, "layer 0" if is_layered(row.site) and scope.trace else "")
        for row, link in zip(rows, links, strict=True)
    )


def _vectors(trace: Trace) -> str:
    """What a run without a text read, in a sentence; empty where it read tokens."""
    drawn = trace.recipe.drawn
    if drawn is None:
        return ""
    entries = f"{drawn.batch} batch entries, each with vectors of its own" if drawn.batch > 1 else "one batch entry"
    return (
        f"There is no text: at each position stands a vector by its number, drawn from a normal distribution with "
        f"seed {drawn.seed}, in {entries}."
    )


def _facts(trace: Trace) -> tuple[Fact, ...]:
    recipe = trace.recipe
    model = recipe.model
    greedy = "0: the most likely token is taken, the seed is not used"
    if recipe.drawn is None:
        chosen = (
            Fact("Temperature", f"{recipe.temperature:g}" if recipe.temperature else greedy),
            Fact("Seed", str(recipe.seed)),
        )
    else:
        chosen = (Fact("Batch", str(recipe.drawn.batch)), Fact("Seed of the vectors", str(recipe.drawn.seed)))
    config = ", ".join(f"{name} {value}" for name, value in model.config.items())
    sha256 = trace.record.tensors_sha256
    return (
        Fact("Model", f"{model.name} ({model.origin})"),
        Fact("Weights, SHA-256", model.weights_sha256[:16] + "…", model.weights_sha256, code=True),
        Fact("Configuration", config, code=True),
        Fact("Computed in", f"{model.dtype} on {recipe.device}, torch {recipe.torch}"),
        Fact("Threads", str(recipe.threads)),
        *chosen,
        Fact("Recorded at", trace.record.created_at.replace("T", " ").replace("+00:00", " UTC")),
        Fact("Kept tensors", f"{count(trace.record.tensors_bytes).text} bytes"),
        Fact("Their SHA-256", sha256[:16] + "…", sha256, code=True),
        Fact("Trace id", trace.id, code=True),
    )
