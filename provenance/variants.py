"""The catalogue of one model: rows and edges that only other variants of its family have are left out.

A *variant* is a word for what checkpoints of one architecture may have or lack, such as a head that
is not tied. Rows and edges without one are in every model.
"""

from dataclasses import replace
from functools import lru_cache

from provenance.catalogue import Catalogue, Intermediate


@lru_cache(maxsize=64)
def catalogue_of(catalogue: Catalogue, variants: frozenset[str]) -> Catalogue:
    """A family's catalogue for a model that has these variants; operations without rows go too."""
    rows = [
        replace(row, inputs=tuple(read for read in row.inputs if not read.variant or read.variant in variants))
        for row in catalogue
        if not row.variant or row.variant in variants
    ]
    used = {row.operation for row in rows}
    operations = [operation for operation in catalogue.operations.values() if operation.id in used]
    return Catalogue(catalogue.family, rows, operations, catalogue.axes.values())


def exists_in(row: Intermediate) -> str:
    """In which steps, and in which models, a site exists."""
    return f"{row.steps.value}, in models with an {row.variant} only" if row.variant else row.steps.value
