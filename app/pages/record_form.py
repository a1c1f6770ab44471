"""The two forms that record: a prompt, or vectors drawn from a seed; and where in them something is wrong."""

from dataclasses import dataclass, replace

from app.explorer import Explorer
from provenance.catalogues import Reads
from provenance.errors import (
    InvalidInput,
    InvalidPrompt,
    PromptTooLong,
    ProvenanceError,
    UnknownModel,
    UnsupportedCheckpoint,
)
from provenance.prompt import MOST_BATCH, Drawn
from provenance.vectors import LENGTH, MOST_LENGTH

DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True, slots=True)
class RecordForm:
    """The form of a prompt as it was typed, and what is wrong with it: the field's name and a sentence.

    Token ids stand in the place of the prompt where there are any.
    """

    prompt: str = ""
    ids: str = ""
    steps: str = "3"
    model: str = ""
    dtype: str = "float32"
    temperature: str = "0"
    seed: str = "0"
    wrong: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class VectorsForm:
    """The form of seeded vectors as it was typed, and what is wrong with it.

    Numbers of vectors stand in the place of the length where there are any.
    """

    length: str = str(LENGTH)
    batch: str = str(Drawn().batch)
    input_seed: str = str(Drawn().seed)
    ids: str = ""
    model: str = ""
    dtype: str = "float32"
    wrong: str = ""
    message: str = ""


def reads_vectors(explorer: Explorer, model: str) -> bool:
    """Whether a model, the default where none is named, is of a family that reads vectors."""
    try:
        return explorer.models.reads(model or explorer.settings.model) is Reads.VECTORS
    except UnknownModel:
        return False


def refused(form: RecordForm, problem: ProvenanceError) -> RecordForm:
    """The form with a problem, at the field that it is about."""
    return replace(form, wrong=_field(form, problem), message=str(problem))


def refused_vectors(explorer: Explorer, form: VectorsForm, problem: ProvenanceError) -> VectorsForm:
    """The same for seeded vectors."""
    return replace(form, wrong=_vectors_field(explorer, form, problem), message=str(problem))


def whole_number(text: str, name: str) -> int:
    """A typed whole number of at least 0. Raises InvalidInput."""
    if not (text.strip().isascii() and text.strip().isdigit()) or len(text.strip()) > 18:
        raise InvalidInput(f"{name} must be a whole number from 0 on, not {text[:40]!r}.")
    return int(text)


def ids_of(text: str) -> list[int]:
    """Typed ids, apart by spaces, line ends or commas; a vector's may begin with `#`. Raises InvalidInput."""
    return [whole_number(part.removeprefix("#"), "An id") for part in text.replace(",", " ").split()]


def temperature_of(text: str) -> float:
    """A typed temperature. Raises InvalidInput."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise InvalidInput(f"The temperature must be a number from 0 to 100, not {text[:40]!r}.")
    return value


def length_of(text: str) -> int | None:
    """A typed number of positions; None where none is typed. Raises InvalidInput."""
    found = _from_one(text, "The length")
    if found is not None and found > MOST_LENGTH:
        raise InvalidInput(f"The length must be at most {MOST_LENGTH}, not {found}.")
    return found


def batch_of(text: str) -> int | None:
    """A typed number of batch entries; None where none is typed. Raises InvalidInput."""
    found = _from_one(text, "The batch")
    if found is not None and found > MOST_BATCH:
        raise InvalidInput(f"The batch must be at most {MOST_BATCH}, not {found}.")
    return found


def input_seed_of(text: str) -> int | None:
    """A typed seed of vectors; None where none is typed. Raises InvalidInput."""
    return whole_number(text, "The seed of the vectors") if text.strip() else None


def _from_one(text: str, name: str) -> int | None:
    if not text.strip():
        return None
    if not (found := whole_number(text, name)):
        raise InvalidInput(f"{name} must be at least 1.")
    return found


def _field(form: RecordForm, problem: ProvenanceError) -> str:
    match problem:
        case InvalidPrompt() | PromptTooLong():
            return "ids" if form.ids.strip() else "prompt"
        case UnknownModel() | UnsupportedCheckpoint():
            return "model"
    typed = {"ids": ids_of, "steps": _any_number, "seed": _any_number, "temperature": temperature_of}
    for field, parse in typed.items():
        try:
            parse(getattr(form, field))
        except InvalidInput:
            return field
    if form.dtype not in DTYPES:
        return "dtype"
    return "steps" if isinstance(problem, InvalidInput) else ""


def _vectors_field(explorer: Explorer, form: VectorsForm, problem: ProvenanceError) -> str:
    if not reads_vectors(explorer, form.model) or isinstance(problem, UnknownModel | UnsupportedCheckpoint):
        return "vectors-model"
    typed = {"length": length_of, "batch": batch_of, "input_seed": input_seed_of, "ids": ids_of}
    for field, parse in typed.items():
        try:
            parse(getattr(form, field))
        except InvalidInput:
            return {"input_seed": "input-seed", "ids": "vectors-ids"}.get(field, field)
    if form.dtype not in DTYPES or (form.dtype != DTYPES[0] and form.dtype in problem.message):
        return "vectors-dtype"
    if isinstance(problem, InvalidInput):
        return "vectors-ids" if form.ids.strip() else "length"
    return "vectors"


def _any_number(text: str) -> int:
    return whole_number(text, "It")
