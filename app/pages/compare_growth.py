"""The strip over a comparison: the relative difference of every tensor, in computation order, logarithmic."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from app.pages.compare_links import Wanted
from app.pages.compare_rows import key_of, segment_of, size_of
from app.pages.scope import step_name
from app.pictures.parts import Mark
from provenance.catalogue import Catalogue
from provenance.difference import Difference, Status

WIDTH, HEIGHT = 960.0, 120.0
MOST_BARS = 320
"""The most bars of a strip; of more tensors, those that follow one another share one, the worst of them."""
_LOWEST, _MOST_MARKS, _WIDEST, _LETTER = -9, 16, 18.0, 8


@dataclass(frozen=True, slots=True)
class Bar:
    """One tensor, or the worst of several: where its bar stands, what it says, and the page that shows it."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    says: str
    url: str


@dataclass(frozen=True, slots=True)
class Level:
    """A power of ten at the side."""

    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Growth:
    """Bars over the computation; `first` is where the first divergence stands, None where nothing diverges."""

    width: float
    height: float
    bars: tuple[Bar, ...]
    levels: tuple[Level, ...]
    parts: tuple[Mark, ...]
    first: float | None
    joined: int
    alternative: str


def growth_of(catalogue: Catalogue, rows: Sequence[Difference], wanted: Wanted) -> Growth | None:
    """The strip; None where nothing was compared, or nothing differs at all."""
    found = [row for row in rows if row.status is not Status.UNFIT]
    if all(row.status is Status.SAME for row in found):
        return None
    joined = -(-len(found) // MOST_BARS)
    bins = [found[at : at + joined] for at in range(0, len(found), joined)]
    sizes = [math.log10(row.relative) for row in found if 0 < row.relative < math.inf]
    low = max(_LOWEST, math.floor(min(sizes, default=-1.0)))
    high = max(low + 1, math.ceil(max(sizes, default=0.0)))
    step = WIDTH / len(bins)

    def level(power: float) -> float:
        return round(HEIGHT * (high - power) / (high - low), 2)

    first = next((n for n, row in enumerate(found) if row.status is Status.DIFFERS), None)
    every = max(1, -(-(high - low) // 4))
    return Growth(
        width=WIDTH,
        height=HEIGHT,
        bars=tuple(_bar(catalogue, bin, n, step, level, low, wanted) for n, bin in enumerate(bins)),
        levels=tuple(Level(level(power), f"1e{power}") for power in range(high, low - 1, -every)),
        parts=_parts(catalogue, found, joined, step),
        first=None if first is None else round((first // joined + 0.5) * step, 2),
        joined=joined,
        alternative=_alternative(catalogue, found),
    )


def _bar(
    catalogue: Catalogue,
    rows: Sequence[Difference],
    number: int,
    step: float,
    level: Callable[[float], float],
    low: int,
    wanted: Wanted,
) -> Bar:
    worst = max(rows, key=lambda row: (row.status is Status.DIFFERS, row.relative))
    power = max(float(low), math.log10(worst.relative)) if 0 < worst.relative < math.inf else float(low)
    top, width = level(power), min(step * 0.8, _WIDEST)
    if worst.status is Status.DIFFERS and not worst.relative:
        top = 0.0  # finite on one side only: no figure says how far apart they are
    return Bar(
        x=round((number + 0.5) * step - width / 2, 2),
        y=round(min(top, HEIGHT - 1.5), 2),
        width=round(width, 2),
        height=round(max(HEIGHT - top, 1.5), 2),
        kind="differs" if worst.status is Status.DIFFERS else "agrees",
        says=f"{catalogue.row(worst.address.site).title}, {worst.address}: {_says(worst)}",
        url=wanted.url(at=key_of(worst)),
    )


def _says(row: Difference) -> str:
    if row.status is Status.SAME:
        return "equal bit for bit"
    return f"relative difference {size_of(row.relative).text}, {'differs' if not row.agrees else 'agrees'}"


def _parts(catalogue: Catalogue, rows: Sequence[Difference], joined: int, step: float) -> tuple[Mark, ...]:
    """Where the parts of the model begin, or the steps where there are several."""
    stepped = len({row.address.step for row in rows}) > 1
    marks: list[Mark] = []
    at = 0
    for key, run in groupby(
        rows, key=lambda row: step_name(row.address.step) if stepped else segment_of(catalogue, row.address)
    ):
        number = key.rpartition(" ")[2]
        marks.append(Mark(round(at // joined * step, 2), number if number.isdigit() else key, "start"))
        at += len(list(run))
    shown: list[Mark] = []
    for mark in marks[:: -(-len(marks) // _MOST_MARKS)]:
        if not shown or mark.x - shown[-1].x > _LETTER * (len(shown[-1].text) + 1):
            shown.append(mark)
    return tuple(shown)


def _alternative(catalogue: Catalogue, rows: Sequence[Difference]) -> str:
    worst = max(rows, key=lambda row: row.relative)
    first = next((row for row in rows if row.status is Status.DIFFERS), None)
    begins = next(row for row in rows if row.status is not Status.SAME)
    parts = [f"Relative difference of {len(rows)} tensors in computation order, logarithmic."]
    parts.append(f"The first that is not equal bit for bit is {begins.address}.")
    if first is not None:
        parts.append(f"The first over the tolerance is {first.address}.")
    parts.append(f"The largest is {size_of(worst.relative).text}, at {worst.address}.")
    return " ".join(parts)
