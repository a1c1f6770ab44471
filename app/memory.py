"""How much memory is held by what can be forgotten."""

from dataclasses import dataclass

from provenance.models import Models
from provenance.recorder import Replayer


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of replayed tensors, and of the weights of loaded models."""

    replay_bytes: int
    model_bytes: int


def memory_of(models: Models, replayer: Replayer) -> Memory:
    """What this process holds."""
    return Memory(replayer.bytes, sum(model.parameter_bytes for model in models.loaded()))
