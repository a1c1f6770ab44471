"""The cells of a tensor as NumPy knows them, and each one exactly."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]
"""Cells of any shape and real dtype."""
Mask = NDArray[np.bool_]
"""True where a cell is masked."""


def array_of(tensor: torch.Tensor) -> Array:
    """A tensor's cells; those of half precision as float32, which holds each of them exactly."""
    plain = tensor.detach().cpu()
    if plain.is_floating_point() and plain.dtype not in (torch.float32, torch.float64):
        plain = plain.float()
    array: Array = plain.numpy()
    return array


def mask_of(masked: torch.Tensor | None, shape: tuple[int, ...]) -> Mask | None:
    """A mask spread over a tensor's shape, without a copy; None stays None."""
    return None if masked is None else np.broadcast_to(masked.detach().cpu().numpy(), shape)


def exact(value: np.generic) -> str:
    """One cell in the fewest digits that give it back in its own dtype."""
    return str(value)


def plain(value: np.generic) -> float | int | bool | str:
    """One cell as JSON can hold it: in the fewest digits that give it back; `NaN`, `Infinity` and `-Infinity`."""
    if isinstance(value, np.floating):
        if np.isnan(value):
            return "NaN"
        if np.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return float(str(value))
    return bool(value) if isinstance(value, np.bool_) else int(value)
