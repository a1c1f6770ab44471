"""The teacher's page: the questions of every chapter with their answers, and how a state is handed out."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.frame import Frame, frame
from app.pages.lessons.contents import CONTENTS
from app.pages.lessons.parts import Question
from app.pages.links import lesson_url
from app.pages.scope import Link, Scope
from provenance.errors import Busy, Unavailable
from provenance.lessons.chapters import CHAPTERS, Chapter
from provenance.lessons.options import Options

_STATE = Options(heads=4, causal=True)


@dataclass(frozen=True, slots=True)
class Answered:
    """A chapter with its questions; where they have no answers here, `problem` says why."""

    slug: str
    number: int
    title: str
    summary: str
    url: str
    questions: tuple[Question, ...]
    problem: str


@dataclass(frozen=True, slots=True)
class TeacherPage:
    """All questions in one state. `state` is its query string, empty for the usual one.

    `example` is a chapter in another state, and `example_here` this page in it.
    """

    frame: Frame
    chapters: tuple[Answered, ...]
    total: int
    state: str
    example: Link
    example_here: str
    usual_url: str


def teacher_page(explorer: Explorer, options: Options) -> TeacherPage:
    """The questions of all chapters that have any. Raises InvalidOption."""
    chapters = tuple(_answered(explorer, each, options) for each in CHAPTERS if each.slug in CONTENTS)
    shown = CHAPTERS[1]
    return TeacherPage(
        frame=frame(Scope.of(explorer), "Questions and answers · Lessons"),
        chapters=chapters,
        total=sum(len(each.questions) for each in chapters),
        state=options.query,
        example=Link(lesson_url(shown.slug, _STATE.query), "", shown.title),
        example_here=lesson_url("teacher", _STATE.query),
        usual_url=lesson_url("teacher"),
    )


def _answered(explorer: Explorer, chapter: Chapter, options: Options) -> Answered:
    questions: tuple[Question, ...] = ()
    problem = ""
    try:
        questions = CONTENTS[chapter.slug].questions(explorer, options)
    except (Unavailable, Busy) as found:
        problem = " ".join(part for part in (found.message, found.hint) if part)
    return Answered(
        slug=chapter.slug,
        number=chapter.number,
        title=chapter.title,
        summary=chapter.summary,
        url=lesson_url(chapter.slug, options.query),
        questions=questions,
        problem=problem,
    )
