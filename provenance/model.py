"""What the recorder needs of a model, whatever family it belongs to.

A model runs in *segments*, one after the other: for GPT-2 the embedding, each block, the output.
What enters and leaves a segment is *kept* by the trace; everything inside it can be had again by
running that segment alone. Tensors are named by their place: an address without its step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from provenance.catalogue import Catalogue
from provenance.names import Address
from provenance.prompt import Drawn

Tap = Callable[[str, torch.Tensor], torch.Tensor]
"""Called with a place and its tensor; what it returns is what the model goes on with."""

Kept = Mapping[str, torch.Tensor]
"""The tensors of one step that a trace keeps, by place."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Which model made a trace: enough to load it again and to know whether it is the same.

    `weights_sha256` identifies the values of all parameters; `origin` says in words where they
    came from; `trained` is False for seeded random weights.
    """

    name: str
    family: str
    config: Mapping[str, int | float | str]
    weights_sha256: str
    origin: str
    trained: bool
    dtype: str


Get = Callable[[str], torch.Tensor]
"""Gives the tensor at a place, in one step of a trace."""


@dataclass(frozen=True, slots=True)
class Split:
    """How a write is a sum over heads: each head's channels times its rows of a matrix, and one offset.

    `by_head` is the place of the heads on an axis of their own, `joined` that of the same heads side
    by side (B, T, heads · channels), `weight` of the matrix (1, heads · channels, d), `bias` of the offset (d).
    """

    count: int
    by_head: str
    joined: str
    weight: str
    bias: str


@dataclass(frozen=True, slots=True)
class Write:
    """One term of the residual stream: the place of what is added (B, T, d), and in a word what wrote it."""

    place: str
    writer: str
    split: Split | None = None


@dataclass(frozen=True, slots=True)
class Readout:
    """How a logit reads the residual stream at one position: stream · `direction` + `offset`.

    Exact in float64 for the stream whose `scale` (the place it was recorded at) is taken, and linear:
    the parts of a stream add up. `direction` is (d). `offset_place` is where the offset comes from.
    """

    direction: torch.Tensor
    offset: float
    scale: str
    offset_place: str


class Model(Protocol):
    """A model that can be recorded and replayed segment by segment.

    `catalogue` is its family's without what only other `variants` have. `vocabulary` is how many different
    tokens it can read, `context` how many at a time; `predicts` says that it has logits.
    """

    info: ModelInfo
    catalogue: Catalogue
    variants: frozenset[str]
    constants: Mapping[str, int]
    layers: int
    context: int
    vocabulary: int
    predicts: bool

    @property
    def parameter_bytes(self) -> int:
        """What its weights take in memory."""

    def begin(self, ids: torch.Tensor, drawn: Drawn | None) -> dict[str, torch.Tensor]:
        """What a step of tokens (1, T) starts from, by place: the ids, or the vectors that they number."""

    @property
    def segments(self) -> Sequence[str]:
        """The segments in the order in which they run."""

    def segment_of(self, address: Address) -> str:
        """The segment inside which a tensor is computed."""

    def run(
        self, segment: str, step: Kept, earlier: Sequence[Kept], tap: Tap | None = None
    ) -> dict[str, torch.Tensor]:
        """Run one segment from what `step` keeps so far; returns what it hands to later segments."""

    @property
    def residuals(self) -> Sequence[str]:
        """Places of the residual stream that a trace keeps: the embedding's, then each block's."""

    def unembed(self, x: torch.Tensor) -> torch.Tensor:
        """The logits (…, V) that the model's output makes of a residual stream (…, d).

        This and `readout` raise InvalidInput where the model does not predict.
        """

    @property
    def writes(self) -> Sequence[Write]:
        """All that is added to the residual stream, in order of computation."""

    def readout(self, token: int, index: int, get: Get) -> Readout:
        """How the logit of a token reads the stream at an index of a step, with the recorded scale."""
