"""The ways back from a run to the lessons: to the chapter about a tensor, in the state that the run is of."""

from app.explorer import Explorer
from app.pages.lessons.contents import CONTENTS
from app.pages.lessons.decoder_runs import LEAST_TOKENS, MOST_TOKENS
from app.pages.links import lesson_url
from app.pages.scope import Link, Scope
from provenance.errors import InvalidInput, NotFound
from provenance.lessons.chapters import CHAPTERS, Chapter, chapter_of
from provenance.lessons.options import Options
from provenance.trace import Recipe, Trace


def lesson_of_site(explorer: Explorer, scope: Scope, site: str) -> Link | None:
    """The chapter about a tensor; None where none is. In its usual state where the trace is of no other."""
    chapter = chapter_of(scope.family, site)
    if chapter is None:
        return None
    title = f"Lesson: {chapter.title[:1].lower()}{chapter.title[1:]}"
    options = _state(explorer, scope.trace.recipe, chapter) if scope.trace else None
    if scope.trace is None or options is None:
        return Link(lesson_url(chapter.slug), "", title)
    return Link(lesson_url(chapter.slug, options.query), "", f"{title}, {_with(scope.trace)}")


def lesson_of_trace(explorer: Explorer, trace: Trace) -> Link | None:
    """The first chapter in the state that a run is of; None where it is of none."""
    for chapter in CHAPTERS:
        if (options := _state(explorer, trace.recipe, chapter)) is not None:
            title = f"The lesson “{chapter.title}”, {_with(trace)}"
            return Link(lesson_url(chapter.slug, options.query), "", title)
    return None


def _with(trace: Trace) -> str:
    return "with this run’s options" if trace.recipe.drawn else "with this run’s text"


def _state(explorer: Explorer, recipe: Recipe, chapter: Chapter) -> Options | None:
    """The state of a chapter that a run is of: a text is one for a chapter that asks for it."""
    if recipe.drawn:
        return Options.of(recipe)
    if "text" not in CONTENTS[chapter.slug].fields or not LEAST_TOKENS <= len(recipe.tokens) <= MOST_TOKENS:
        return None
    return Options.of(recipe) if _is_read_so(explorer, recipe) else None


def _is_read_so(explorer: Explorer, recipe: Recipe) -> bool:
    """Whether the default model, which the lessons read, makes these tokens of the text."""
    model = explorer.settings.model
    if recipe.model.name != model or not recipe.text:
        return False
    try:
        return explorer.models.encode(model, recipe.text).ids == recipe.prompt.ids
    except (NotFound, InvalidInput):
        return False
