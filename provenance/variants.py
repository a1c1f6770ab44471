"""The catalogue of one model: rows and edges that only other variants of its family have are left out.

A *variant* is a word for what models of one architecture may have or lack, such as a head that is not
tied, or a causal mask. Rows and edges without one are in every model.
"""

from dataclasses import replace
from functools import lru_cache

from provenance.catalogue import Catalogue, Intermediate


@lru_cache(maxsize=64)
def catalogue_of(catalogue: Catalogue, variants: frozenset[str]) -> Catalogue:
    """A family's catalogue for a model that has these variants; operations without rows go too.

    A row that only some models mask has no `masked_by` in the others.
    """
    kept = [row for row in catalogue if not row.variant or row.variant in variants]
    sites = {row.site for row in kept}
    rows = [
        replace(
            row,
            inputs=tuple(read for read in row.inputs if not read.variant or read.variant in variants),
            masked_by=row.masked_by if row.masked_by in sites else None,
        )
        for row in kept
    ]
    used = {row.operation for row in rows}
    operations = [operation for operation in catalogue.operations.values() if operation.id in used]
    return Catalogue(catalogue.family, rows, operations, catalogue.axes.values())


def exists_in(row: Intermediate) -> str:
    """In which steps, and in which models, a site exists."""
    return f"{row.steps.value}, in models with {_some(row.variant)} only" if row.variant else row.steps.value


def _some(variant: str) -> str:
    """A variant with its article: `an untied output`, `a causal mask`; `sinusoidal positions`, `pre-norm`."""
    if variant.endswith(("s", "-norm")):
        return variant
    return f"{'an' if variant[0] in 'aeiou' else 'a'} {variant}"
