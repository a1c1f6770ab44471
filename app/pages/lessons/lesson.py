"""What every chapter has around its prose: title, the way to the others, and the form of its options."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from app.explorer import Explorer
from app.pages.frame import Frame, frame
from app.pages.lessons.reading import Reading
from app.pages.links import lesson_url
from app.pages.picture import Option
from app.pages.scope import Link, Scope
from provenance.errors import InvalidOption
from provenance.lessons.chapters import CHAPTERS, Chapter
from provenance.lessons.options import LIMITS, MOST_TEXT, Options, as_text

_LABELS: Mapping[str, tuple[str, str]] = {
    "d": ("Channels d", "even, a multiple of the heads"),
    "heads": ("Heads", ""),
    "length": ("Positions T", ""),
    "batch": ("Sequences B", ""),
    "layers": ("Layers", ""),
    "norm": ("Norms", ""),
    "causal": ("Causal mask", ""),
    "positions": ("Positions are put in by", ""),
    "temperature": ("Temperature of the softmax", "from 0.01 to 100"),
    "scaled": ("Scores are divided by √dₖ", ""),
    "seed": ("Seed of the input", ""),
    "text": ("Text for GPT-2", "2 to 40 tokens"),
    "steps": ("Decode steps", ""),
    "at": ("Change position", "0: the middle"),
}
"""What each field is called, and a note."""

_CHOICES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "norm": (("post", "post-norm: after"), ("pre", "pre-norm: before")),
    "causal": (("no", "no"), ("yes", "yes")),
    "positions": (("sinusoidal", "sines and cosines"), ("learned", "a learned table"), ("none", "nothing")),
    "scaled": (("yes", "yes"), ("no", "no")),
}


@dataclass(frozen=True, slots=True)
class FormField:
    """One field: typed, or chosen where there are choices. `wrong` says what is wrong with its value."""

    name: str
    label: str
    note: str
    value: str
    choices: tuple[Option, ...]
    wrong: str


@dataclass(frozen=True, slots=True)
class Form:
    """The options that matter in a chapter; the others go along in `hidden`."""

    action: str
    fields: tuple[FormField, ...]
    hidden: tuple[tuple[str, str], ...]
    changed: bool


@dataclass(frozen=True, slots=True)
class Lesson:
    """A chapter's head: the run that it reads, and the chapters before and after, in the same state."""

    slug: str
    number: int
    of: int
    title: str
    summary: str
    url: str
    form: Form
    run: Link | None
    shape: str
    previous: Link | None
    next: Link | None


@dataclass(frozen=True, slots=True)
class LessonPage:
    """A chapter without its prose: what is shown where its options cannot be taken."""

    frame: Frame
    lesson: Lesson


@dataclass(frozen=True, slots=True)
class Entry:
    """A chapter in the list of chapters."""

    slug: str
    number: int
    title: str
    summary: str
    url: str


@dataclass(frozen=True, slots=True)
class LessonsPage:
    """The list of chapters."""

    frame: Frame
    chapters: tuple[Entry, ...]
    teacher_url: str


def lessons_page(explorer: Explorer) -> LessonsPage:
    """The list of chapters, and what each shows."""
    return LessonsPage(
        frame=frame(Scope.of(explorer), "Lessons"),
        chapters=tuple(Entry(c.slug, c.number, c.title, c.summary, lesson_url(c.slug)) for c in CHAPTERS),
        teacher_url=lesson_url("teacher"),
    )


def lesson_of(chapter: Chapter, options: Options, asked: tuple[str, ...], reading: Reading) -> Lesson:
    """The head of a chapter in a state; `asked` are the fields of its form."""
    values = {field.name: as_text(getattr(options, field.name)) for field in fields(options)}
    form = _form(chapter, values, asked, changed=bool(options.changed))
    model = reading.trace.recipe.model.name
    run = Link(reading.trace_url, model, f"trace {reading.trace.id[:8]}")
    return _lesson(chapter, options.query, form, run, f"({options.batch}, {options.length}, {options.d})")


def lesson_frame(chapter: Chapter, reading: Reading) -> Frame:
    """The frame of a chapter: the tensors at its side are those of its run."""
    return frame(Scope.of(reading.explorer, reading.trace), f"{chapter.title} · Lesson {chapter.number}")


def refused_page(
    explorer: Explorer, chapter: Chapter, asked: tuple[str, ...], query: Mapping[str, str], problem: InvalidOption
) -> LessonPage:
    """A chapter whose options cannot be taken: the form as typed, with what is wrong at the field."""
    usual = Options()
    values = {f.name: query.get(f.name, "")[:MOST_TEXT] or as_text(getattr(usual, f.name)) for f in fields(usual)}
    also = () if problem.field in asked else (problem.field,)
    form = _form(chapter, values, (*asked, *also), changed=True, problem=problem)
    scope = frame(Scope.of(explorer), f"{chapter.title} · Lesson {chapter.number}")
    return LessonPage(scope, _lesson(chapter, "", form, None, ""))


def _lesson(chapter: Chapter, query: str, form: Form, run: Link | None, shape: str) -> Lesson:
    def beside(number: int) -> Link | None:
        found = next((each for each in CHAPTERS if each.number == number), None)
        return Link(lesson_url(found.slug, query), "", found.title) if found else None

    return Lesson(
        slug=chapter.slug,
        number=chapter.number,
        of=len(CHAPTERS),
        title=chapter.title,
        summary=chapter.summary,
        url=lesson_url(chapter.slug, query),
        form=form,
        run=run,
        shape=shape,
        previous=beside(chapter.number - 1),
        next=beside(chapter.number + 1),
    )


def _form(
    chapter: Chapter,
    values: Mapping[str, str],
    asked: tuple[str, ...],
    *,
    changed: bool,
    problem: InvalidOption | None = None,
) -> Form:
    usual = Options()
    hidden = [name for name in values if name not in asked and values[name] != as_text(getattr(usual, name))]
    return Form(
        action=lesson_url(chapter.slug),
        fields=tuple(_field(name, values[name], problem) for name in asked),
        hidden=tuple((name, values[name]) for name in hidden),
        changed=changed,
    )


def _field(name: str, value: str, problem: InvalidOption | None) -> FormField:
    label, note = _LABELS[name]
    if name in LIMITS and not note:
        note = "{} to {}".format(*LIMITS[name])
    choices = _CHOICES.get(name, ())
    known = value in {choice for choice, _ in choices}
    shown = ((value, value),) if choices and not known else ()
    return FormField(
        name=name,
        label=label,
        note="" if choices else note,
        value=value,
        choices=tuple(Option(choice, text, choice == value) for choice, text in (*shown, *choices)),
        wrong=str(problem) if problem is not None and problem.field == name else "",
    )
