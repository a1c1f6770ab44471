"""The addresses of pictures, and the API of a tensor's parts, which the pictures' read-out uses."""

import math
import re
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from app.api import Here, Name, Place, TraceId, locate, problems
from app.explorer import Explorer
from app.pages.drawn import drawn_of
from app.pages.view import Asked, View, headings_along, view_of
from app.pictures.heatmap import cell_size
from app.routes import number_of
from provenance.errors import InvalidInput, OutOfRange
from provenance.names import Address
from provenance.pictures.cells import Array, Mask, array_of, mask_of, plain
from provenance.pictures.paint import heatmap_png
from provenance.trace import Trace

router = APIRouter()

MOST_CELLS = 4096
"""The most cells that one answer holds."""

_PIECE = re.compile(r"(?P<one>\d{1,6})|(?P<first>\d{0,6}):(?P<end>\d{0,6})", re.ASCII)


class SliceAxis(BaseModel):
    """An axis that the part still has."""

    symbol: str
    name: str = Field(description="what it counts: token, query, key, head, channel …")
    first: int = Field(description="the index of the part's first cell along it")
    size: int = Field(description="cells of the part along it")
    tokens: list[str] = Field(description="the tokens that stand along it; empty where it counts none")


class SliceOut(BaseModel):
    """A part of a tensor, in row-major order."""

    address: str
    dtype: str
    shape: list[int] = Field(description="the part's shape; an axis with one index is dropped, as in NumPy")
    axes: list[SliceAxis]
    values: list[bool | int | float | str] = Field(
        description="floats in the fewest digits that give them back; NaN, Infinity and -Infinity as text"
    )
    masked: list[bool] | None = Field(description="where cells are masked; null where the tensor has no mask")


@router.get("/api/traces/{id}/tensors/{address:path}/slice", tags=["tensors"], responses=problems(404, 410, 422))
def slice_of_tensor(
    here: Here,
    id: TraceId,
    address: Place,
    index: Annotated[
        str,
        Query(
            description="an index or a range for every axis, as NumPy's basic indexing writes them: `0,3,0:9,:`; "
            f"at most {MOST_CELLS} cells",
            max_length=200,
        ),
    ],
    step: Annotated[int | None, Query(description="0 is the prefill", ge=0, le=1_000_000)] = None,
) -> SliceOut:
    """Some values of a tensor, exactly, with the tokens that stand along its axes."""
    trace, at = locate(here, id, address, step)
    tensor = here.tensor(trace, at)
    array = array_of(tensor)
    hidden = mask_of(here.masked(trace, at), array.shape)
    view = view_of(here.catalogue(trace), trace, at, array.shape, Asked())
    return slice_out(here, view, str(tensor.dtype).removeprefix("torch."), array, hidden, index)


def slice_out(here: Explorer, view: View, dtype: str, array: Array, hidden: Mask | None, index: str) -> SliceOut:
    """A part of an array that has a tensor's axes. Raises InvalidInput, and OutOfRange for what it lacks."""
    chosen = _index(index, array.shape, str(view.address))
    part = np.asarray(array[chosen])
    return SliceOut(
        address=str(view.address),
        dtype=dtype,
        shape=list(part.shape),
        axes=_axes(here, view, chosen),
        values=[plain(value) for value in part.ravel()],
        masked=None if hidden is None else np.asarray(hidden[chosen]).ravel().tolist(),
    )


def _axes(here: Explorer, view: View, chosen: tuple[int | slice, ...]) -> list[SliceAxis]:
    found = []
    for axis, piece in zip(view.axes, chosen, strict=True):
        if isinstance(piece, slice):
            headings = headings_along(here, view, axis, range(piece.start, piece.stop))
            tokens = [heading.token for heading in headings]
            found.append(
                SliceAxis(
                    symbol=axis.symbol,
                    name=axis.name,
                    first=piece.start,
                    size=piece.stop - piece.start,
                    tokens=tokens if any(tokens) else [],
                )
            )
    return found


def _index(text: str, shape: tuple[int, ...], name: str) -> tuple[int | slice, ...]:
    """A part of a tensor as it is written. Raises InvalidInput, and OutOfRange for what it lacks."""
    pieces = text.replace(" ", "").split(",") if text.strip() else []
    if len(pieces) != len(shape):
        raise InvalidInput(
            f"{name} has {len(shape)} axes, the index {len(pieces)}.",
            hint=f"Give an index or a range for each, such as {','.join(['0'] * (len(shape) - 1) + [':'])}.",
        )
    chosen: list[int | slice] = []
    for axis, (piece, size) in enumerate(zip(pieces, shape, strict=True)):
        read = _PIECE.fullmatch(piece)
        if read is None:
            raise InvalidInput(f"{piece[:40]!r} is no index.", hint="An index is 3, a range 0:9, all of an axis `:`.")
        if read["one"] is not None:
            if int(read["one"]) >= size:
                raise OutOfRange(f"Axis {axis} of {name} has no index {piece}.", hint=f"It has {size}, from 0 on.")
            chosen.append(int(read["one"]))
            continue
        first, end = int(read["first"] or 0), int(read["end"] or size)
        if not first <= end <= size:
            raise OutOfRange(f"Axis {axis} of {name} has no range {piece}.", hint=f"It goes from 0 to {size}.")
        chosen.append(slice(first, end))
    cells = math.prod(piece.stop - piece.start for piece in chosen if isinstance(piece, slice))
    if cells > MOST_CELLS:
        raise InvalidInput(
            f"These are {cells} cells, and one answer holds at most {MOST_CELLS}.",
            hint="Ask for smaller parts, or for all values as .npy.",
        )
    return tuple(chosen)


@router.get("/traces/{id}/{address}/heatmap.png", include_in_schema=False)
def show_heatmap(request: Request, here: Here, id: TraceId, address: Name) -> Response:
    """A tensor's heatmap, with the parameters of its page; `size=small` is the one in a grid."""
    query = request.query_params
    trace, at = locate(here, id, address, number_of("step", query.get("step")))
    small = query.get("size", "") == "small"
    return Response(_png(here, trace, at, Asked.of(query), small), media_type="image/png",
                    headers={"Cache-Control": "private, max-age=300"})  # fmt: skip


def _png(here: Explorer, trace: Trace, at: Address, asked: Asked, small: bool) -> bytes:
    array = array_of(here.tensor(trace, at))
    if not array.size:
        raise OutOfRange(f"{at} has no cells to draw.", hint="Its shape has an axis of 0.")
    view = view_of(here.catalogue(trace), trace, at, array.shape, asked)
    plane = view.plane(small=small)
    hidden = mask_of(here.masked(trace, at), array.shape)
    drawn = drawn_of(view, plane, array, hidden, here.summary(trace, at))
    return heatmap_png(drawn.blocks, drawn.scale, cell_size(plane, square=view.square, small=small))
