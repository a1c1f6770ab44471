"""The order in which the tensors of one step are computed."""

from functools import lru_cache
from itertools import groupby

from provenance.catalogue import Catalogue
from provenance.names import Address, is_layered


@lru_cache(maxsize=64)
def computation_order(catalogue: Catalogue, layers: int, step: int) -> tuple[Address, ...]:
    """All tensors of one step as they are computed: the repeated rows once for every layer."""
    order: list[Address] = []
    for layered, run in groupby(catalogue, key=lambda row: is_layered(row.site)):
        rows = [row for row in run if row.steps.cover(step)]
        places = range(layers) if layered else (None,)
        order += [Address(row.site, layer, step) for layer in places for row in rows]
    return tuple(order)
