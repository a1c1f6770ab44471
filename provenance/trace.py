"""Traces: what was run, and the tensors kept from it.

A `Recipe` is everything that determines a run; its hash is the trace's id. A `Trace` is the
recipe with its results: the generated tokens, and for each step the few tensors from which every
other one can be computed again.
"""

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field

from provenance.edits import MOST_EDITS, Edit
from provenance.errors import OutOfRange
from provenance.model import Kept, ModelInfo
from provenance.names import Address
from provenance.prompt import Drawn, Prompt, Token

FORMAT = 2
"""Version of the stored form. When it goes up, and how older ones are read: provenance/migration.py."""

_ID_FORMAT = 1
"""Version of what is hashed into an id. A new stored form does not change it, so that ids stay."""

Count = Annotated[int, Field(ge=0)]


class Frozen(BaseModel):
    """Base of the stored records: immutable, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TokenRecord(Frozen):
    """A token as JSON: its id, and its bytes in hexadecimal."""

    id: Count
    hex: Annotated[str, Field(pattern=r"^([0-9a-f]{2})*$")]

    @classmethod
    def of(cls, token: Token) -> "TokenRecord":
        """The record of a token."""
        return cls(id=token.id, hex=token.bytes.hex())

    @property
    def token(self) -> Token:
        """The token of a record."""
        return Token(self.id, bytes.fromhex(self.hex))


class Recipe(Frozen):
    """Everything that determines a trace, and its id.

    `temperature` 0 takes the most likely token at each step and does not use `seed`. `threads` is
    torch's thread count: another count can change the last bits of a product. `edits` are carried out
    in their order. `drawn` is None for a model that reads tokens.
    """

    model: ModelInfo
    text: str | None
    tokens: tuple[TokenRecord, ...]
    steps: Count
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    device: str = "cpu"
    threads: Annotated[int, Field(ge=1)]
    torch: str
    edits: Annotated[tuple[Edit, ...], Field(max_length=MOST_EDITS)] = ()
    drawn: Drawn | None = None

    @property  # cached, it would go along into a changed copy
    def id(self) -> str:
        """32 hexadecimal digits: the hash of what determines the run. The spelling of the text does not."""
        deciding = self.model_dump(mode="json", exclude={"text", "model", "tokens"})
        if not self.temperature:
            deciding["seed"] = 0
        for later in ("edits", "drawn"):
            if not deciding[later]:
                del deciding[later]  # so that a run without has the id it always had
        deciding |= {
            "format": _ID_FORMAT,
            "tokens": [token.id for token in self.tokens],
            "model": [
                self.model.name,
                self.model.family,
                dict(self.model.config),
                self.model.weights_sha256,
                self.model.dtype,
            ],
        }
        return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:32]

    @property
    def unedited(self) -> "Recipe":
        """The same run without its edits."""
        return self.model_copy(update={"edits": ()})

    @property
    def prompt(self) -> Prompt:
        """The prompt that was run."""
        return Prompt(self.text, tuple(token.token for token in self.tokens))


def chosen_by(recipe: Recipe) -> int:
    """How many tokens a run chooses: one at the end of each step, and none where the model reads no tokens."""
    return 0 if recipe.drawn else recipe.steps + 1


class Record(Frozen):
    """A trace as JSON, beside the file of its tensors.

    `generated` has one token for each decode step and one more: what the last step predicts; none where the
    model does not predict.
    """

    format: int = FORMAT
    recipe: Recipe
    generated: tuple[TokenRecord, ...]
    created_at: str
    tensors_sha256: str
    tensors_bytes: Count


class Trace:
    """A recorded run: its record, and the kept tensors by address.

    `patches` are the cells that its edits put in from other traces.
    """

    def __init__(
        self,
        record: Record,
        tensors: Mapping[str, torch.Tensor],
        patches: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self.record = record
        self.recipe = record.recipe
        self.tensors = tensors
        self.patches = patches or {}

    @cached_property
    def id(self) -> str:
        """The recipe's id."""
        return self.recipe.id

    @property
    def last_step(self) -> int:
        """The last step; step 0 is the prefill."""
        return self.recipe.steps

    @property
    def layers(self) -> int:
        """Number of blocks, 0 for a model without."""
        return int(self.recipe.model.config.get("n_layer", 0))

    @cached_property
    def generated(self) -> tuple[Token, ...]:
        """The token chosen at the end of each step."""
        return tuple(token.token for token in self.record.generated)

    def tokens_of(self, step: int) -> tuple[Token, ...]:
        """The tokens that a step runs: the prompt in the prefill, one in a decode step."""
        self.check(step=step)
        return self.generated[step - 1 : step] if step else self.recipe.prompt.tokens

    def kept(self, step: int) -> Kept:
        """The kept tensors of one step, by place."""
        self.check(step=step)
        return self._by_step.get(step, {})

    @cached_property
    def _by_step(self) -> dict[int, dict[str, torch.Tensor]]:
        found: dict[int, dict[str, torch.Tensor]] = {}
        for name, tensor in self.tensors.items():
            address = Address.parse(name)
            found.setdefault(address.step, {})[address.place] = tensor
        return found

    def earlier(self, step: int) -> list[Kept]:
        """The kept tensors of all steps before one."""
        return [self.kept(before) for before in range(step)]

    def check(self, *, step: int = 0, layer: int | None = None) -> None:
        """Raise OutOfRange for a step or layer that this trace does not have."""
        if not 0 <= step <= self.last_step:
            raise OutOfRange(
                f"Trace {self.id[:12]} has no step {step}.",
                hint=f"It has steps 0 (prefill) to {self.last_step}."
                if self.last_step
                else "It has step 0 (prefill) only.",
            )
        if layer is not None and not 0 <= layer < self.layers:
            raise OutOfRange(
                f"Trace {self.id[:12]} has no layer {layer}.",
                hint=f"Its model has layers 0 to {self.layers - 1}.",
            )

    def __repr__(self) -> str:
        model: Any = self.recipe.model
        edits = f", changed: {'; '.join(map(str, self.recipe.edits))}" if self.recipe.edits else ""
        return f"<Trace {self.id[:12]} {model.name} {len(self.recipe.tokens)}+{self.last_step} tokens{edits}>"
