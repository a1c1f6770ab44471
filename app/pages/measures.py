"""One small measure of a tensor: its root mean square, or how much of it is not a number."""

import math
from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.numbers import Number, measure, percent
from provenance.names import Address
from provenance.summary import Summary
from provenance.trace import Trace


@dataclass(frozen=True, slots=True)
class Measure:
    """The root mean square of the finite, unmasked cells, and the fraction of cells that are NaN."""

    rms: float | None
    nan: float

    @property
    def number(self) -> Number:
        """The root mean square as a page shows it."""
        return measure(self.rms)

    @property
    def text(self) -> str:
        """In a few characters: NaN is said first, where there is any."""
        return f"NaN {percent(self.nan).text}" if self.nan else f"RMS {self.number.text}"


def measure_of(summary: Summary) -> Measure | None:
    """The measure of a tensor of real numbers; None for ids, indices and masks."""
    if "float" not in summary.dtype or not summary.count_total:
        return None
    rms = None
    if summary.l2 is not None and summary.count_finite:
        rms = summary.l2 / math.sqrt(summary.count_finite)
    return Measure(rms, summary.count_nan / summary.count_total)


def at_hand(explorer: Explorer, trace: Trace, address: Address) -> Measure | None:
    """A tensor's measure where nothing must be replayed for it."""
    summary = explorer.summary_at_hand(trace, address)
    return measure_of(summary) if summary else None


def by_layer(explorer: Explorer, trace: Trace, site: str, step: int) -> tuple[Measure, ...]:
    """A site's measure in every layer; empty unless all are at hand."""
    found = []
    for layer in range(trace.layers):
        known = at_hand(explorer, trace, Address(site, layer, step))
        if known is None:
            return ()
        found.append(known)
    return tuple(found)


def shares(measures: tuple[Measure, ...]) -> tuple[float, ...]:
    """Each root mean square as a part of the largest."""
    most = max((m.rms for m in measures if m.rms is not None), default=0.0)
    return tuple((m.rms or 0.0) / most if most else 0.0 for m in measures)
