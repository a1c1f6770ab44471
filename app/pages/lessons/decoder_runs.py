"""The runs that the chapter on the causal decoder reads."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.lessons.reading import Reading, Readings
from provenance.errors import InvalidOption, InvalidPrompt, PromptTooLong, UnknownModel, UnsupportedCheckpoint
from provenance.lessons.options import Options
from provenance.prompt import Token

LEAST_TOKENS, MOST_TOKENS = 2, 40


@dataclass(frozen=True, slots=True)
class TextRuns:
    """Runs of the default model: `decoded` is the prompt with decode steps, `whole` the same tokens in one prefill.

    `other` is the prompt with another token at position `at`.
    """

    decoded: Reading
    whole: Reading
    other: Reading
    at: int

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The prompt's tokens."""
        return self.decoded.trace.recipe.prompt.tokens


@dataclass(frozen=True, slots=True)
class VectorRuns:
    """Runs of the textbook model with and without its mask; the `other` ones have another vector at `at`."""

    causal: Reading
    causal_other: Reading
    unmasked: Reading
    unmasked_other: Reading
    at: int


def text_runs(explorer: Explorer, options: Options) -> TextRuns | str:
    """The default model's runs, or in words why there are none here. Raises InvalidOption for the text or `at`."""
    readings = Readings(explorer)
    try:
        decoded = readings.gpt2(options.text, steps=options.steps)
    except (UnknownModel, UnsupportedCheckpoint) as problem:
        return " ".join(part for part in (problem.message, problem.hint) if part)
    except (InvalidPrompt, PromptTooLong) as problem:
        raise InvalidOption("text", problem.message, hint=problem.hint) from None
    ids = decoded.trace.recipe.prompt.ids
    _check_length(len(ids))
    at = _position(options.at, len(ids), "the text")
    chosen = [token.id for token in decoded.trace.generated[: options.steps]]
    return TextRuns(
        decoded=decoded,
        whole=readings.gpt2(ids=(*ids, *chosen)),
        other=readings.gpt2(ids=(*ids[:at], _another(ids, at), *ids[at + 1 :])),
        at=at,
    )


def vector_runs(explorer: Explorer, options: Options) -> VectorRuns:
    """The textbook model's runs. Raises InvalidOption for `at`."""
    readings, length = Readings(explorer), options.length
    at = _position(options.at, length, "the textbook model's input")
    other = (*range(at), length, *range(at + 1, length))  # a vector that stands nowhere else
    with_mask, without = options.but(causal=True), options.but(causal=False)
    return VectorRuns(
        causal=readings.textbook(with_mask),
        causal_other=readings.textbook(with_mask, other),
        unmasked=readings.textbook(without),
        unmasked_other=readings.textbook(without, other),
        at=at,
    )


def _another(ids: tuple[int, ...], at: int) -> int:
    """A token for the place of another: the first of the text that is not the same, or any."""
    return next((id for id in ids if id != ids[at]), 0 if ids[at] else 1)


def _check_length(length: int) -> None:
    if not LEAST_TOKENS <= length <= MOST_TOKENS:
        tokens = f"{length} token{'' if length == 1 else 's'}"
        raise InvalidOption(
            "text",
            f"The text has {tokens}; this chapter takes from {LEAST_TOKENS} to {MOST_TOKENS}.",
            hint="Each token but the first is predicted from those before it, and each has a row on the page.",
        )


def _position(at: int, length: int, where: str) -> int:
    if at >= length:
        raise InvalidOption("at", f"at must be a position of {where}, 1 to {length - 1}, not {at}.")
    return at or length // 2
