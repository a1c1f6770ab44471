"""A few curves over a common axis, as the parts of an SVG: how one number goes with another."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.pages.numbers import rounded
from app.pictures.parts import Mark

_WIDTH, _HIGH = 640.0, 180.0
_MOST_DOTS = 24
"""The most points of a curve that have a dot each."""
_MOST_TICKS = 8


@dataclass(frozen=True, slots=True)
class Series:
    """One curve to draw: its name, where its points lie, and their values; `low` and `high` bound a band."""

    name: str
    at: tuple[int, ...]
    values: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Dot:
    """One point of a curve, and its read-out."""

    x: float
    y: float
    says: str


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve as an SVG path; `number` counts the curves of a picture from 1, for their look."""

    number: int
    name: str
    line: str
    band: str
    dots: tuple[Dot, ...]


@dataclass(frozen=True, slots=True)
class CurvesPicture:
    """Curves over one axis. `ticks` lie along it, `levels` are the values at the sides with a line each."""

    width: float
    height: float
    curves: tuple[Curve, ...]
    ticks: tuple[Mark, ...]
    levels: tuple[tuple[float, str], ...]
    axis: str
    alternative: str


@dataclass(frozen=True, slots=True)
class _Plane:
    """Where a place along the axis, and a value, lie in the picture."""

    first: int
    last: int
    bottom: float
    top: float

    def x(self, at: int) -> float:
        return round(_WIDTH * (at - self.first) / max(1, self.last - self.first), 2)

    def y(self, value: float) -> float:
        return round(_HIGH * (self.top - value) / (self.top - self.bottom), 2)

    def path(self, at: Sequence[int], values: Sequence[float]) -> str:
        return "M" + "L".join(f"{self.x(n):g} {self.y(v):g}" for n, v in zip(at, values, strict=True))

    @property
    def ticks(self) -> tuple[Mark, ...]:
        extent = self.last - self.first
        steps = (lead * 10**power for power in range(9) for lead in (1, 2, 5))
        step = next(step for step in steps if extent / step <= _MOST_TICKS)
        ends = {self.first: "start", self.last: "end"}
        marks = [at for at in range(self.first, self.last + 1) if at % step == 0]
        return tuple(Mark(self.x(at), str(at), ends.get(at, "middle")) for at in marks)


def curves(series: Sequence[Series], axis: str, measure: str) -> CurvesPicture | None:
    """The curves of some series; None where there is no value. `axis` and `measure` are their names in words."""
    values = [value for one in series for value in (*one.values, *one.low, *one.high)]
    if not values:
        return None
    bottom, top = min(0.0, *values), max(0.0, *values)
    at = [place for one in series for place in one.at]
    plane = _Plane(min(at), max(at), bottom, top if top > bottom else bottom + 1.0)
    return CurvesPicture(
        width=_WIDTH,
        height=_HIGH,
        curves=tuple(_curve(plane, number, one, axis) for number, one in enumerate(series, 1)),
        ticks=plane.ticks,
        levels=tuple((plane.y(level), rounded(level)) for level in dict.fromkeys((plane.top, 0.0, plane.bottom))),
        axis=axis,
        alternative=f"{measure} by {axis}. " + " ".join(_says(one, axis) for one in series),
    )


def _curve(plane: _Plane, number: int, one: Series, axis: str) -> Curve:
    band = ""
    if one.low and one.high:
        band = plane.path(one.at, one.high) + plane.path(one.at[::-1], one.low[::-1]).replace("M", "L") + "Z"
    dots = zip(one.at, one.values, strict=True) if len(one.at) <= _MOST_DOTS else ()
    return Curve(
        number=number,
        name=one.name,
        line=plane.path(one.at, one.values),
        band=band,
        dots=tuple(
            Dot(plane.x(at), plane.y(value), f"{one.name}, {axis} {at}: {rounded(value)}") for at, value in dots
        ),
    )


def _says(one: Series, axis: str) -> str:
    low, high = (one.values.index(end(one.values)) for end in (min, max))
    return (
        f"{one.name}: from {rounded(one.values[0])} at {axis} {one.at[0]} to {rounded(one.values[-1])} "
        f"at {axis} {one.at[-1]}; smallest {rounded(one.values[low])} at {one.at[low]}, "
        f"largest {rounded(one.values[high])} at {one.at[high]}."
    )
