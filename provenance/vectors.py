"""What a request says of a run on seeded vectors, for models that read no text."""

from collections.abc import Iterable
from dataclasses import dataclass

from provenance.errors import InvalidInput, InvalidPrompt
from provenance.prompt import Drawn

LENGTH = 20
"""Positions, where a request does not say how many."""

MOST_LENGTH = 1_000_000
"""Longer than any model's context; so the numbers need not be written down to see it."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """How many positions, how many batch entries, and the seed of the vectors; None where it is not said."""

    length: int | None = None
    batch: int | None = None
    seed: int | None = None

    def check_none(self) -> None:
        """Raise InvalidInput where something was said: the model reads tokens."""
        for name, value in (("length", self.length), ("batch", self.batch), ("input seed", self.seed)):
            if value is not None:
                raise InvalidInput(
                    f"This model reads the tokens of a text, so it takes no {name}.", hint="Leave it out."
                )

    def drawn(self, text: str | None, ids: Iterable[int] | None) -> tuple[list[int], Drawn]:
        """The numbers of the vectors at the positions, and where they are drawn from.

        Raises InvalidPrompt for a text, and InvalidInput for a size out of range.
        """
        if text is not None:
            raise InvalidPrompt(
                "This model reads vectors drawn from a seed, so it takes no text.",
                hint="Give a length, a batch and an input seed, or the numbers of the vectors as ids.",
            )
        numbers = None if ids is None else list(ids)
        if numbers is not None and self.length not in (None, len(numbers)):
            raise InvalidInput(f"The length {self.length} is not the number of ids, {len(numbers)}.")
        length = LENGTH if self.length is None else self.length
        if not 1 <= length <= MOST_LENGTH:
            raise InvalidInput(f"The length must lie between 1 and {MOST_LENGTH}, not {length}.")
        default = Drawn()
        drawn = Drawn(
            default.batch if self.batch is None else self.batch, default.seed if self.seed is None else self.seed
        )
        return (list(range(length)) if numbers is None else numbers), drawn
