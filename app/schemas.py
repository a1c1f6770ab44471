"""What the API takes and gives: Pydantic models, and how they are made from our own objects."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from app.jobs import Job, State
from provenance.catalogue import Catalogue, Context, Intermediate
from provenance.lookup import Match
from provenance.names import Address
from provenance.recorder import Check
from provenance.store import Listed
from provenance.summary import Summary
from provenance.trace import Recipe, Record, TokenRecord, Trace
from provenance.variants import exists_in


class TraceRequest(BaseModel):
    """A recording to make: a text, or token ids in its place."""

    model_config = ConfigDict(extra="forbid")

    prompt: str | None = Field(None, description="the text to run")
    ids: list[int] | None = Field(None, description="token ids, in the place of a text")
    steps: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    model: Annotated[str, Field(max_length=200)] | None = Field(None, description="default: the server's")
    dtype: Annotated[str, Field(max_length=40)] = Field("float32", description="float32 or bfloat16")
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(0, description="used at temperatures over 0")
    temperature: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = Field(0.0, description="0: greedy")


class TokenOut(BaseModel):
    """A token: its id, its bytes in hexadecimal, and how a person reads it."""

    id: int
    hex: str
    text: str


class TraceOut(BaseModel):
    """A trace, or a recording that is to become one."""

    id: str
    state: State
    done: Annotated[int, Field(description="segments done")] = 0
    total: Annotated[int, Field(description="segments in all")] = 0
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
    """A row of the catalogue."""

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

    site: str
    name: str
    title: str
    reason: str


class SearchOut(BaseModel):
    """What a search found, best first."""

    query: str
    results: list[SearchResult]


class SummaryOut(BaseModel):
    """One tensor of a trace in numbers. What is not finite or masked is counted, not averaged."""

    trace: str
    address: str
    site: str
    layer: int | None
    step: int
    name: str
    title: str
    symbolic_shape: str
    shape: list[int]
    dtype: str
    device: str
    count_total: int
    count_finite: int
    count_nan: int
    count_posinf: int
    count_neginf: int
    count_zero: int
    count_masked: int
    min: float | None
    max: float | None
    mean: float | None
    std: float | None
    l2: float | None
    quantiles: list[tuple[float, float]]
    histogram_edges: list[float]
    histogram_counts: list[int]
    npy_dtype: str = Field(description="dtype of the values as .npy; bfloat16 is handed out as float32")
    replay_bit_for_bit: bool | None = Field(
        description="whether the replay equals the kept tensors; null where none are kept to compare"
    )


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
    progress = {"done": job.done, "total": job.total, "error": job.error}
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


def result_of(match: Match) -> SearchResult:
    """A row that a search found."""
    return SearchResult(site=match.row.site, name=match.row.name, title=match.row.title, reason=match.reason)


def summary_of(
    catalogue: Catalogue,
    trace: Trace,
    address: Address,
    constants: Mapping[str, int],
    summary: Summary,
    check: Check | None,
) -> SummaryOut:
    """A tensor's summary, as JSON can hold it."""
    row = catalogue.row(address.site)
    histogram = summary.histogram
    return SummaryOut(
        trace=trace.id,
        address=str(address),
        site=address.site,
        layer=address.layer,
        step=address.step,
        name=row.name,
        title=row.title,
        symbolic_shape=catalogue.shape(row, constants, decode=address.step > 0),
        shape=list(summary.shape),
        dtype=summary.dtype,
        device=summary.device,
        count_total=summary.count_total,
        count_finite=summary.count_finite,
        count_nan=summary.count_nan,
        count_posinf=summary.count_posinf,
        count_neginf=summary.count_neginf,
        count_zero=summary.count_zero,
        count_masked=summary.count_masked,
        min=summary.minimum,
        max=summary.maximum,
        mean=summary.mean,
        std=summary.std,
        l2=summary.l2,
        quantiles=[(quantile.q, quantile.value) for quantile in summary.quantiles],
        histogram_edges=list(histogram.edges) if histogram else [],
        histogram_counts=list(histogram.counts) if histogram else [],
        npy_dtype="float32" if summary.dtype == "bfloat16" else summary.dtype,
        replay_bit_for_bit=check.bit_for_bit if check and check.compared else None,
    )
