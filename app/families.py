"""A tensor's name where no trace says of which model family it is: pages, API and command line ask here."""

from collections.abc import Callable
from contextlib import suppress

from provenance.catalogue import Catalogue, Intermediate
from provenance.catalogues import OUTLINES, Outline, outline_named
from provenance.errors import UnknownSite
from provenance.lookup import find
from provenance.names import Address

Look = Callable[[Catalogue, str], tuple[Intermediate, Address | None]]


def find_in_families(name: str, family: str = "", look: Look = find) -> tuple[Intermediate, Outline]:
    """A row by any of its names, in the family that is named, else in the first that has it.

    Raises UnknownFamily, AmbiguousName, or UnknownSite with the near matches of the first.
    """
    first = outline_named(family)
    for outline in (first,) if family else OUTLINES.values():
        with suppress(UnknownSite):
            return look(outline.catalogue, name)[0], outline
    return look(first.catalogue, name)[0], first
