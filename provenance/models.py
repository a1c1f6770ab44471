"""The models of this process, of every family: loaded on demand, each once, few at a time."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path

from provenance.catalogue import Catalogue
from provenance.errors import UnknownModel
from provenance.gpt2.catalogue import CATALOGUE as GPT2_CATALOGUE
from provenance.gpt2.catalogue import GPT2_SMALL
from provenance.gpt2.checkpoints import Checkpoints, Source
from provenance.gpt2.config import Config
from provenance.model import Model, ModelInfo
from provenance.prompt import Prompt, Token, Tokenizer
from provenance.trace import Recipe

CATALOGUES: Mapping[str, Catalogue] = {"gpt2": GPT2_CATALOGUE}
"""The catalogue of every model family."""

EXAMPLE_CONSTANTS: Mapping[str, Mapping[str, int]] = {"gpt2": GPT2_SMALL}
"""Axis sizes of each family's best known model, for pages that show no trace."""


def constants_of(info: ModelInfo) -> Mapping[str, int]:
    """Axis sizes of a model, without loading it."""
    return Config(**info.config).constants  # type: ignore[arg-type]


class Models:
    """Loads models by name and keeps the most recently used; safe for several threads."""

    def __init__(self, directories: Iterable[Path] = (), keep: int = 2) -> None:
        self.checkpoints = Checkpoints(directories)
        self.keep = keep
        self._loaded: OrderedDict[tuple[str, str], Model] = OrderedDict()
        self._tokenizers: dict[str, Tokenizer] = {}
        self._lock = threading.RLock()

    def sources(self) -> tuple[Source, ...]:
        """Every model that can be named, those whose weights are not here included."""
        return self.checkpoints.sources()

    def get(self, name: str, dtype: str = "float32") -> Model:
        """A loaded model. Raises UnknownModel, UnsupportedCheckpoint or InvalidInput."""
        with self._lock:
            if (name, dtype) not in self._loaded:
                self._loaded[name, dtype] = self.checkpoints.load(name, dtype)
                while len(self._loaded) > self.keep:
                    self._loaded.popitem(last=False)
            self._loaded.move_to_end((name, dtype))
            return self._loaded[name, dtype]

    def of(self, recipe: Recipe) -> Model:
        """The model that made a trace. Raises UnknownModel where it is gone or has other weights."""
        model = self.get(recipe.model.name, recipe.model.dtype)
        if model.info.weights_sha256 != recipe.model.weights_sha256:
            raise UnknownModel(
                f"The model {recipe.model.name!r} here has other weights than the one that made this trace.",
                hint="Kept tensors can still be read; the others need the model of the recording.",
            )
        return model

    def encode(self, name: str, text: str) -> Prompt:
        """A text as the model's tokens. Raises InvalidPrompt."""
        return self._tokenizer(name).encode(text)

    def decode(self, name: str, ids: Iterable[int]) -> Prompt:
        """Token ids as a prompt. Raises InvalidPrompt for an id outside the vocabulary."""
        return self._tokenizer(name).decode_ids(ids)

    def tokens(self, name: str, ids: Iterable[int]) -> tuple[Token, ...]:
        """The tokens of ids that a model chose; one that the tokenizer lacks has no bytes."""
        tokenizer = self._tokenizer(name)
        return tuple(tokenizer.token(id) if id < tokenizer.vocabulary_size else Token(id, b"") for id in ids)

    def _tokenizer(self, name: str) -> Tokenizer:
        with self._lock:
            if name not in self._tokenizers:
                self._tokenizers[name] = self.checkpoints.tokenizer(name)
            return self._tokenizers[name]
