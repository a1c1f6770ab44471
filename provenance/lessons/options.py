"""What a reader can change in a lesson: the textbook model's shape and choices, all of it from the URL."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self
from urllib.parse import urlencode

from provenance.errors import InvalidOption
from provenance.textbook.config import FAMILY, Config
from provenance.trace import Recipe

_WHOLE = re.compile(r"0|[1-9][0-9]{0,8}")
_DECIMAL = re.compile(r"[0-9]{1,3}(\.[0-9]{1,4})?")
_WORDS: Mapping[str, tuple[str, ...]] = {
    "norm": ("post", "pre"),
    "positions": ("sinusoidal", "learned", "none"),
}
LIMITS: Mapping[str, tuple[int, int]] = {
    "d": (8, 256),
    "heads": (1, 16),
    "length": (2, 64),
    "batch": (1, 8),
    "layers": (1, 12),
    "seed": (0, 999_999_999),
    "steps": (1, 8),
    "at": (0, 63),
}
"""The least and the most of each whole number."""
_LEAST_TEMPERATURE, _MOST_TEMPERATURE = 0.01, 100.0

TEXT = "The quick brown fox jumps over the lazy dog"
"""What GPT-2 reads where a reader types no text: the application's example."""
MOST_TEXT = 300
"""The most characters of a text."""
_DTYPE = "float32"
"""What the lessons' runs compute in."""


@dataclass(frozen=True, slots=True)
class Options:
    """The state of a lesson: `d` channels in `heads` heads, `length` positions in `batch` sequences.

    `seed` draws the input. GPT-2 reads `text` and decodes `steps` tokens more; `at` is the position of a token
    to change, 0 for the middle. Construction does not check; `read` does.
    """

    d: int = 64
    heads: int = 8
    length: int = 20
    batch: int = 8
    layers: int = 6
    norm: str = "post"
    causal: bool = False
    positions: str = "sinusoidal"
    temperature: float = 1.0
    scaled: bool = True
    seed: int = 0
    text: str = TEXT
    steps: int = 3
    at: int = 0

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Self:
        """The options of a URL; what it leaves out or empty has its default, what is no option is left alone.

        Raises InvalidOption, with the field that is wrong.
        """
        given = {field.name: query[field.name].strip() for field in fields(cls) if query.get(field.name, "").strip()}
        options = cls(**{name: _READ.get(name, _whole)(name, text) for name, text in given.items()})
        if options.d % 2:
            raise InvalidOption("d", f"d must be even, not {options.d}.", hint="Sine and cosine take half each.")
        if options.d % options.heads:
            raise InvalidOption(
                "heads",
                f"{options.heads} heads cannot share {options.d} channels equally.",
                hint=f"{options.d} can be split into {_in_words(_divisors(options.d))}.",
            )
        return options

    @classmethod
    def of(cls, recipe: Recipe) -> Self | None:
        """The state whose run this is: that of a textbook model's input, or of a text and its decode steps.

        None where no URL says it: with edits, in another dtype, with other vectors than 0, 1, 2 …, without a text,
        at a temperature, or outside the limits. Which model read a text, and in which tokens, is not looked at.
        """
        if recipe.edits or recipe.temperature or recipe.model.dtype != _DTYPE:
            return None
        found = cls._of_vectors(recipe) if recipe.drawn else cls._of_text(recipe)
        try:
            return found if found and cls.read(found.changed) == found else None
        except InvalidOption:
            return None

    @classmethod
    def _of_vectors(cls, recipe: Recipe) -> Self | None:
        numbers = [token.id for token in recipe.tokens]
        if recipe.drawn is None or recipe.model.family != FAMILY or numbers != list(range(len(numbers))):
            return None
        config = Config.from_json(recipe.model.config)
        return cls(
            d=config.n_embd,
            heads=config.n_head,
            length=len(numbers),
            batch=recipe.drawn.batch,
            layers=config.n_layer,
            norm=config.norm,
            causal=config.causal,
            positions=config.positions,
            temperature=config.temperature,
            scaled=config.scaled,
            seed=recipe.drawn.seed,
        )

    @classmethod
    def _of_text(cls, recipe: Recipe) -> Self | None:
        return None if recipe.text is None else cls(text=recipe.text, steps=recipe.steps)

    @property
    def config(self) -> Config:
        """The textbook model with these options."""
        return Config(
            n_layer=self.layers,
            n_head=self.heads,
            n_embd=self.d,
            norm=self.norm,  # type: ignore[arg-type]
            causal=self.causal,
            positions=self.positions,  # type: ignore[arg-type]
            temperature=self.temperature,
            scaled=self.scaled,
        )

    @property
    def head_width(self) -> int:
        """Channels of one head."""
        return self.d // self.heads

    @property
    def changed(self) -> Mapping[str, str]:
        """What differs from the defaults, as it stands in a URL."""
        usual = Options()
        pairs = ((field.name, getattr(self, field.name), getattr(usual, field.name)) for field in fields(self))
        return {name: as_text(value) for name, value, default in pairs if value != default}

    @property
    def query(self) -> str:
        """The canonical query string: what differs from the defaults, in order; empty where nothing does."""
        return urlencode(self.changed)

    def but(self, **changes: Any) -> Self:
        """The same with some options changed."""
        return replace(self, **changes)


def as_text(value: object) -> str:
    """An option's value as it is typed: truth values as yes and no."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4f}".rstrip("0").rstrip(".")
    return str(value)


def _whole(name: str, text: str) -> int:
    least, most = LIMITS[name]
    if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
        raise InvalidOption(name, f"{name} must be a whole number from {least} to {most}, not {text[:40]!r}.")
    return int(text)


def _word(name: str, text: str) -> str:
    known = _WORDS[name]
    if text not in known:
        raise InvalidOption(name, f"{name} must be {_in_words(known)}, not {text[:40]!r}.")
    return text


def _text(name: str, text: str) -> str:
    if len(text) > MOST_TEXT:
        raise InvalidOption(name, f"The text is longer than {MOST_TEXT} characters.")
    return text


def _truth(name: str, text: str) -> bool:
    if text not in ("yes", "no"):
        raise InvalidOption(name, f"{name} must be yes or no, not {text[:40]!r}.")
    return text == "yes"


def _temperature(name: str, text: str) -> float:
    if not _DECIMAL.fullmatch(text) or not _LEAST_TEMPERATURE <= float(text) <= _MOST_TEMPERATURE:
        raise InvalidOption(
            name,
            f"{name} must be a number from {_LEAST_TEMPERATURE:g} to {_MOST_TEMPERATURE:g}, not {text[:40]!r}.",
            hint="At most four decimals count.",
        )
    return float(text)


_READ: Mapping[str, Callable[[str, str], Any]] = {
    "norm": _word,
    "positions": _word,
    "causal": _truth,
    "scaled": _truth,
    "temperature": _temperature,
    "text": _text,
}


def _divisors(number: int) -> tuple[str, ...]:
    least, most = LIMITS["heads"]
    return tuple(str(heads) for heads in range(least, most + 1) if number % heads == 0)


def _in_words(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
