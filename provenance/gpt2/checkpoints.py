"""Where GPT-2 models come from: the demo, seeded weights, the hub's cache, and folders of the operator."""

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch

from provenance.digest import digest
from provenance.errors import InvalidInput, UnknownModel, UnsupportedCheckpoint
from provenance.gpt2.config import Config
from provenance.gpt2.hub import HUB, cached
from provenance.gpt2.keys import shapes
from provenance.gpt2.model import GPT2
from provenance.gpt2.stored import SINGLE
from provenance.gpt2.weights import DTYPES, open_directory, read_config, untrained
from provenance.model import ModelInfo
from provenance.model_sources import Inspection, Kind, Source
from provenance.prompt import Tokenizer

FAMILY = "gpt2"

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
DEMO = "demo"
DEMO_DIRECTORY = Path(__file__).resolve().parent / DEMO

GPT2_VOCABULARY = 50257
"""GPT-2's own tokenizer is assumed for a vocabulary of this size only, where a checkpoint brings none."""

_TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "encoder.json")


class Checkpoints:
    """All GPT-2 models that can be named here.

    `directories` are checkpoints the operator offers, each under its folder's name. Raises
    InvalidInput where two have the same one, or that of a built-in model.
    """

    family = FAMILY

    def __init__(self, directories: Iterable[Path] = (), demo: Path = DEMO_DIRECTORY) -> None:
        self.demo = demo.resolve()
        self.directories: dict[str, Path] = {}
        for directory in dict.fromkeys(directory.expanduser().resolve() for directory in directories):
            if directory != self.demo:
                self._offer(directory)

    def _offer(self, directory: Path) -> None:
        name = directory.name
        if name == DEMO or name in SEEDED:
            raise InvalidInput(f"{name!r} is the name of a built-in model.", hint=f"Rename the folder {directory}.")
        if name in self.directories:
            raise InvalidInput(
                f"Two folders of models are named {name!r}: {self.directories[name]} and {directory}.",
                hint="A model is chosen by its folder's name: rename one of them.",
            )
        self.directories[name] = directory

    def sources(self) -> tuple[Source, ...]:
        """Every model by name, those that are not here included."""
        return (
            _demo_source(self.demo),
            *(Source(name, text, True, FAMILY, kind=Kind.SEEDED) for name, (_, text) in SEEDED.items()),
            *(_directory_source(name, path) for name, path in self.directories.items()),
            *(_hub_source(name) for name in HUB if name not in self.directories),
        )

    def known(self, name: str) -> Source:
        """A model by its name, whether it is here or not. Raises UnknownModel."""
        sources = self.sources()
        for source in sources:
            if source.name == name:
                return source
        here = ", ".join(source.name for source in sources if source.available)
        raise UnknownModel(f"There is no model named {name[:80]!r} here.", hint=f"Here are: {here}.")

    def source(self, name: str) -> Source:
        """A model that is here. Raises UnknownModel, which says what to do where weights are not."""
        source = self.known(name)
        if not source.available:
            raise UnknownModel(f"The weights of {name!r} are not on this machine.", hint=source.advice)
        return source

    def load(self, name: str, dtype: str = "float32") -> GPT2:
        """Load a model. Raises UnknownModel, UnsupportedCheckpoint, or InvalidInput for a dtype."""
        _check_dtype(dtype)
        source = self.source(name)
        if source.directory is None:
            config = SEEDED[name][0]
            weights = untrained(config)
            sha256, trained, origin = digest(weights), False, "untrained: random weights from seed 0"
        else:
            opened = open_directory(source.directory, pickles=_may_be_pickled(source))
            opened.report.check(source.directory)
            config, weights, sha256 = opened.config, dict(opened.weights), opened.sha256
            trained, origin = True, f"checkpoint {source.directory.name}"
        # In float32 already, this copies nothing: the weights stay mapped from their file.
        weights = {place: tensor.to(DTYPES[dtype]) for place, tensor in weights.items()}
        _check_finite(weights, name)
        info = ModelInfo(name, FAMILY, config.as_json(), sha256, origin, trained, dtype)
        return GPT2(config, weights, info, source.directory)

    def knows(self, name: str) -> bool:
        """Whether this is a GPT-2's name here."""
        return any(source.name == name for source in self.sources())

    def inspect(self, name: str) -> Inspection:
        """What a model is, and what became of its checkpoint's keys. Raises UnknownModel."""
        source = self.known(name)
        found = Inspection(source, _origin(source))
        if source.directory is None or not source.available:
            if name in SEEDED:
                found = replace(_configured(found, SEEDED[name][0]), tokenizer=_TOKENIZERS[False])
            return replace(found, problem=source.advice)
        try:
            opened = open_directory(source.directory, pickles=_may_be_pickled(source))
        except UnsupportedCheckpoint as error:
            return replace(found, problem=str(error))
        tokenizer = _TOKENIZERS[_has_own_tokenizer(source.directory)] if self._is_read(source) else _NO_TOKENIZER
        found = replace(
            _configured(found, opened.config),
            report=opened.report,
            files=opened.files,
            sha256=opened.sha256,
            tokenizer=tokenizer,
        )
        try:
            opened.report.check(source.directory)
        except UnsupportedCheckpoint as error:
            return replace(found, problem=str(error))
        return found

    def tokenizer(self, name: str) -> Tokenizer | None:
        """The model's own tokenizer where its directory has one, else GPT-2's for a vocabulary of its size.

        None for any other model: its prompts are given as ids.
        """
        source = self.source(name)
        if source.directory is not None and _has_own_tokenizer(source.directory):
            return Tokenizer.load(source.directory)
        return Tokenizer.load() if self._is_read(source) else None

    def _is_read(self, source: Source) -> bool:
        """Whether a text can be turned into ids."""
        if source.directory is None or _has_own_tokenizer(source.directory):
            return True
        return read_config(source.directory).n_vocab == GPT2_VOCABULARY


_TOKENIZERS = {True: "its own", False: "GPT-2's"}
_NO_TOKENIZER = "none: prompts are given as token ids"


def _origin(source: Source) -> str:
    """Where the weights are, in words."""
    if source.directory is None:
        return source.kind.value
    if source.kind is Kind.HUB:
        return f"{source.kind.value}: {HUB[source.name].repository} at {source.directory.name}"
    return f"{source.kind.value}: {source.directory.name!r}"


def _configured(found: Inspection, config: Config) -> Inspection:
    parameters = sum(math.prod(shape) for shape in shapes(config).values())
    return replace(found, config=config.as_json(), parameters=parameters)


def _demo_source(directory: Path) -> Source:
    text = "A small GPT-2 that this project trained"
    here = (directory / "config.json").is_file() and (directory / SINGLE).is_file()
    advice = "" if here else "This copy of the project came without it."
    return Source(DEMO, text, here, FAMILY, directory, Kind.DEMO, advice)


def _directory_source(name: str, path: Path) -> Source:
    here = path.is_dir()
    advice = "" if here else f"The directory {name!r} is gone."
    return Source(name, f"Directory {name}", here, FAMILY, path, advice=advice)


def _hub_source(name: str) -> Source:
    published, directory = HUB[name], cached(name)
    advice = (
        f"Get them: tensor-provenance models fetch {name} ({published.megabytes:,} MB). Or put them into a folder "
        f"named {name!r}, and name that in TENSOR_PROVENANCE_MODEL_DIRECTORIES."
    )
    return Source(
        name,
        f"OpenAI's weights, as published in {published.repository}",
        directory is not None,
        FAMILY,
        directory,
        Kind.HUB,
        "" if directory else advice,
    )


def _may_be_pickled(source: Source) -> bool:
    return source.kind is Kind.DIRECTORY


def _has_own_tokenizer(directory: Path) -> bool:
    return any((directory / file).is_file() for file in _TOKENIZER_FILES)


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
