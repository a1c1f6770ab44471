"""The model families on pages without a trace: which one is shown, and the ways to the others."""

from collections.abc import Callable
from dataclasses import dataclass

from app.pages.scope import Scope
from provenance.catalogues import OUTLINES, Outline


@dataclass(frozen=True, slots=True)
class FamilyLink:
    """A model family, and the page of it that is closest to this one."""

    title: str
    url: str
    current: bool


def family_links(scope: Scope, url_of: Callable[[Outline], str]) -> tuple[FamilyLink, ...]:
    """Every family, with its own page in the place of this one."""
    return tuple(
        FamilyLink(outline.title, url_of(outline), family == scope.family) for family, outline in OUTLINES.items()
    )
