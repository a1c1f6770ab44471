"""Settings of the server and the CLI: one table of name, default and meaning.

Each can be set in the environment as TENSOR_PROVENANCE_ and its name in capitals.
"""

from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from provenance.errors import InvalidInput
from provenance.places import HOST, NAME, PORT, PREFIX, cache_directory, data_directory, split_paths

Paths = Annotated[tuple[Path, ...], NoDecode]
Words = Annotated[tuple[str, ...], NoDecode]
TOKEN_LEAST = 12
"""Characters of a token: with fewer it could be guessed."""


class Settings(BaseSettings):
    """All settings. Lists of paths are written with the system's path separator, other lists with commas."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")

    data_directory: Path = Field(default_factory=data_directory, description="where traces are stored")
    cache_directory: Path = Field(default_factory=cache_directory, description="where verified sources are kept")
    model: str = Field("demo", description="the model used where none is named")
    model_directories: Paths = Field((), description="checkpoints to offer, by their folders' names")
    model_memory_mib: int = Field(4096, ge=0, description="memory for loaded models, in MiB; one always stays")
    source_directories: Paths = Field((), description="directories or clones that hold the cited sources")
    network: bool = Field(True, description="whether `sources fetch` and `models fetch` may use the network")
    host: str = Field(HOST, description="address to listen on")
    port: int = Field(PORT, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    workers: int = Field(1, ge=1, le=64, description="web workers; from 2 on, one more process has the models")
    example: bool = Field(True, description="whether the first start records an example trace")
    replay_cache_mib: int = Field(1024, ge=0, description="memory for replayed tensors, in MiB")
    page_cache_mib: int = Field(64, ge=0, description="memory for rendered pages, in MiB; compressed")
    queue_length: int = Field(16, ge=1, description="recordings that may wait")
    steps_limit: int = Field(64, ge=0, description="decode steps that one recording may ask for")
    prompt_limit_bytes: int = Field(65536, ge=1, description="length of a prompt's text in UTF-8")
    upload_limit_mib: int = Field(64, ge=1, description="size of a file of tensors that is handed in, in MiB")
    uploads_total_mib: int = Field(512, ge=1, description="disk for such files, in MiB; the oldest go first")
    traces_limit: int = Field(10_000, ge=0, description="traces that are kept; 0 is no limit")
    store_limit_mib: int = Field(20_480, ge=0, description="disk for traces, in MiB; 0 is no limit")
    client_traces_waiting: int = Field(8, ge=0, description="recordings of one client under way; 0 is no limit")
    client_traces_per_hour: int = Field(240, ge=0, description="recordings of one client in an hour; 0 is no limit")
    client_requests_per_minute: int = Field(0, ge=0, description="requests of one client in a minute; 0 is no limit")
    body_limit_kib: int = Field(1024, ge=1, description="size of a request's body in KiB; files have their own limit")
    request_timeout_seconds: int = Field(120, ge=1, description="seconds after which a request is answered with 503")
    shutdown_seconds: int = Field(30, ge=0, description="seconds that a stop waits for requests, and for a recording")
    read_only: bool = Field(False, description="whether traces are only shown, and everything else is refused")
    token: SecretStr | None = Field(None, description="what recording and deleting take; nothing without it")
    token_for: Literal["changes", "deleting"] = Field("changes", description="what takes the token")
    allowed_hosts: Words = Field((), description="names under which the server may be asked")
    trusted_proxies: Words = Field((), description="addresses of proxies whose X-Forwarded headers count")
    metrics: bool = Field(False, description="whether /metrics answers Prometheus")
    log_level: Literal["debug", "info", "warning", "error"] = Field("warning", description="what is logged at least")
    log_format: Literal["text", "json"] = Field("text", description="how a line of the log is written")

    @field_validator("model_directories", "source_directories", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return split_paths(value)
        return value

    @field_validator("allowed_hosts", "trusted_proxies", mode="before")
    @classmethod
    def _words(cls, value: object) -> object:
        return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value

    @field_validator("token")
    @classmethod
    def _long_enough(cls, token: SecretStr | None) -> SecretStr | None:
        if token is not None and len(token.get_secret_value()) < TOKEN_LEAST:
            raise ValueError(f"it has fewer than {TOKEN_LEAST} characters")
        return token


def load_settings(**overrides: object) -> Settings:
    """Settings from the environment, with overrides. Raises InvalidInput naming key and value."""
    try:
        return Settings(**overrides)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        key = "_".join(str(part) for part in first["loc"][:1])
        value = "what it is" if key == "token" else repr(first["input"])  # a token is never shown
        raise InvalidInput(f"The setting {PREFIX}{key.upper()} cannot be {value}: {first['msg']}.") from None


def version() -> str:
    """The installed version of this project."""
    return metadata.version(NAME)
