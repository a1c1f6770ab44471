"""The models of this process, of every family: loaded on demand, each once, within a budget of memory."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from provenance.catalogue import Catalogue
from provenance.catalogues import OUTLINES, Reads, outline_of
from provenance.errors import InvalidInput, InvalidPrompt, UnknownModel, UnsupportedCheckpoint
from provenance.gpt2.checkpoints import GPT2_VOCABULARY, Checkpoints
from provenance.model import Model, ModelInfo
from provenance.model_sources import Inspection, Shelf, Source
from provenance.prompt import Drawn, Prompt, Token, Tokenizer
from provenance.textbook.shelf import Textbooks
from provenance.trace import Recipe
from provenance.variants import catalogue_of
from provenance.vectors import Vectors


def constants_of(info: ModelInfo) -> Mapping[str, int]:
    """Axis sizes of a model, without loading it."""
    return outline_of(info).constants_of(info.config)


def catalogue_of_model(info: ModelInfo) -> Catalogue:
    """The catalogue of a model, without loading it: its family's, without what other variants have."""
    outline = outline_of(info)
    return catalogue_of(outline.catalogue, outline.variants_of(info.config))


def _check_free(name: str, directory: Path, shelves: Iterable[Shelf]) -> None:
    """Raise InvalidInput where a folder of the operator has the name of another family's model."""
    for shelf in shelves:
        with suppress(UnknownModel):
            shelf.inspect(name)
            raise InvalidInput(f"{name!r} is the name of a built-in model.", hint=f"Rename the folder {directory}.")


class _Slot:
    """A model's place: its lock is held while it is loaded, so that others can be used meanwhile."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.model: Model | None = None


class Models:
    """Loads models by name, and drops the least recently used ones over a budget; safe for several threads.

    A model that is dropped while somebody computes with it stays alive until they are done. Raises
    InvalidInput where a folder has the name of another model.
    """

    def __init__(self, directories: Iterable[Path] = (), memory_bytes: int = 4 << 30) -> None:
        self.checkpoints = Checkpoints(directories)
        self.shelves: tuple[Shelf, ...] = (self.checkpoints, Textbooks())
        for name, directory in self.checkpoints.directories.items():
            _check_free(name, directory, self.shelves[1:])
        self.memory_bytes = memory_bytes
        self._slots: OrderedDict[tuple[str, str], _Slot] = OrderedDict()
        self._tokenizers: dict[str, Tokenizer | None] = {}
        self._lock = threading.Lock()
        self.refused = 0

    def sources(self) -> tuple[Source, ...]:
        """Every model that can be named, those whose weights are not here included."""
        return tuple(source for shelf in self.shelves for source in shelf.sources())

    def _shelf(self, name: str) -> Shelf:
        """The family that knows a name. Raises UnknownModel."""
        for shelf in self.shelves:
            if shelf.knows(name):
                return shelf
        here = ", ".join(source.name for source in self.sources() if source.available)
        raise UnknownModel(f"There is no model named {name[:80]!r} here.", hint=f"Here are: {here}.")

    def known(self, name: str) -> Source:
        """A model by its name, whether it is here or not. Raises UnknownModel."""
        offered = {source.name: source for source in self.sources()}
        return offered.get(name) or self._shelf(name).inspect(name).source

    def check_here(self, name: str) -> None:
        """Raise UnknownModel, which says what to do, where a model's weights are not here."""
        source = self.known(name)
        if not source.available:
            raise UnknownModel(f"The weights of {name!r} are not on this machine.", hint=source.advice)

    def inspect(self, name: str) -> Inspection:
        """What a model is, without loading it. Raises UnknownModel."""
        return self._shelf(name).inspect(name)

    def family(self, name: str) -> str:
        """The family that answers for a name. Raises UnknownModel where none does."""
        return self._shelf(name).family

    def reads(self, name: str) -> Reads:
        """What a model is run on, without loading it. Raises UnknownModel."""
        return OUTLINES[self.family(name)].reads

    def prompt(
        self, name: str, text: str | None, ids: Iterable[int] | None, vectors: Vectors
    ) -> tuple[Prompt, Drawn | None]:
        """What a model is to be run on, of all that a request can say; ids stand in the place of a text.

        Raises InvalidPrompt, or InvalidInput for what the model does not take.
        """
        drawn: Drawn | None = None
        if self.reads(name) is Reads.VECTORS:
            ids, drawn = vectors.drawn(text, ids)
        else:
            vectors.check_none()
        return (self.encode(name, text or "") if ids is None else self.decode(name, ids)), drawn

    def loaded(self) -> tuple[Model, ...]:
        """The models in memory, the most recently used last."""
        with self._lock:
            return tuple(slot.model for slot in self._slots.values() if slot.model is not None)

    def get(self, name: str, dtype: str = "float32") -> Model:
        """A loaded model. Raises UnknownModel, UnsupportedCheckpoint or InvalidInput."""
        with self._lock:
            slot = self._slots.setdefault((name, dtype), _Slot())
        try:
            with slot.lock:
                model = slot.model = slot.model or self._shelf(name).load(name, dtype)
        except BaseException:
            with self._lock:
                self._slots.pop((name, dtype), None)
            raise
        with self._lock:
            self._slots[name, dtype] = slot  # it may have been dropped since
            self._slots.move_to_end((name, dtype))
            self._drop()
        return model

    def _drop(self) -> None:
        """Forget the least recently used models until the rest fits; the newest always stays."""
        loaded = [(key, slot.model) for key, slot in self._slots.items() if slot.model is not None]
        total = sum(model.parameter_bytes for _, model in loaded)
        for key, model in loaded[:-1]:
            if total <= self.memory_bytes:
                return
            total -= model.parameter_bytes
            del self._slots[key]

    def of(self, recipe: Recipe) -> Model:
        """The model that made a trace. Raises UnknownModel where it is gone or has other weights."""
        kept = "Kept tensors can still be read; the others need the model of the recording."
        try:
            model = self.get(recipe.model.name, recipe.model.dtype)
        except (UnknownModel, UnsupportedCheckpoint) as error:
            self.refused += 1
            raise UnknownModel(
                f"The model {recipe.model.name!r} of this trace cannot be loaded any more. {error.message}", hint=kept
            ) from error
        if model.info.weights_sha256 != recipe.model.weights_sha256:
            self.refused += 1
            raise UnknownModel(
                f"The model {recipe.model.name!r} here has other weights than the one that made this trace.",
                hint=kept,
            )
        return model

    def encode(self, name: str, text: str) -> Prompt:
        """A text as the model's tokens. Raises InvalidPrompt, also where the model has no tokenizer."""
        tokenizer = self._tokenizer(name)
        if tokenizer is None:
            raise InvalidPrompt(
                f"The model {name!r} comes without a tokenizer, so a text cannot be turned into its ids; "
                f"GPT-2's is assumed for a vocabulary of {GPT2_VOCABULARY} only.",
                hint="Give the prompt as token ids: --ids 5,6,7 on the command line, `ids` in the API.",
            )
        return tokenizer.encode(text)

    def decode(self, name: str, ids: Iterable[int]) -> Prompt:
        """Token ids as a prompt; without a tokenizer its tokens have no bytes. Raises InvalidPrompt."""
        tokenizer = self._readable(name)
        if tokenizer is not None:
            return tokenizer.decode_ids(ids)
        tokens = tuple(Token(id, b"") for id in ids)
        if not tokens:
            raise InvalidPrompt("The prompt is empty.", hint="Give at least one token id.")
        return Prompt(None, tokens)

    def tokens(self, name: str, ids: Iterable[int]) -> tuple[Token, ...]:
        """The tokens of ids that a model chose; one that the tokenizer lacks has no bytes."""
        tokenizer = self._readable(name)
        known = tokenizer.vocabulary_size if tokenizer else 0
        return tuple(tokenizer.token(id) if tokenizer and id < known else Token(id, b"") for id in ids)

    def _readable(self, name: str) -> Tokenizer | None:
        """The model's tokenizer; None where it has none, or one that cannot be used here."""
        try:
            tokenizer = self._tokenizer(name)
            return tokenizer if tokenizer and tokenizer.vocabulary_size else None
        except UnsupportedCheckpoint:
            return None

    def _tokenizer(self, name: str) -> Tokenizer | None:
        with self._lock:
            if name in self._tokenizers:
                return self._tokenizers[name]
        tokenizer = self._shelf(name).tokenizer(name)
        with self._lock:
            return self._tokenizers.setdefault(name, tokenizer)
