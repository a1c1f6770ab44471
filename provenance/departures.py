"""What a run that was changed on purpose departs from: the cited files, and its own equations."""

from collections.abc import Iterator

from provenance.catalogue import Catalogue, Kind
from provenance.editing import acts
from provenance.names import Address
from provenance.trace import Recipe

_MOST_NAMED = 4
"""Edits that are named in a reason; all of them are in the recipe."""


def unlike_the_files(recipe: Recipe) -> tuple[str, ...]:
    """Why no cited file testifies about an edited run; empty without edits."""
    if not recipe.edits:
        return ()
    more = len(recipe.edits) - _MOST_NAMED
    edits = "; ".join(map(str, recipe.edits[:_MOST_NAMED])) + (f"; and {more} more" if more > 0 else "")
    return (f"this run was changed on purpose ({edits}), and the cited file computes the unchanged one",)


def is_changed(catalogue: Catalogue, recipe: Recipe, address: Address) -> bool:
    """Whether an edit puts its own values into a tensor, so that no equation gives them."""
    row, start = catalogue.row(address.site), len(recipe.tokens)
    return any(edit.covers(address) and acts(catalogue, row, edit, address.step, start) for edit in recipe.edits)


def unlike_the_equations(catalogue: Catalogue, recipe: Recipe) -> Iterator[str]:
    """For each edit of a computed tensor: its place, and that its values are the edit's."""
    for edit in recipe.edits:
        if catalogue.row(edit.address.site).kind is Kind.TENSOR:
            yield f"{edit.place}: changed by “{edit}”"
