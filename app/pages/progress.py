"""The page of a recording that waits, runs or has ended without a trace."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.jobs import CANCELLED, Job, State
from app.pages.frame import Frame, frame
from app.pages.links import trace_url
from app.pages.numbers import count, plural
from app.pages.scope import Scope, step_name
from provenance.inputs import unquoted
from provenance.trace import Recipe


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a recording is; `says` is that in words. `waiting` while it has not ended."""

    id: str
    url: str
    state: str
    done: int
    total: int
    waiting: bool
    cancelled: bool
    says: str
    error: str


@dataclass(frozen=True, slots=True)
class ProgressPage:
    """A recording that waits, runs or has failed. `original_url` is the run without its edits, if it is stored.

    `again` has what the form needs to record the same once more, by the names of its fields.
    """

    frame: Frame
    text: str
    model: str
    tokens: str
    progress: Progress
    again: tuple[tuple[str, str], ...]
    edits: tuple[str, ...]
    original_url: str


def progress_page(explorer: Explorer, job: Job) -> ProgressPage:
    """The page of a recording that is not a trace yet."""
    recipe = job.recipe
    progress = progress_of(job)
    title = "Recording" if progress.waiting else "Recording cancelled" if progress.cancelled else "Recording failed"
    return ProgressPage(
        frame=frame(Scope.of(explorer, family=recipe.model.family), title),
        text=recipe.text or unquoted(recipe),
        model=recipe.model.name,
        tokens=_length(recipe),
        progress=progress,
        edits=tuple(map(str, recipe.edits)),
        original_url=trace_url(recipe.unedited.id) if recipe.edits and recipe.unedited.id in explorer.store else "",
        again=tuple(_again(recipe).items()),
    )


def _length(recipe: Recipe) -> str:
    if recipe.drawn is not None:
        return plural(recipe.drawn.batch, "batch entry", "batch entries")
    return f"{count(len(recipe.tokens)).text} tokens, {plural(recipe.steps, 'decode step')}"


def _again(recipe: Recipe) -> dict[str, str]:
    ids = " ".join(str(token.id) for token in recipe.tokens)
    shared = {"model": recipe.model.name, "dtype": recipe.model.dtype}
    if recipe.drawn is not None:
        return shared | {"ids": ids, "batch": str(recipe.drawn.batch), "input_seed": str(recipe.drawn.seed)}
    return shared | {
        "prompt": recipe.text or "",
        # A text is tokenized to the same ids again; ids without a text are given as they are.
        "ids": "" if recipe.text else ids,
        "steps": str(recipe.steps),
        "temperature": repr(recipe.temperature),
        "seed": str(recipe.seed),
    }


def progress_of(job: Job) -> Progress:
    """How far a recording is."""
    return Progress(
        id=job.id,
        url=trace_url(job.id),
        state=job.state.value,
        done=job.done,
        total=job.total,
        waiting=job.state in (State.QUEUED, State.RUNNING),
        cancelled=job.error == CANCELLED,
        says=_says(job),
        error=job.error,
    )


def _says(job: Job) -> str:
    if job.state is State.QUEUED:
        if job.position < 2:
            return "Waiting for its turn, as the next." if job.position else "Waiting for its turn."
        return f"Waiting for its turn: number {job.position} in the queue."
    if job.state is State.FAILED:
        return "Cancelled." if job.error == CANCELLED else "Failed."
    if job.state is State.DONE:
        return "Recorded."
    if not job.total:
        return "Loading the model."
    if job.done >= job.total:
        return f"All {job.total} parts have run; the trace is being written."
    if job.recipe.edits:
        # Where the run without them is recorded first, the parts of both are counted.
        return f"{job.done} of {job.total} parts of the model have run"
    parts = job.total // (job.recipe.steps + 1)
    step, part = divmod(job.done, parts)
    where = step_name(step).capitalize() if not step else f"Decode {step_name(step)} of {job.recipe.steps}"
    return f"{where}, part {part + 1} of {parts} of the model ({job.done} of {job.total} parts done)"
