"""Turning pages into HTML: the templates, fragments for htmx, and the page of an error."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2_fragments import render_block
from markupsafe import Markup

from app.delivery import KEEP
from app.explorer import Explorer
from app.pages.frame import Frame, frame
from app.pages.numbers import plural
from app.pages.scope import Link, Scope
from app.static_files import StaticFiles
from provenance.catalogues import OUTLINES
from provenance.errors import ProvenanceError
from provenance.names import Address

_HERE = Path(__file__).resolve().parent


def _resources(name: str) -> Path:
    """A folder of resources: inside the package in a wheel, beside it in a checkout."""
    inside = _HERE / name
    return inside if inside.is_dir() else _HERE.parent / name


TEMPLATES = _resources("templates")
STATIC = _resources("static")
STATIC_FILES = StaticFiles(STATIC)


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """What went wrong, what to do, and close matches."""

    frame: Frame
    status: int
    title: str
    message: str
    hint: str
    near: tuple[Link, ...]


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters["plural"] = plural
    environment.globals["static"] = STATIC_FILES.url
    # A global and not an import: blocks rendered alone do not run the template's imports.
    environment.globals["ui"] = environment.get_template("macros.html").module
    return environment


_environment_now = _environment()


def wants_fragment(request: Request) -> bool:
    """Whether htmx asks for a part of a page; going back in history needs the whole."""
    return "HX-Request" in request.headers and "HX-History-Restore-Request" not in request.headers


def render(
    request: Request, template: str, page: Any, *, block: str = "", status: int = 200, keep: bool = False
) -> HTMLResponse:
    """A page as HTML; where htmx asks, only the named block of the same template.

    `keep` says that the page shows nothing but what `page_cache.state_of` knows to have changed.
    """
    if keep:
        setattr(request.state, KEEP, True)
    context = {"page": page, "title": page.frame.title, "server": request.app.state.explorer.settings}
    if block and wants_fragment(request):
        title = Markup("<title>{}</title>\n").format(full_title(page.frame))
        content: str = title + Markup(render_block(_environment_now, template, block, context))
    else:
        context["full_title"] = full_title(page.frame)
        content = _environment_now.get_template(template).render(context)
    return HTMLResponse(content, status, headers={"Vary": "HX-Request, HX-History-Restore-Request, HX-Target"})


def full_title(shown: Frame) -> str:
    """A page's title as the browser's tab shows it."""
    own = "Tensor Provenance"
    return own if shown.title == own else f"{shown.title} · {own}"


def error_page(
    request: Request, status: int, title: str, message: str, hint: str = "", near: Iterable[str] = ()
) -> HTMLResponse:
    """The page of an error; `near` names sites or groups that may have been meant."""
    explorer: Explorer = request.app.state.explorer
    scope = _scope(request, explorer)
    page = ErrorPage(
        frame=frame(scope, title),
        status=status,
        title=title,
        message=message,
        hint=hint,
        near=tuple(link for name in near if (link := _near(scope, name)) is not None),
    )
    return render(request, "error.html", page, status=status)


def _scope(request: Request, explorer: Explorer) -> Scope:
    """The place that the address names, as far as it exists, so that near matches lead into the trace."""
    id, address = request.path_params.get("id"), request.path_params.get("address")
    try:
        trace = explorer.store.open(str(id))
        whole = Scope.of(explorer, trace)
    except ProvenanceError:
        family = request.query_params.get("family", "")
        return Scope.of(explorer, family=family if family in OUTLINES else "")
    try:
        layer = Address.parse(str(address)).layer or 0
        trace.check(layer=layer)
    except ProvenanceError:
        return whole
    return Scope.of(explorer, trace, layer)


def _near(scope: Scope, name: str) -> Link | None:
    if name in scope.catalogue.rows:
        return scope.link(scope.catalogue.row(name))
    for top in scope.catalogue.tree:
        for group in top.walk():
            if group.slug == name:
                return Link(scope.group_url(group), "", " › ".join(group.path))
    return None
