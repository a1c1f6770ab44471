"""GPT-2's configuration, read from a checkpoint's config.json or hparams.json."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from provenance.errors import UnsupportedCheckpoint

TIED, UNTIED = "tied output", "untied output"
"""The catalogue's variants: the output is `wte` again, or a matrix of its own."""

_TANH_GELU = ("gelu_new", "gelu_pytorch_tanh")


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of a GPT-2, the ε of its LayerNorms, and whether its output is tied to `wte`.

    The defaults are GPT-2 small's.
    """

    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    n_ctx: int = 1024
    n_vocab: int = 50257
    n_inner: int = 3072
    epsilon: float = 1e-5
    tied: bool = True

    def __post_init__(self) -> None:
        sizes = {name: value for name, value in asdict(self).items() if name not in ("epsilon", "tied")}
        wrong = {name: value for name, value in sizes.items() if not isinstance(value, int) or value < 1}
        if wrong:
            raise UnsupportedCheckpoint(f"The config's sizes must be whole numbers over 0, not {wrong}.")
        if self.n_embd % self.n_head:
            raise UnsupportedCheckpoint(
                f"The width {self.n_embd} cannot be split into {self.n_head} heads of equal width."
            )
        if not isinstance(self.epsilon, float) or not 0 < self.epsilon < 1:
            raise UnsupportedCheckpoint(f"LayerNorm's ε must lie between 0 and 1, not {self.epsilon!r}.")

    @property
    def head_dim(self) -> int:
        """Channels of one head."""
        return self.n_embd // self.n_head

    @property
    def constants(self) -> dict[str, int]:
        """Sizes of the catalogue's axes that the config fixes."""
        return {
            "d": self.n_embd, "3d": 3 * self.n_embd, "m": self.n_inner, "H": self.n_head,
            "hd": self.head_dim, "V": self.n_vocab, "C": self.n_ctx, "L": self.n_layer, "2": 2, "1": 1,
        }  # fmt: skip

    @property
    def variants(self) -> frozenset[str]:
        """The catalogue's variants that this config has."""
        return frozenset((TIED if self.tied else UNTIED,))

    def as_json(self) -> dict[str, int | float | str]:
        """The config as a trace stores it; `tied` stands in it only where it is 0."""
        values = asdict(self)
        tied = values.pop("tied")
        return values if tied else values | {"tied": 0}


def from_hugging_face(data: Mapping[str, Any]) -> Config:
    """Read a Hugging Face config. Raises UnsupportedCheckpoint for what this model cannot reproduce."""
    _refuse_what_differs(data)
    try:
        width = data["n_embd"]
        return Config(
            n_layer=data["n_layer"],
            n_head=data["n_head"],
            n_embd=width,
            n_ctx=data.get("n_positions", data.get("n_ctx", 1024)),
            n_vocab=data["vocab_size"],
            n_inner=data.get("n_inner") or 4 * width,
            epsilon=float(data.get("layer_norm_epsilon", 1e-5)),
            tied=bool(data.get("tie_word_embeddings", True)),
        )
    except KeyError as missing:
        raise UnsupportedCheckpoint(f"config.json lacks {missing.args[0]!r}.") from None
    except (TypeError, ValueError) as error:
        raise UnsupportedCheckpoint(f"config.json cannot be read: {error}.") from None


def from_openai(data: Mapping[str, Any]) -> Config:
    """Read the hparams.json of OpenAI's own release. Raises UnsupportedCheckpoint."""
    try:
        width = data["n_embd"]
        return Config(
            n_layer=data["n_layer"],
            n_head=data["n_head"],
            n_embd=width,
            n_ctx=data["n_ctx"],
            n_vocab=data["n_vocab"],
            n_inner=4 * width,
        )
    except KeyError as missing:
        raise UnsupportedCheckpoint(f"hparams.json lacks {missing.args[0]!r}.") from None
    except (TypeError, ValueError) as error:
        raise UnsupportedCheckpoint(f"hparams.json cannot be read: {error}.") from None


def _refuse_what_differs(data: Mapping[str, Any]) -> None:
    kind = data.get("model_type", "gpt2")
    activation = data.get("activation_function", "gelu_new")
    refusals = {
        f"model_type {kind!r} (only 'gpt2' is supported)": kind != "gpt2",
        f"activation_function {activation!r} (only the tanh GELU is supported)": activation not in _TANH_GELU,
        "attention scores without scaling": not data.get("scale_attn_weights", True),
        "scale_attn_by_inverse_layer_idx": bool(data.get("scale_attn_by_inverse_layer_idx")),
        "reorder_and_upcast_attn": bool(data.get("reorder_and_upcast_attn")),
        "cross-attention": bool(data.get("add_cross_attention")),
    }
    asked = [what for what, refused in refusals.items() if refused]
    if asked:
        raise UnsupportedCheckpoint(f"This checkpoint needs what this model does not do: {'; '.join(asked)}.")
