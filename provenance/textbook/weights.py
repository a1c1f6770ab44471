"""The textbook transformer's numbers, drawn from seeds: its weights, and the vectors that it is given.

Each parameter and each table of vectors has a stream of random numbers of its own. So two models that
differ in one option alone agree in all weights that both have, and no table depends on how many there are.
"""

import hashlib
import math

import torch
from torch import Tensor

from provenance.catalogue import Kind
from provenance.names import Address, is_layered
from provenance.prompt import Drawn
from provenance.textbook.catalogue import CATALOGUE
from provenance.textbook.config import Config
from provenance.variants import catalogue_of

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""What a model may compute in."""

SEED = 0
"""What all weights are drawn from."""


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter, by place; projections are (out, in), as PyTorch lays them."""
    rows = [row for row in catalogue_of(CATALOGUE, config.variants) if row.kind is Kind.PARAMETER]
    return {
        Address(row.site, layer).place: tuple(config.constants[axis] for axis in row.shape)
        for row in rows
        for layer in (range(config.n_layer) if is_layered(row.site) else (None,))
    }


def untrained(config: Config, seed: int = SEED) -> dict[str, Tensor]:
    """Seeded weights, by place, distributed as PyTorch's own modules distribute theirs at first."""
    weights = {}
    for place, shape in shapes(config).items():
        tensor, generator = torch.empty(shape), _stream(f"{place} of {seed}")
        match place.split(".")[-2:]:
            case [_, "g"]:
                tensor.fill_(1.0)
            case ["in_proj" | "out_proj" | "norm1" | "norm2" | "norm_f", "b"]:
                tensor.zero_()
            case ["in_proj", "w"]:  # Xavier: by the inputs and outputs together
                bound = math.sqrt(6 / sum(shape))
                tensor.uniform_(-bound, bound, generator=generator)
            case [module, "w" | "b"]:  # nn.Linear: by the inputs
                bound = 1 / math.sqrt(config.n_inner if module == "proj" else config.n_embd)
                tensor.uniform_(-bound, bound, generator=generator)
            case ["pe", "learned"]:
                tensor.normal_(std=0.02, generator=generator)
        weights[place] = tensor
    return weights


def vectors(config: Config, drawn: Drawn) -> Tensor:
    """The tables of vectors (B, C, d) that the numbers of a run point at, each value from N(0, 1)."""
    shape = (config.max_len, config.n_embd)
    tables = [
        torch.randn(shape, generator=_stream(f"vectors {entry} of {drawn.seed}")) for entry in range(drawn.batch)
    ]
    return torch.stack(tables)


def _stream(name: str) -> torch.Generator:
    """Random numbers that depend on a name alone. PyTorch's generator takes in 32 bits of its seed."""
    return torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]))
