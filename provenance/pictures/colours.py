"""Colours of values: two ramps of even steps to the eye, limits by quantiles, and colours of their own
for cells that are no plain value.

The ramps are straight lines through OKLab, in which equal steps look equal. Their lightness only
ever falls away from zero, so they can be read without telling the hues apart, and in print.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from provenance.pictures.reduce import Blocks, Is
from provenance.summary import Summary

STEPS = 249
"""Colours of a ramp; the others of the 256 are for masked cells, NaN and infinities."""
MASKED, HATCH, NAN, POSITIVE, NEGATIVE, SIGN = range(STEPS, STEPS + 6)
"""The numbers of those other colours; SIGN draws the sign inside a cell, HATCH the lines of masked ones."""

_OTHER = ("#e4e0d8", "#a39c8f", "#d4127d", "#111111", "#6a2fb5", "#ffffff", "#000000")

_Lch = tuple[float, float, float]
_PAPER: _Lch = (0.975, 0.004, 95)
_BLUES: tuple[_Lch, ...] = (_PAPER, (0.76, 0.11, 240), (0.43, 0.13, 255))
_ORANGES: tuple[_Lch, ...] = (_PAPER, (0.78, 0.12, 65), (0.43, 0.12, 42))
_GREENS: tuple[_Lch, ...] = (_PAPER, (0.82, 0.10, 170), (0.58, 0.11, 205), (0.28, 0.09, 265))


@dataclass(frozen=True, slots=True)
class Scale:
    """From which value to which the colours go. `diverging` where zero lies in the middle."""

    low: float
    high: float
    diverging: bool

    def numbers(self, blocks: Blocks) -> NDArray[np.uint8]:
        """The colour of each drawn cell."""
        # Divided by first: the difference of two large limits may be too large for any float.
        half = max(abs(self.low), abs(self.high), math.ulp(0.0))
        span = self.high / half - self.low / half
        places = np.clip((np.clip(blocks.values, self.low, self.high) / half - self.low / half) / span, 0, 1)
        numbers = np.rint(places * (STEPS - 1)).astype(np.uint8)
        for kind, number in ((Is.MASKED, MASKED), (Is.NAN, NAN), (Is.POSITIVE, POSITIVE), (Is.NEGATIVE, NEGATIVE)):
            numbers[blocks.kinds == kind] = number
        return numbers

    @property
    def palette(self) -> bytes:
        """The colours by number, 3 bytes each."""
        return ramp(self.diverging) + bytes.fromhex("".join(_OTHER).replace("#", ""))

    def css(self, place: float) -> str:
        """The colour at a place of the ramp from 0 to 1, as `#rrggbb`."""
        at = round(place * (STEPS - 1)) * 3
        return "#" + ramp(self.diverging)[at : at + 3].hex()


def scale_of_summary(summary: Summary) -> Scale:
    """Limits from a tensor's finite, unmasked cells."""
    quantiles = {quantile.q: quantile.value for quantile in summary.quantiles}
    ends = (summary.minimum or 0.0, summary.maximum or 0.0)
    return scale_between(quantiles.get(0.01, 0.0), quantiles.get(0.99, 1.0), *ends)


def scale_of_blocks(blocks: Blocks) -> Scale:
    """Limits from drawn cells: those of joined cells lie elsewhere than those of single ones."""
    values = blocks.values[blocks.kinds == Is.VALUE]
    if not values.size:
        return Scale(0.0, 1.0, False)
    low, high = np.quantile(values / 2, (0.01, 0.99)) * 2  # halved: NumPy subtracts, which may overflow
    return scale_between(float(low), float(high), float(values.min()), float(values.max()))


def scale_between(low: float, high: float, minimum: float, maximum: float) -> Scale:
    """Limits from the 1 % and 99 % quantiles, and the ends of all values.

    With negative values zero lies in the middle, and both ends are as far from it as the further
    quantile. Without, the ramp starts at 0, or at the 1 % quantile where that is over half of the
    other. A few strong values then do not wash out all others; they take the colour of the end.
    """
    if minimum < 0:
        end = max(abs(low), abs(high)) or max(abs(minimum), abs(maximum))
        return Scale(-end, end, True)
    return Scale(low if 0 < high / 2 < low < high else 0.0, high or maximum or 1.0, False)


@lru_cache
def ramp(diverging: bool) -> bytes:
    """The colours of a ramp, from its low to its high end."""
    if not diverging:
        return _line(_GREENS, STEPS)
    half = STEPS // 2 + 1
    down, up = _line(_BLUES, half), _line(_ORANGES, half)
    blues = b"".join(down[at : at + 3] for at in range(3 * (half - 1), 0, -3))
    return blues + up


def other(number: int) -> str:
    """One of the other colours as `#rrggbb`."""
    return _OTHER[number - STEPS]


def _line(stops: tuple[_Lch, ...], steps: int) -> bytes:
    labs = [(light, c * math.cos(math.radians(h)), c * math.sin(math.radians(h))) for light, c, h in stops]
    places = np.linspace(0, len(stops) - 1, steps)
    light, a, b = (np.interp(places, range(len(stops)), part) for part in zip(*labs, strict=True))
    return b"".join(_srgb(*lab) for lab in zip(light.tolist(), a.tolist(), b.tolist(), strict=True))


def _srgb(light: float, a: float, b: float) -> bytes:
    """A colour of OKLab in sRGB, as Björn Ottosson published it (2020)."""
    long = (light + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (light - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (light - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
    )
    return bytes(round(255 * _gamma(min(1.0, max(0.0, part)))) for part in linear)


def _gamma(part: float) -> float:
    return 12.92 * part if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055
