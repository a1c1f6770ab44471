"""What the API takes and gives: Pydantic models, and how they are made from our own objects."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from app.jobs import Job, State
from provenance.catalogue import Catalogue, Context, Intermediate
from provenance.edits import MOST_EDITS
from provenance.lookup import Match
from provenance.prompt import MOST_BATCH
from provenance.store import Listed
from provenance.trace import Recipe, Record, TokenRecord
from provenance.variants import exists_in
from provenance.vectors import MOST_LENGTH

_INPUTS = {"prompt": "string", "ids": "array", "length": "integer"}
_EITHER: list[JsonValue] = [
    {
        "required": [given],
        "properties": {name: {"type": kind if name == given else "null"} for name, kind in _INPUTS.items()},
    }
    for given in _INPUTS
]
"""A recording has a prompt, or ids, or a length."""


class TraceRequest(BaseModel):
    """A recording to make: a text or token ids; for a model that reads no text a number of vectors, or theirs."""

    # Strict, so that `"3"` and `true` are no numbers here either, as the schema says.
    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"oneOf": _EITHER})

    prompt: str | None = Field(None, description="the text to run", json_schema_extra={"minLength": 1})
    ids: list[int] | None = Field(
        None,
        description="token ids, in the place of a text; for a model that reads vectors the numbers of those",
        json_schema_extra={"minItems": 1},
    )
    length: Annotated[int, Field(ge=1, le=MOST_LENGTH)] | None = Field(
        None, description="positions, for a model that reads vectors; they are numbered from 0"
    )
    batch: Annotated[int, Field(ge=1, le=MOST_BATCH)] | None = Field(
        None, description="batch entries, for a model that reads vectors; 8 where it is not said"
    )
    input_seed: Annotated[int, Field(ge=0, lt=2**63)] | None = Field(
        None, description="what the vectors are drawn from; 0 where it is not said"
    )
    steps: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    model: Annotated[str, Field(max_length=200)] | None = Field(None, description="default: the server's")
    dtype: Annotated[str, Field(max_length=40)] = Field(
        "float32", description="what the model computes in", json_schema_extra={"enum": ["float32", "bfloat16"]}
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(0, description="used at temperatures over 0")
    temperature: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = Field(0.0, description="0: greedy")
    edits: Annotated[list[Annotated[str, Field(max_length=500)]], Field(max_length=MOST_EDITS)] = Field(
        default=[], description="changes of tensors, in their order: `h.3.attn.pattern[head=2]=0`"
    )


class TokenOut(BaseModel):
    """A token: its id, its bytes in hexadecimal, and how a person reads it."""

    id: int
    hex: str
    text: str


class TraceOut(BaseModel):
    """A trace, or a recording that is to become one. `batch` and `input_seed` are those of a run on vectors."""

    id: str
    state: State
    done: Annotated[int, Field(description="segments done")] = 0
    total: Annotated[int, Field(description="segments in all")] = 0
    position: Annotated[int | None, Field(description="place in the queue of one that waits; 1 is the next")] = None
    error: str = ""
    model: str = ""
    family: str = ""
    trained: bool = False
    weights_sha256: str = ""
    dtype: str = ""
    device: str = ""
    threads: int = 0
    steps: int = 0
    temperature: float = 0.0
    seed: int = 0
    prompt: str | None = None
    batch: int | None = None
    input_seed: int | None = None
    edits: Annotated[list[str], Field(description="changes that are made while it runs, in their order")] = []
    unedited: Annotated[str | None, Field(description="the same run without its edits; null without edits")] = None
    tokens: list[TokenOut] = []
    generated: list[TokenOut] = []
    created_at: str | None = None
    tensors_sha256: str | None = None
    tensors_bytes: int | None = None


class EvidenceOut(BaseModel):
    """One claim, by a neighbouring operation, and the pinned lines that prove it."""

    operation: str
    role: str = Field(description="producer or consumer")
    claim: str
    label: str
    repository: str
    revision: str
    path: str
    lines: str
    spans: list[tuple[int, int]]
    permalink: str


class SiteOut(BaseModel):
    """A row of the catalogue of a model family."""

    family: str
    site: str
    name: str
    title: str
    description: str
    kind: str
    group: list[str]
    shape: str = Field(description="symbolic, for the family's best known model")
    shape_in_decode_step: str
    exists_in: str
    formula: str = Field(description="LaTeX")
    produced_by: str
    read_by: list[str]
    inputs: list[str]
    readers: list[str]
    points: list[str] = Field(description="where the cited file holds it")
    aliases: list[str]


class SiteDetail(SiteOut):
    """A row of the catalogue with its evidence."""

    evidence: list[EvidenceOut]


class SearchResult(BaseModel):
    """A row that a search found."""

    family: str
    site: str
    name: str
    title: str
    reason: str


class SearchOut(BaseModel):
    """What a search found, best first."""

    query: str
    results: list[SearchResult]


def trace_of(record: Record) -> TraceOut:
    """A stored trace."""
    return _recipe_of(record.recipe, State.DONE).model_copy(
        update={
            "generated": [_token_of(token) for token in record.generated],
            "created_at": record.created_at,
            "tensors_sha256": record.tensors_sha256,
            "tensors_bytes": record.tensors_bytes,
        }
    )


def trace_of_job(job: Job) -> TraceOut:
    """A recording that waits, runs or failed."""
    progress = {"done": job.done, "total": job.total, "position": job.position or None, "error": job.error}
    return _recipe_of(job.recipe, job.state).model_copy(update=progress)


def _token_of(record: TokenRecord) -> TokenOut:
    return TokenOut(id=record.id, hex=record.hex, text=record.token.text)


def _recipe_of(recipe: Recipe, state: State) -> TraceOut:
    return TraceOut(
        id=recipe.id,
        state=state,
        model=recipe.model.name,
        family=recipe.model.family,
        trained=recipe.model.trained,
        weights_sha256=recipe.model.weights_sha256,
        dtype=recipe.model.dtype,
        device=recipe.device,
        threads=recipe.threads,
        steps=recipe.steps,
        temperature=recipe.temperature,
        seed=recipe.seed,
        prompt=recipe.text,
        batch=recipe.drawn.batch if recipe.drawn else None,
        input_seed=recipe.drawn.seed if recipe.drawn else None,
        edits=[str(edit) for edit in recipe.edits],
        unedited=recipe.unedited.id if recipe.edits else None,
        tokens=[_token_of(token) for token in recipe.tokens],
    )


def trace_of_listed(listed: Listed) -> TraceOut:
    """A trace of the list; one that cannot be read is failed, with the reason."""
    if listed.record is None:
        return TraceOut(id=listed.id, state=State.FAILED, error=listed.problem)
    return trace_of(listed.record)


def evidence_of(context: Context) -> EvidenceOut:
    """A claim with its citation."""
    citation = context.evidence.citation
    return EvidenceOut(
        operation=context.operation.title,
        role="producer" if context.produces else "consumer",
        claim=context.evidence.claim,
        label=context.evidence.label,
        repository=citation.pin.repository,
        revision=citation.pin.revision,
        path=citation.pin.path,
        lines=citation.lines,
        spans=[(span.first, span.last) for span in citation.spans],
        permalink=citation.permalink,
    )


def site_of(catalogue: Catalogue, row: Intermediate, constants: Mapping[str, int]) -> SiteDetail:
    """A row of the catalogue with everything it is tied to."""
    return SiteDetail(
        family=catalogue.family,
        site=row.site,
        name=row.name,
        title=row.title,
        description=row.description,
        kind=row.kind.value,
        group=list(row.group),
        shape=catalogue.shape(row, constants),
        shape_in_decode_step=catalogue.shape(row, constants, decode=True),
        exists_in=exists_in(row),
        formula=row.formula,
        produced_by=catalogue.operation_of(row).title,
        read_by=[operation.title for operation in catalogue.consumers(row.site)],
        inputs=list(dict.fromkeys(read.site for read in row.inputs)),
        readers=[reader.site for reader in catalogue.readers(row.site)],
        points=[str(point) for point in row.points],
        aliases=[alias.pattern for alias in row.aliases],
        evidence=[evidence_of(context) for context in catalogue.context(row.site)],
    )


def result_of(match: Match, family: str) -> SearchResult:
    """A row that a search found in a family."""
    row = match.row
    return SearchResult(family=family, site=row.site, name=row.name, title=row.title, reason=match.reason)
