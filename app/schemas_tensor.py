"""One tensor of a trace in numbers, as the API gives it."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, Field, WithJsonSchema

from provenance.catalogue import Catalogue
from provenance.names import Address
from provenance.recorder import Check
from provenance.summary import Summary
from provenance.trace import Trace

# Not as a tuple of schemas, which many readers of such documents do not know.
_PAIR = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}


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
    quantiles: list[Annotated[tuple[float, float], WithJsonSchema(_PAIR)]] = Field(
        description="pairs of q and the value there"
    )
    histogram_edges: list[float]
    histogram_counts: list[int]
    npy_dtype: str = Field(description="dtype of the values as .npy; bfloat16 is handed out as float32")
    replay_bit_for_bit: bool | None = Field(
        description="whether the replay equals the kept tensors; null where none are kept to compare"
    )


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
