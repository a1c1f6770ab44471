"""What a model family says of a cited file that testifies: how to run it, and what its lines hold."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from provenance.citation import Pin
from provenance.model import Model
from provenance.names import Address
from provenance.witness.tracer import Observation

Place = tuple[str, int, str]
"""A function by its qualified name, a line, and an expression."""

Observe = Callable[[int, Observation], None]
"""Called with the step and what was seen in it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How our tensor is laid out anew, to be compared with what the other code holds."""

    sentence: str
    apply: Callable[[torch.Tensor], torch.Tensor]


AS_IS = Layout("", lambda tensor: tensor)


@dataclass(frozen=True, slots=True)
class Claim:
    """Which tensor of ours an observation should equal, and in which layout."""

    address: Address
    layout: Layout = AS_IS


class Witness(Protocol):
    """A cited file that is run as it stands, and reports what it names.

    `label` names the witness in reports: two may run the same file in different ways. `packages` are
    the distributions that it runs on. `exceptions` are assignments on the forward path that hold no
    site, each with its reason.
    """

    pin: Pin
    label: str
    packages: tuple[str, ...]
    exceptions: Mapping[Place, str]

    @property
    def complete(self) -> bool:
        """Whether every site must be seen by this witness."""

    def departures(self, model: Model) -> tuple[str, ...]:
        """Where the model's config departs from what the cited code fixes, so that it cannot testify."""

    def excepted(self, model: Model) -> Mapping[str, str]:
        """Sites that the cited code computes otherwise than this model, each with the reason."""

    def testify(
        self, model: Model, steps: Sequence[torch.Tensor], source: bytes, observe: Observe, lines: set[int]
    ) -> None:
        """Run the cited code on the tokens (B, T) of each step; all lines that ran are added to `lines`."""

    def claim(self, step: int, observation: Observation, layers: int) -> Claim | None:
        """The tensor that an observation holds, or None where it holds no site."""


def place_of(observation: Observation) -> Place:
    """Where something was seen, with functions named as anchors name them."""
    return observation.function.replace(".<locals>", ""), observation.line, observation.expression
