"""The histogram as parts: bars, quantile marks, and what it says in words."""

from dataclasses import dataclass

from app.pages.numbers import Number, count, rounded
from app.pictures.parts import Mark
from provenance.summary import Histogram, Summary

_WIDTH, _HEIGHT = 640.0, 150.0
_SAME, _CLOSE, _EDGE = 30.0, 52.0, 26.0
"""Marks nearer than this share a text; nearer than that, their texts turn away from each other."""
_MARKS = {0.05: "5 %", 0.5: "median", 0.95: "95 %"}


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a histogram, in the picture's units; `says` is its read-out."""

    x: float
    y: float
    width: float
    height: float
    says: str


@dataclass(frozen=True, slots=True)
class HistogramPicture:
    """A histogram to draw; `alternative` says in words what it shows."""

    width: float
    height: float
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    ticks: tuple[Mark, ...]
    bins: int
    most: Number
    alternative: str


def histogram(summary: Summary) -> HistogramPicture | None:
    """The picture of a summary's histogram; None where it has none."""
    found = summary.histogram
    if found is None or not max(found.counts):
        return None
    low, high = found.edges[0], found.edges[-1]
    quantiles = {quantile.q: quantile.value for quantile in summary.quantiles}
    marks = _marks([(_across(quantiles[q], low, high), text) for q, text in _MARKS.items() if q in quantiles])
    ticks = [Mark(0.0, rounded(low), "start"), Mark(_WIDTH, rounded(high), "end")]
    if low < 0 < high and 0.12 < -low / (high - low) < 0.88:
        ticks.insert(1, Mark(_across(0.0, low, high), "0"))
    return HistogramPicture(
        width=_WIDTH,
        height=_HEIGHT,
        bars=_bars(found),
        marks=marks,
        ticks=tuple(ticks),
        bins=len(found.counts),
        most=count(max(found.counts)),
        alternative=_alternative(summary, found),
    )


def _across(value: float, low: float, high: float) -> float:
    return round((value - low) / (high - low) * _WIDTH, 2)


def _marks(places: list[tuple[float, str]]) -> tuple[Mark, ...]:
    """Marks whose texts do not cover each other: very close ones share one, close ones turn away."""
    groups: list[tuple[float, str]] = []
    for x, text in places:
        if groups and x - groups[-1][0] < _SAME:
            groups[-1] = (groups[-1][0], f"{groups[-1][1]}, {text}")
        else:
            groups.append((x, text))
    marks = []
    for n, (x, text) in enumerate(groups):
        near_before = n > 0 and x - groups[n - 1][0] < _CLOSE
        near_after = n + 1 < len(groups) and groups[n + 1][0] - x < _CLOSE
        anchor = "end" if near_after and not near_before else "start" if near_before and not near_after else "middle"
        if x < _EDGE or x > _WIDTH - _EDGE:
            anchor = "start" if x < _EDGE else "end"
        marks.append(Mark(x, text, anchor))
    return tuple(marks)


def _bars(found: Histogram) -> tuple[Bar, ...]:
    most, step = max(found.counts), _WIDTH / len(found.counts)
    bars = []
    for index, number in enumerate(found.counts):
        if number:
            height = max(1.0, number / most * _HEIGHT)
            low, high = rounded(found.edges[index]), rounded(found.edges[index + 1])
            cells = "1 cell" if number == 1 else f"{number:,} cells"
            bars.append(
                Bar(
                    round(index * step + 0.5, 2),
                    round(_HEIGHT - height, 2),
                    round(step - 1.0, 2),
                    round(height, 2),
                    f"{low} to {high}: {cells}",
                )
            )
    return tuple(bars)


def _alternative(summary: Summary, found: Histogram) -> str:
    fullest = max(range(len(found.counts)), key=found.counts.__getitem__)
    low, high = rounded(found.edges[fullest]), rounded(found.edges[fullest + 1])
    quantiles = {quantile.q: rounded(quantile.value) for quantile in summary.quantiles}
    return (
        f"Histogram of {summary.count_finite:,} values from {rounded(found.edges[0])} to "
        f"{rounded(found.edges[-1])}. Half of them lie between {quantiles[0.25]} and {quantiles[0.75]}, "
        f"the median is {quantiles[0.5]}. The fullest of {len(found.counts)} bins, {low} to {high}, holds "
        f"{found.counts[fullest]:,}."
    )
