"""What only tensors of queries and keys have: all heads at a glance, arcs over the text, a score as a sum."""

from dataclasses import dataclass

import numpy as np

from app.explorer import Explorer
from app.pages.scope import Link, Scope
from app.pages.view import View, ViewAxis, tokens_along
from app.pictures.arcs import ArcPicture, Attended, arc_picture, is_distribution, strongest
from app.pictures.parts import Heading
from app.pictures.product import ProductPicture, product_picture
from provenance.axes import Counts
from provenance.names import Address
from provenance.pictures.cells import Array, Mask, array_of

MOST_HEADS = 25
_SMALL = {"size": "small", "r0": None, "c0": None, "zoom": None}


@dataclass(frozen=True, slots=True)
class HeadThumb:
    """A head's small picture: a link that chooses the head, and what it says in words."""

    head: int
    url: str
    png_url: str
    says: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class SumView:
    """A score as the sum that it is: of the products of two rows' channels."""

    picture: ProductPicture
    left: Link
    right: Link
    query: Heading
    key: Heading


@dataclass(frozen=True, slots=True)
class Attention:
    """Where one query looks. `arcs` is None where its cells are no weights."""

    head: int | None
    query: int
    query_token: str
    heads: tuple[HeadThumb, ...]
    arcs: ArcPicture | None
    top: tuple[Attended, ...]
    weights: bool
    sum: SumView | None
    queries: int
    previous: str
    next: str


def attention_of(explorer: Explorer, scope: Scope, view: View, array: Array, hidden: Mask | None) -> Attention | None:
    """The attention of the chosen query; None for tensors without queries and keys."""
    queries, keys, heads = (view.find(counts) for counts in (Counts.TOKEN, Counts.KEY, Counts.HEAD))
    if queries is None or keys is None or array.ndim < 3 or heads is None:
        return None
    tokens = tokens_along(view.trace, Counts.KEY, view.address.step)
    if len(tokens) != keys.size:
        return None
    query = view.chosen[queries.name]
    past = keys.size - queries.size
    row, mask = (_along_keys(view, part, keys) for part in (array, hidden))
    assert row is not None
    weights = array.dtype.kind == "f" and is_distribution(row, mask)
    best = strongest(row, mask, tokens, lambda key: "", -1, 1)
    key = view.asked.at.get(keys.name, best[0].index if best else 0)

    def url(at: int) -> str:
        if not 0 <= at - past < queries.size:
            return ""
        return view.url({queries.name: at - past, keys.name: None})

    return Attention(
        head=view.chosen[heads.name],
        query=query,
        query_token=tokens[past + query],
        heads=_heads(view, array, hidden, keys, heads, tokens),
        arcs=arc_picture(row, mask, tokens, past + query, url) if weights else None,
        top=strongest(row, mask, tokens, lambda at: view.url({queries.name: query, keys.name: at}), key),
        weights=weights,
        sum=_sum(explorer, scope, view, array, query, key, tokens, past),
        queries=queries.size,
        previous=view.url({queries.name: query - 1, keys.name: None}) if query else "",
        next=view.url({queries.name: query + 1, keys.name: None}) if query + 1 < queries.size else "",
    )


def _along_keys(view: View, array: Array | None, keys: ViewAxis, **at: int) -> Array | None:
    """The cells of the chosen query, one for each key."""
    if array is None:
        return None
    places = {**view.chosen, **at}
    found: Array = array[tuple(slice(None) if axis is keys else places[axis.name] for axis in view.axes)]
    return found


def _heads(
    view: View, array: Array, hidden: Mask | None, keys: ViewAxis, heads: ViewAxis, tokens: tuple[str, ...]
) -> tuple[HeadThumb, ...]:
    if heads in (view.rows, view.cols) or heads.size < 2:
        return ()
    thumbs = []
    for head in range(min(heads.size, MOST_HEADS)):
        row, mask = (_along_keys(view, part, keys, **{heads.name: head}) for part in (array, hidden))
        assert row is not None
        best = strongest(row, mask, tokens, lambda key: "", -1, 1)
        words = "nothing to see"
        if best:
            words = f"largest at key {best[0].index} “{best[0].token}”, {best[0].value.text}"
        thumbs.append(
            HeadThumb(
                head,
                view.url({heads.name: head or None}),
                view.url({**_SMALL, heads.name: head}, "/heatmap.png"),
                words,
                head == view.chosen[heads.name],
            )
        )
    return tuple(thumbs)


def _sum(
    explorer: Explorer,
    scope: Scope,
    view: View,
    array: Array,
    query: int,
    key: int,
    tokens: tuple[str, ...],
    past: int,
) -> SumView | None:
    """The chosen cell as a sum of products, where the catalogue says of which."""
    factors = scope.catalogue.factors_of(view.address, view.trace.layers)
    if len(factors) != 2:
        return None
    index = tuple(view.chosen[axis.name] if axis.counts is not Counts.KEY else key for axis in view.axes)
    left = _row_of(explorer, scope, view, factors[0], query)
    right = _row_of(explorer, scope, view, factors[1], key)
    if left.shape != right.shape or left.ndim != 1:
        return None
    return SumView(
        picture=product_picture(left, right, array[index]),
        left=scope.link_to(factors[0]),
        right=scope.link_to(factors[1]),
        query=Heading(str(query), tokens[past + query]),
        key=Heading(str(key), tokens[key]),
    )


def _row_of(explorer: Explorer, scope: Scope, view: View, factor: Address, token: int) -> Array:
    """The channels of a factor at a token, at the view's batch and head."""
    axes = [scope.catalogue.axes[symbol] for symbol in scope.catalogue.row(factor.site).shape]
    places = {axis.counts: view.chosen[axis.name] for axis in view.axes}
    places |= dict.fromkeys((Counts.TOKEN, Counts.KEY, Counts.PAST), token)
    index = tuple(slice(None) if axis.counts is Counts.CHANNEL else places.get(axis.counts, 0) for axis in axes)
    found: Array = np.asarray(array_of(explorer.tensor(view.trace, factor))[index])
    return found
