"""The page of a trace, and of the recording that is to become one."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.jobs import Job, State
from app.pages.frame import Frame, frame
from app.pages.groups import Section, sections_of
from app.pages.links import group_url, trace_url
from app.pages.numbers import Number, count, short
from app.pages.scope import Scope, step_name
from provenance.prompt import Token
from provenance.trace import Recipe, Trace

_MOST_CHIPS = 512
_MOST_ROWS = 128


@dataclass(frozen=True, slots=True)
class TokenView:
    """A token: its position in the sequence, its text, id and bytes, and where it came from."""

    position: int
    text: str
    id: int
    bytes: str
    origin: str


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of how a trace was made."""

    label: str
    text: str
    exact: str = ""
    code: bool = False


@dataclass(frozen=True, slots=True)
class StepLink:
    """A step of a trace, and the hierarchy as seen from it."""

    title: str
    tokens: str
    url: str


@dataclass(frozen=True, slots=True)
class TracePage:
    """A recorded trace. Of a long prompt the first tokens are shown, and `more_tokens` counts the rest;
    `table` shows fewer still."""

    frame: Frame
    id: str
    url: str
    text: str
    untrained: bool
    prompt: tuple[TokenView, ...]
    more_tokens: int
    table: tuple[TokenView, ...]
    table_left_out: int
    generated: tuple[TokenView, ...]
    facts: tuple[Fact, ...]
    steps: tuple[StepLink, ...]
    layers: int
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a recording is. `ended` is empty while it waits or runs."""

    id: str
    url: str
    state: str
    done: int
    total: int
    waiting: bool
    error: str


@dataclass(frozen=True, slots=True)
class ProgressPage:
    """A recording that waits, runs or has failed."""

    frame: Frame
    text: str
    model: str
    tokens: Number
    steps: int
    progress: Progress


def trace_page(explorer: Explorer, trace: Trace) -> TracePage:
    """The page of a stored trace."""
    scope = Scope.of(explorer, trace)
    recipe = trace.recipe
    prompt = tuple(_token(i, token, "prompt") for i, token in enumerate(recipe.prompt.tokens))
    generated = tuple(_chosen(len(prompt), step, token) for step, token in enumerate(trace.generated))
    table = (*prompt[:_MOST_ROWS], *generated)
    return TracePage(
        frame=frame(scope, f"Trace “{short(recipe.text or trace.id, 40)}”"),
        id=trace.id,
        url=trace_url(trace.id),
        text=short(recipe.text or "", 120),
        untrained=not recipe.model.trained,
        prompt=prompt[:_MOST_CHIPS],
        more_tokens=max(0, len(prompt) - _MOST_CHIPS),
        table=table,
        table_left_out=len(prompt) + len(generated) - len(table),
        generated=generated,
        facts=_facts(trace, recipe),
        steps=tuple(_step(scope, trace, step) for step in range(trace.last_step + 1)),
        layers=trace.layers,
        sections=sections_of(scope),
    )


def progress_page(explorer: Explorer, job: Job) -> ProgressPage:
    """The page of a recording that is not a trace yet."""
    recipe = job.recipe
    title = "The recording failed" if job.state is State.FAILED else "Recording"
    return ProgressPage(
        frame=frame(Scope.of(explorer), title),
        text=recipe.text or "",
        model=recipe.model.name,
        tokens=count(len(recipe.tokens)),
        steps=recipe.steps,
        progress=progress_of(job),
    )


def progress_of(job: Job) -> Progress:
    """How far a recording is."""
    return Progress(
        id=job.id,
        url=trace_url(job.id),
        state=job.state.value,
        done=job.done,
        total=job.total,
        waiting=job.state in (State.QUEUED, State.RUNNING),
        error=job.error,
    )


def _step(scope: Scope, trace: Trace, step: int) -> StepLink:
    text = "".join(token.text for token in trace.tokens_of(step)[:_MOST_ROWS])
    url = group_url(scope.catalogue.tree[0], trace.id, 0, step)
    return StepLink(step_name(step).capitalize(), text[:90] + "…" if len(text) > 90 else text, url)


def _chosen(prompt: int, step: int, token: Token) -> TokenView:
    return _token(prompt + step, token, f"chosen at the end of step {step}" if step else "chosen in the prefill")


def _token(position: int, token: Token, origin: str) -> TokenView:
    return TokenView(position, token.text, token.id, token.bytes.hex(" "), origin)


def _facts(trace: Trace, recipe: Recipe) -> tuple[Fact, ...]:
    model = recipe.model
    greedy = "0: the most likely token is taken, the seed is not used"
    config = ", ".join(f"{name} {value}" for name, value in model.config.items())
    sha256 = trace.record.tensors_sha256
    return (
        Fact("Model", f"{model.name} ({model.origin})"),
        Fact("Weights, SHA-256", model.weights_sha256[:16] + "…", model.weights_sha256, code=True),
        Fact("Configuration", config, code=True),
        Fact("Computed in", f"{model.dtype} on {recipe.device}, torch {recipe.torch}"),
        Fact("Threads", str(recipe.threads)),
        Fact("Temperature", f"{recipe.temperature:g}" if recipe.temperature else greedy),
        Fact("Seed", str(recipe.seed)),
        Fact("Recorded at", trace.record.created_at.replace("T", " ").replace("+00:00", " UTC")),
        Fact("Kept tensors", f"{count(trace.record.tensors_bytes).text} bytes"),
        Fact("Their SHA-256", sha256[:16] + "…", sha256, code=True),
        Fact("Trace id", trace.id, code=True),
    )
