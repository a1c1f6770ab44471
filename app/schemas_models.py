"""What the API says of models: which there are, where their weights are, and what became of their keys."""

from collections.abc import Iterable
from typing import Self

from pydantic import BaseModel, Field

from provenance.gpt2.stored import file_sha256
from provenance.model import ModelInfo
from provenance.model_sources import Inspection, KeyReport, Source


class ModelOut(BaseModel):
    """A model that can be named, and whether its weights are here."""

    name: str
    family: str
    available: bool
    description: str
    kind: str = Field(description="where its weights come from")
    advice: str = Field("", description="what to do where they are not here")
    loaded: list[str] = Field([], description="the dtypes in which it is in memory now")

    @classmethod
    def of(cls, source: Source, models: Iterable[ModelInfo] = ()) -> Self:
        """A model as the family knows it; `models` are those in memory."""
        return cls(
            name=source.name,
            family=source.family,
            available=source.available,
            description=source.description,
            kind=source.kind.value,
            advice=source.advice,
            loaded=[model.dtype for model in models if model.name == source.name],
        )


class RenamedKey(BaseModel):
    """A key of a checkpoint, and how transformers saves the same parameter."""

    key: str
    saved_as: str


class KeysOut(BaseModel):
    """What became of a checkpoint's keys. Anything missing, unexpected or misshapen is a refusal."""

    fits: bool
    matched: list[str]
    renamed: list[RenamedKey]
    ignored: list[str]
    missing: list[str]
    unexpected: list[str]
    misshapen: list[str] = Field(description="keys with the shape and dtype that they have")
    warnings: list[str]

    @classmethod
    def of(cls, report: KeyReport) -> Self:
        """A report as JSON."""
        return cls(
            fits=report.fits,
            matched=list(report.matched),
            renamed=[RenamedKey(key=key, saved_as=saved) for key, saved in report.renamed],
            ignored=list(report.ignored),
            missing=list(report.missing),
            unexpected=list(report.unexpected),
            misshapen=list(report.misshapen),
            warnings=list(report.warnings),
        )


class WeightFile(BaseModel):
    """A file of weights."""

    name: str
    bytes: int
    sha256: str


class ModelDetail(ModelOut):
    """A model, its weights and its config. `sha256` is what its traces name."""

    origin: str
    tokenizer: str = Field(description="how a text becomes token ids")
    config: dict[str, int | float | str] | None
    parameters: int | None
    sha256: str | None = Field(description="of several files, the hash of their hashes in order of name")
    files: list[WeightFile]
    keys: KeysOut | None
    problem: str = Field(description="why it cannot be loaded; empty where it can")

    @classmethod
    def inspected(cls, found: Inspection, models: Iterable[ModelInfo] = ()) -> Self:
        """A model as it was inspected; `models` are those in memory."""
        mine = [model for model in models if model.name == found.source.name]
        known = mine[0].weights_sha256 if mine else None
        return cls(
            **ModelOut.of(found.source, mine).model_dump(),
            origin=found.origin,
            tokenizer=found.tokenizer,
            config=dict(found.config) if found.config is not None else None,
            parameters=found.parameters,
            sha256=found.sha256 or known,
            files=[
                WeightFile(name=file.name, bytes=file.stat().st_size, sha256=file_sha256(file))
                for file in found.files
            ],
            keys=KeysOut.of(found.report) if found.report else None,
            problem=found.problem,
        )
