"""What is worth seeing first in a model: a prompt, and tensors of its trace, as the checkpoint says.

A checkpoint's folder may hold `showcase.json`; the demo's does. The home page links to what it names.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from provenance.errors import InvalidAddress
from provenance.names import Address

FILE = "showcase.json"


class Highlight(BaseModel):
    """One thing to see: a title, a sentence, the tensor's address, and the head to look at."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str = Field(max_length=80)
    sentence: str = Field(max_length=300)
    address: str
    head: int | None = Field(None, ge=0)

    @field_validator("address")
    @classmethod
    def _must_be_an_address(cls, text: str) -> str:
        try:
            return str(Address.parse(text))
        except InvalidAddress as error:
            raise ValueError(error.message) from None


class Showcase(BaseModel):
    """A prompt that a model has something to say about, and what to see in its trace."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: str = Field(min_length=1, max_length=2000)
    steps: int = Field(0, ge=0, le=64)
    highlights: tuple[Highlight, ...] = ()


def read_showcase(directory: Path | None) -> Showcase | None:
    """The showcase of a checkpoint's folder; None where it has none, or none that can be read."""
    if directory is None:
        return None
    try:
        return Showcase.model_validate_json((directory / FILE).read_bytes())
    except (OSError, ValidationError):
        return None
