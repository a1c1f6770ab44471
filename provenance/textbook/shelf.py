"""The textbook models by name: all options have a name, and a few are offered."""

import math

from provenance.digest import digest
from provenance.errors import InvalidInput
from provenance.model import ModelInfo
from provenance.model_sources import Inspection, Kind, Source
from provenance.prompt import Tokenizer
from provenance.textbook.config import FAMILY, Config, named
from provenance.textbook.model import Textbook
from provenance.textbook.weights import DTYPES, shapes, untrained

_DESCRIPTIONS = {
    Config(): "The lesson's transformer with seeded random weights: as its listing has it, post-norm and not causal",
    Config(norm="pre", causal=True): "The same with its norms before attention and MLP, and causal, as GPT-2 is",
}
_ORIGIN = Kind.SEEDED.value


class Textbooks:
    """The textbook transformers: any name that a config prints is one."""

    family = FAMILY

    def sources(self) -> tuple[Source, ...]:
        """The models that are offered."""
        return tuple(_source(config) for config in _DESCRIPTIONS)

    def knows(self, name: str) -> bool:
        """Whether a name begins as theirs do; if no options print it, the other methods say what is wrong."""
        return name.split("-")[0] == FAMILY

    def load(self, name: str, dtype: str = "float32") -> Textbook:
        """A model with its seeded weights. Raises UnknownModel, or InvalidInput for a dtype."""
        config = named(name)
        if dtype not in DTYPES:
            raise InvalidInput(
                f"This model does not compute in {dtype[:40]!r}.", hint=f"Choose {' or '.join(DTYPES)}."
            )
        weights = untrained(config)
        info = ModelInfo(name, FAMILY, config.as_json(), digest(weights), _ORIGIN, False, dtype)
        return Textbook(config, {place: tensor.to(DTYPES[dtype]) for place, tensor in weights.items()}, info)

    def inspect(self, name: str) -> Inspection:
        """What a model is. Raises UnknownModel."""
        config = named(name)
        return Inspection(
            source=_source(config),
            origin=_ORIGIN,
            config=config.as_json(),
            parameters=sum(math.prod(shape) for shape in shapes(config).values()),
            tokenizer="none: it reads vectors that are drawn from a seed",
        )

    def tokenizer(self, name: str) -> Tokenizer | None:
        """None: these models read no text. Raises UnknownModel."""
        named(name)
        return None


def _source(config: Config) -> Source:
    usual = "A textbook transformer with options of its own and seeded random weights"
    return Source(config.name, _DESCRIPTIONS.get(config, usual), True, FAMILY, kind=Kind.SEEDED)
