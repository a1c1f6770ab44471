"""Citations as the API gives them: each evidence of a tensor, and a trace, in every format."""

from pydantic import BaseModel, ConfigDict, Field

from provenance.catalogue import Catalogue, Context, Intermediate
from provenance.cited import code_citation
from provenance.citing import CodeCitation
from provenance.citing_trace import TraceCitation
from provenance.sources import Sources


class SpanOut(BaseModel):
    """Cited lines that follow one another."""

    model_config = ConfigDict(extra="forbid")

    first: int
    last: int
    anchor: str = Field(description="the function and statement that must stand there")
    url: str
    swhid: str


class CitationOut(BaseModel):
    """One claim about a tensor, and its pinned lines in every format."""

    model_config = ConfigDict(extra="forbid")

    operation: str
    role: str = Field(description="producer or consumer")
    label: str
    claim: str
    repository: str
    revision: str
    path: str
    author: str
    license: str
    lines: str = Field(description="the whole range")
    spans: list[SpanOut] = Field(description="the cited lines; what lies between two spans is not cited")
    blob: str = Field(description="git blob id of the content in which the lines stand, 40 hex digits")
    settled: bool = Field(description="whether that blob is known to be the pinned revision's own")
    known: str
    url: str
    swhid: str = Field(description="qualified; without origin, anchor and path where the blob is not settled")
    core_swhid: str
    markdown: str
    bibtex: str
    cff: str


class TraceCitationOut(BaseModel):
    """What determines a trace, and its reference in every format that a trace has."""

    model_config = ConfigDict(extra="forbid")

    id: str
    model: str
    family: str
    trained: bool
    weights_sha256: str
    dtype: str
    device: str
    threads: int
    torch: str
    prompt: str | None
    token_ids: list[int]
    steps: int
    temperature: float
    seed: int
    created_at: str
    tensors_sha256: str
    edits: list[str] = Field(description="changes that were made while it ran, in their order")
    batch: int | None = Field(description="batch entries of a run on seeded vectors; null where it read tokens")
    input_seed: int | None = Field(description="what those vectors are drawn from; null where it read tokens")
    markdown: str
    bibtex: str
    cff: str


class CitedOut(BaseModel):
    """The evidence of a tensor, and the trace where one was named."""

    citations: list[CitationOut]
    trace: TraceCitationOut | None = None


def citation_of(context: Context, code: CodeCitation) -> CitationOut:
    """A citation with the claim's place among the tensor's evidence."""
    place = {
        "operation": context.operation.title,
        "role": "producer" if context.produces else "consumer",
        "label": context.evidence.label,
    }
    return CitationOut.model_validate({**place, **code.fields()})


def citations_of(catalogue: Catalogue, row: Intermediate, sources: Sources) -> list[CitationOut]:
    """Every evidence of a tensor, its producer's first."""
    context = catalogue.context(row.site)
    return [citation_of(entry, code_citation(sources, entry.evidence)) for entry in context]


def trace_citation_of(trace: TraceCitation) -> TraceCitationOut:
    """A trace's citation."""
    return TraceCitationOut.model_validate(trace.fields())
