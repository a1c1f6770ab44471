"""The fingerprint of a model's weights."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def digest(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 over the names, shapes and values of all weights, in order of name."""
    total = hashlib.sha256()
    for place, tensor in sorted(weights.items()):
        total.update(f"{place} {list(tensor.shape)} {tensor.dtype}\n".encode())
        total.update(tensor.contiguous().view(torch.uint8).numpy().data)
    return total.hexdigest()
