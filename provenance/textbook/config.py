"""The textbook transformer's options, and the name that says them: `textbook-pre-causal`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import Literal, Self, get_args

from provenance.errors import InvalidInput, UnknownModel

FAMILY = "textbook"
"""The family's name, with which the name of each of its models starts."""

POST_NORM, PRE_NORM = "post-norm", "pre-norm"
CAUSAL, UNMASKED = "causal mask", "no mask"
POSITIONS, NO_POSITIONS = "positions", "no positions"
SINUSOIDAL, LEARNED = "sinusoidal positions", "learned positions"
POST_NORM_WITH, POST_NORM_WITHOUT = "post-norm with positions", "post-norm without positions"
"""The catalogue's variants. Rows have the first eight only; the last two are for edges."""

Norm = Literal["post", "pre"]
Positions = Literal["sinusoidal", "learned", "none"]

_LAYERS, _HEADS, _WIDTHS = range(1, 13), range(1, 17), range(8, 257)
LEAST_TEMPERATURE, MOST_TEMPERATURE = 0.001, 100.0
_NORMS = {"post": POST_NORM, "pre": PRE_NORM}
_TABLES = {"sinusoidal": (POSITIONS, SINUSOIDAL), "learned": (POSITIONS, LEARNED), "none": (NO_POSITIONS,)}
_WORDS = {"sinusoidal": "", "learned": "learned", "none": "nopos"}


@dataclass(frozen=True, slots=True)
class Config:
    """What a textbook transformer is made of; the defaults are the lesson's listing.

    `norm` says whether a LayerNorm stands before attention and MLP or after their sums; `scaled` whether
    scores are divided by the root of a head's width, and `temperature` divides them further. Raises
    InvalidInput with the name of the first field that is out of range.
    """

    n_layer: int = 6
    n_head: int = 8
    n_embd: int = 64
    norm: Norm = "post"
    causal: bool = False
    positions: Positions = "sinusoidal"
    temperature: float = 1.0
    scaled: bool = True
    max_len: int = field(default=512, init=False)
    epsilon: float = field(default=1e-5, init=False)

    def __post_init__(self) -> None:
        _whole("n_layer", self.n_layer, _LAYERS)
        _whole("n_head", self.n_head, _HEADS)
        _whole("n_embd", self.n_embd, _WIDTHS)
        if self.n_embd % 2:
            raise InvalidInput(f"n_embd must be even, not {self.n_embd}.", hint="Sines and cosines take turns in it.")
        if self.n_embd % self.n_head:
            raise InvalidInput(
                f"n_embd {self.n_embd} cannot be split into n_head {self.n_head} heads of equal width.",
                hint="Choose a width that the number of heads divides.",
            )
        _one_of("norm", self.norm, get_args(Norm))
        _one_of("positions", self.positions, get_args(Positions))
        for name, flag in (("causal", self.causal), ("scaled", self.scaled)):
            if not isinstance(flag, bool):
                raise InvalidInput(f"{name} must be true or false, not {flag!r}.")
        if isinstance(self.temperature, int) and not isinstance(self.temperature, bool):
            object.__setattr__(self, "temperature", float(self.temperature))
        if not isinstance(self.temperature, float) or not LEAST_TEMPERATURE <= self.temperature <= MOST_TEMPERATURE:
            raise InvalidInput(
                f"temperature must lie between {LEAST_TEMPERATURE:g} and {MOST_TEMPERATURE:g}, "
                f"not {self.temperature!r}."
            )

    @property
    def head_dim(self) -> int:
        """Channels of one head."""
        return self.n_embd // self.n_head

    @property
    def n_inner(self) -> int:
        """Hidden units of the MLP: four times the width."""
        return 4 * self.n_embd

    @property
    def has_positions(self) -> bool:
        """Whether positions are added to the input."""
        return self.positions != "none"

    @property
    def stream_in(self) -> str:
        """The site of what enters the first block."""
        return "embed.h" if self.has_positions else "x"

    @property
    def stream_out(self) -> str:
        """The site of what leaves a block."""
        return "h.resid_post" if self.norm == "pre" else "h.post.norm2.out"

    @property
    def constants(self) -> dict[str, int]:
        """Sizes of the catalogue's axes that the config fixes."""
        return {
            "d": self.n_embd, "3d": 3 * self.n_embd, "m": self.n_inner, "H": self.n_head, "hd": self.head_dim,
            "C": self.max_len, "f": self.n_embd // 2, "1": 1,
        }  # fmt: skip

    @property
    def variants(self) -> frozenset[str]:
        """The catalogue's variants that this config has."""
        found = {_NORMS[self.norm], CAUSAL if self.causal else UNMASKED, *_TABLES[self.positions]}
        if self.norm == "post":
            found.add(POST_NORM_WITH if self.has_positions else POST_NORM_WITHOUT)
        return frozenset(found)

    @property
    def name(self) -> str:
        """The model's name: `textbook`, and a word for all that differs from the defaults."""
        words = (
            "pre" if self.norm == "pre" else "",
            "causal" if self.causal else "",
            _WORDS[self.positions],
            "" if self.scaled else "unscaled",
            f"d{self.n_embd}" if self.n_embd != _USUAL.n_embd else "",
            f"h{self.n_head}" if self.n_head != _USUAL.n_head else "",
            f"l{self.n_layer}" if self.n_layer != _USUAL.n_layer else "",
            f"t{_plain(self.temperature)}" if self.temperature != _USUAL.temperature else "",
        )
        return "-".join((FAMILY, *(word for word in words if word)))

    def as_json(self) -> dict[str, int | float | str]:
        """The config as a trace stores it; truth values are 0 or 1."""
        found = {option.name: getattr(self, option.name) for option in fields(self)}
        return {name: int(value) if isinstance(value, bool) else value for name, value in found.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, int | float | str]) -> Self:
        """The config that `as_json` gave. Raises InvalidInput for anything else."""
        options = dict(data)
        for name in ("max_len", "epsilon"):
            if (given := options.pop(name, None)) != (fixed := getattr(_USUAL, name)):
                raise InvalidInput(f"{name} is {fixed:g} in every textbook model, not {given!r}.")
        for name in ("causal", "scaled"):
            if options.get(name) in (0, 1):
                options[name] = bool(options[name])
        try:
            return cls(**options)  # type: ignore[arg-type]
        except TypeError:
            raise InvalidInput(f"These are not a textbook model's options: {', '.join(data)}.") from None


def named(name: str) -> Config:
    """The config that a name says. Raises UnknownModel for a name that no config prints."""
    family, *words = name.split("-")
    options: dict[str, object] = {}
    try:
        if family != FAMILY:
            raise ValueError(name)
        for word in words:
            options |= _read(word)
        config = Config(**options)  # type: ignore[arg-type]
    except ValueError:
        raise UnknownModel(f"There is no model {name[:80]!r}.", hint=_HINT) from None
    except InvalidInput as error:
        raise UnknownModel(f"There is no model {name[:80]!r}: {error.message}", hint=error.hint) from None
    if config.name != name:
        raise UnknownModel(f"There is no model {name[:80]!r}.", hint=f"This one is named {config.name!r}.")
    return config


_HINT = (
    "A textbook model is named textbook, then what differs, in this order: -pre, -causal, -learned or -nopos, "
    "-unscaled, -d32 (width), -h4 (heads), -l2 (layers), -t0.5 (temperature)."
)
_OPTIONS: Mapping[str, Mapping[str, object]] = {
    "pre": {"norm": "pre"},
    "causal": {"causal": True},
    "learned": {"positions": "learned"},
    "nopos": {"positions": "none"},
    "unscaled": {"scaled": False},
}
_NUMBERS: Mapping[str, str] = {"d": "n_embd", "h": "n_head", "l": "n_layer"}


def _read(word: str) -> Mapping[str, object]:
    """The option that a word says. Raises ValueError."""
    if word in _OPTIONS:
        return _OPTIONS[word]
    letter, rest = word[:1], word[1:]
    if not rest.isascii() or len(rest) > 40:
        raise ValueError(word)
    if letter == "t":
        return {"temperature": float(rest)}
    if letter not in _NUMBERS:
        raise ValueError(word)
    return {_NUMBERS[letter]: int(rest)}


def _plain(number: float) -> str:
    """A number as Python prints it, without an exponent and without a decimal point that says nothing."""
    return format(Decimal(repr(number)), "f").removesuffix(".0")


def _whole(name: str, value: object, allowed: range) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value not in allowed:
        raise InvalidInput(f"{name} must be a whole number from {allowed[0]} to {allowed[-1]}, not {value!r}.")


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidInput(f"{name} must be one of {', '.join(allowed)}, not {value!r}.")


_USUAL = Config()
