"""A comparison as the API gives it: its rows, and the first divergence with what lies before it."""

import math

from pydantic import BaseModel, Field

from app.schemas import EvidenceOut, evidence_of
from provenance.catalogue import Catalogue
from provenance.compare import Comparison, Difference, Status, Upstream, upstream


class DifferenceOut(BaseModel):
    """How one tensor of `b` differs from that of `a`."""

    address: str = Field(description="our address; the file's name where it means no tensor known here")
    name: str = Field(description="what the other side calls it")
    status: Status
    shapes: tuple[list[int], list[int]]
    dtypes: tuple[str, str]
    compared: int = Field(description="cells compared: masked ones are left out")
    largest: float = Field(description="max|a − b| over the cells that are finite on both sides")
    relative: float = Field(description="that over max|a|")
    cosine: float | None
    tolerance: float = Field(description="what `largest` may be")
    first_index: list[int] | None = Field(description="the first cell in row-major order that differs by more")
    first_values: list[float | None] | None = Field(description="its values in a and b; null where not finite")
    note: str


class UpstreamOut(BaseModel):
    """A tensor from which the first divergence is computed; `status` is null where it was not compared."""

    address: str
    status: Status | None
    relative: float | None


class DivergenceOut(DifferenceOut):
    """The first tensor that differs, its cited lines, and what lies before it."""

    operation: str
    evidence: list[EvidenceOut]
    upstream: list[UpstreamOut]
    agreeing_operations: list[str] = Field(description="operations above it whose compared tensors all agree")


class UnknownNameOut(BaseModel):
    """A name of a file that nothing fits."""

    name: str
    near: list[str]
    why: str


class ComparisonOut(BaseModel):
    """Two sides, tensor by tensor in computation order."""

    a: str
    b: str
    how: str = Field(description="steps, positions or names")
    agrees: bool
    tolerance: float | None = Field(description="as asked for, a share of max|a|; null: by dtype")
    counts: dict[Status, int]
    first_divergence: DivergenceOut | None
    notes: list[str]
    only_a: list[str]
    only_b: list[str]
    unknown: list[UnknownNameOut]
    rows: list[DifferenceOut]


def comparison_out(a: str, b: str, found: Comparison, catalogue: Catalogue, layers: int) -> ComparisonOut:
    """A comparison as JSON can hold it; the catalogue and layers are those of side a."""
    first = found.first_divergence
    return ComparisonOut(
        a=a,
        b=b,
        how=found.how.value,
        agrees=found.agrees,
        tolerance=found.relative,
        counts={status: found.count(status) for status in Status},
        first_divergence=None if first is None else _divergence(found, first, catalogue, layers),
        notes=list(found.notes),
        only_a=list(found.only_a),
        only_b=list(found.only_b),
        unknown=[UnknownNameOut(name=lost.name, near=list(lost.near), why=lost.why) for lost in found.unknown],
        rows=[_row(found, row) for row in found.rows],
    )


def _divergence(found: Comparison, first: Difference, catalogue: Catalogue, layers: int) -> DivergenceOut:
    before: Upstream | None = upstream(found, catalogue, layers)
    cited = [context for context in catalogue.context(first.address.site) if context.produces] if before else []
    return DivergenceOut(
        **_row(found, first).model_dump(),
        operation=before.operation.title if before else "",
        evidence=[evidence_of(context) for context in cited],
        upstream=[
            UpstreamOut(
                address=str(each.address),
                status=each.difference.status if each.difference else None,
                relative=each.difference.relative if each.difference else None,
            )
            for each in (before.inputs if before else ())
        ],
        agreeing_operations=[operation.title for operation in (before.agreeing if before else ())],
    )


def _row(found: Comparison, row: Difference) -> DifferenceOut:
    return DifferenceOut(
        address=found.place_of(row),
        name=row.name,
        status=row.status,
        shapes=(list(row.shapes[0]), list(row.shapes[1])),
        dtypes=row.dtypes,
        compared=row.compared,
        largest=row.largest,
        relative=row.relative,
        cosine=row.cosine,
        tolerance=row.tolerance,
        first_index=None if row.first is None else list(row.first),
        first_values=None if row.first_values is None else [_finite(value) for value in row.first_values],
        note=row.note,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
