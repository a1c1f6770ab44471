"""Where GPT-2 models come from: seeded weights, the hub's cache, and directories of the operator."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub import try_to_load_from_cache

from provenance.errors import InvalidInput, UnknownModel, UnsupportedCheckpoint
from provenance.gpt2.config import Config
from provenance.gpt2.model import GPT2
from provenance.gpt2.weights import DTYPES, digest, read_directory, untrained
from provenance.model import ModelInfo
from provenance.prompt import Tokenizer

SEEDED = {
    "gpt2-untrained": (
        Config(),
        "GPT-2 small with seeded random weights: true shapes, values without meaning",
    ),
    "tiny-untrained": (
        Config(n_layer=2, n_head=4, n_embd=32, n_ctx=64, n_inner=128),
        "2 layers of width 32 with seeded random weights, for tests and quick looks",
    ),
}
HUB = {
    "gpt2": "openai-community/gpt2",
    "gpt2-medium": "openai-community/gpt2-medium",
    "gpt2-large": "openai-community/gpt2-large",
    "gpt2-xl": "openai-community/gpt2-xl",
}


@dataclass(frozen=True, slots=True)
class Source:
    """A model that can be named: where its weights come from, and whether they are here."""

    name: str
    description: str
    available: bool
    directory: Path | None = None


class Checkpoints:
    """All GPT-2 models that can be named here.

    `directories` are checkpoints the operator offers, each under its folder's name.
    """

    def __init__(self, directories: Iterable[Path] = ()) -> None:
        self.directories = {directory.resolve().name: directory.resolve() for directory in directories}

    def sources(self) -> tuple[Source, ...]:
        """Every model by name, those that are not here included."""
        return (
            *(Source(name, text, True) for name, (_, text) in SEEDED.items()),
            *(Source(name, f"Directory {path.name}", path.is_dir(), path) for name, path in self.directories.items()),
            *(_hub_source(name, repository) for name, repository in HUB.items() if name not in self.directories),
        )

    def source(self, name: str) -> Source:
        """A model by its name. Raises UnknownModel, which says what to do where weights are not here."""
        for source in self.sources():
            if source.name == name and source.available:
                return source
            if source.name == name:
                raise UnknownModel(
                    f"The weights of {name!r} are not on this machine.",
                    hint=f"Put them into the hub's cache (hf download {HUB[name]})"
                    if name in HUB
                    else f"The directory {name!r} is gone.",
                )
        here = ", ".join(source.name for source in self.sources() if source.available)
        raise UnknownModel(f"There is no model named {name[:80]!r} here.", hint=f"Here are: {here}.")

    def load(self, name: str, dtype: str = "float32") -> GPT2:
        """Load a model. Raises UnknownModel, UnsupportedCheckpoint, or InvalidInput for a dtype."""
        _check_dtype(dtype)
        source = self.source(name)
        if source.directory is None:
            config = SEEDED[name][0]
            weights = untrained(config)
            sha256, trained, origin = digest(weights), False, "untrained: random weights from seed 0"
        else:
            config, weights, sha256 = read_directory(source.directory)
            trained, origin = True, f"checkpoint {source.directory.name}"
        weights = {place: tensor.to(DTYPES[dtype]) for place, tensor in weights.items()}
        _check_finite(weights, name)
        info = ModelInfo(name, "gpt2", config.as_json(), sha256, origin, trained, dtype)
        return GPT2(config, weights, info, source.directory)

    def tokenizer(self, name: str) -> Tokenizer:
        """The model's own tokenizer where its directory has one, else GPT-2's."""
        directory = self.source(name).directory
        own = ("tokenizer.json", "vocab.json", "encoder.json")
        if directory is not None and any((directory / file).is_file() for file in own):
            return Tokenizer.load(directory)
        return Tokenizer.load()


def _hub_source(name: str, repository: str) -> Source:
    cached = try_to_load_from_cache(repository, "config.json")
    directory = Path(cached).parent if isinstance(cached, str) else None
    return Source(name, f"OpenAI's weights, as published in {repository}", directory is not None, directory)


def _check_dtype(dtype: str) -> None:
    if dtype not in DTYPES:
        raise InvalidInput(
            f"This model does not compute in {dtype[:40]!r}.",
            hint="Choose float32 or bfloat16; in float16 the mask of 10¹⁰ overflows and all values become NaN.",
        )


def _check_finite(weights: dict[str, torch.Tensor], name: str) -> None:
    for place, tensor in weights.items():
        if not torch.isfinite(torch.stack(tensor.aminmax())).all():
            raise UnsupportedCheckpoint(f"The weight {place} of {name!r} holds values that are not finite.")
