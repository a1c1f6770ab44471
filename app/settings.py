"""Settings of the server and the CLI: one table of name, default and meaning.

Each can be set in the environment as TENSOR_PROVENANCE_ and its name in capitals.
"""

import os
from importlib import metadata
from pathlib import Path
from typing import Annotated

from platformdirs import user_cache_path, user_data_path
from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from provenance.errors import InvalidInput

NAME = "tensor-provenance"
PREFIX = "TENSOR_PROVENANCE_"
Paths = Annotated[tuple[Path, ...], NoDecode]


class Settings(BaseSettings):
    """All settings. Lists of paths are written with the system's path separator."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")

    data_directory: Path = Field(user_data_path(NAME), description="where traces are stored")
    cache_directory: Path = Field(user_cache_path(NAME), description="where verified sources are kept")
    model: str = Field("demo", description="the model used where none is named")
    model_directories: Paths = Field((), description="checkpoints to offer, by their folders' names")
    model_memory_mib: int = Field(4096, ge=0, description="memory for loaded models, in MiB; one always stays")
    source_directories: Paths = Field((), description="directories or clones that hold the cited sources")
    network: bool = Field(True, description="whether `sources fetch` and `models fetch` may use the network")
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    example: bool = Field(True, description="whether the first start records an example trace")
    replay_cache_mib: int = Field(1024, ge=0, description="memory for replayed tensors, in MiB")
    queue_length: int = Field(16, ge=1, description="recordings that may wait")
    steps_limit: int = Field(64, ge=0, description="decode steps that one recording may ask for")
    prompt_limit_bytes: int = Field(65536, ge=1, description="length of a prompt's text in UTF-8")

    @field_validator("model_directories", "source_directories", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(Path(part) for part in value.split(os.pathsep) if part)
        return value


def load_settings(**overrides: object) -> Settings:
    """Settings from the environment, with overrides. Raises InvalidInput naming key and value."""
    try:
        return Settings(**overrides)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        key = "_".join(str(part) for part in first["loc"][:1])
        raise InvalidInput(
            f"The setting {PREFIX}{key.upper()} cannot be {first['input']!r}: {first['msg']}."
        ) from None


def version() -> str:
    """The installed version of this project."""
    return metadata.version(NAME)
