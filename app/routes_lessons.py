"""The addresses of the lessons."""

from contextlib import AbstractContextManager

from fastapi import APIRouter, Request, Response

from app.access import Access
from app.explorer import Explorer
from app.limits import client_of
from app.pages.lessons.contents import CONTENTS
from app.pages.lessons.lesson import lessons_page, refused_page
from app.pages.lessons.reading import recording_if
from app.pages.lessons.teacher import teacher_page
from app.render import render
from app.routes import Here
from provenance.errors import InvalidOption, NotFound
from provenance.lessons.chapters import chapter
from provenance.lessons.options import Options

router = APIRouter(include_in_schema=False)


@router.get("/lessons")
def show_lessons(request: Request, here: Here) -> Response:
    """The chapters, and what each shows."""
    return render(request, "lessons.html", lessons_page(here))


@router.get("/lessons/teacher")
def show_teacher(request: Request, here: Here) -> Response:
    """The questions of every chapter with their answers, in the state that the query names."""
    with _recording(request, here):
        page = teacher_page(here, Options.read(request.query_params))
    return render(request, "lesson_teacher.html", page)


@router.get("/lessons/{slug}")
def show_lesson(request: Request, here: Here, slug: str) -> Response:
    """One chapter, in the state that the query names."""
    asked = chapter(slug)
    content = CONTENTS.get(asked.slug)
    if content is None:
        raise NotFound(f"The lesson {asked.title!r} has no page yet.")
    try:
        with _recording(request, here):
            page = content.page(here, Options.read(request.query_params))
    except InvalidOption as problem:
        refused = refused_page(here, asked, content.fields, request.query_params, problem)
        return render(request, "lesson.html", refused, status=422)
    return render(request, content.template, page)


def _recording(request: Request, here: Explorer) -> AbstractContextManager[None]:
    """A page records what it reads and is not stored: that takes the token, where recording does."""

    def check() -> None:
        if here.settings.token_for == "changes":
            access: Access = request.app.state.access
            access.check(dict(request.headers.raw), client_of(request.client.host) if request.client else "")

    return recording_if(check)
