"""Numbers as the pages show them: rounded for reading, exact where they are asked for."""

import math
from dataclasses import dataclass

from provenance.inputs import short

__all__ = ["Number", "count", "measure", "percent", "plural", "rounded", "short"]


@dataclass(frozen=True, slots=True)
class Number:
    """A number to read, and the exact one behind it."""

    text: str
    exact: str


def count(value: int) -> Number:
    """A whole number, its digits in groups of three."""
    return Number(f"{value:,}".replace(",", "\u202f"), str(value))


def measure(value: float | None) -> Number:
    """A measured value with four significant digits; None is a dash."""
    if value is None:
        return Number("–", "none")
    return Number(rounded(value), repr(value))


def rounded(value: float) -> str:
    """Four significant digits, without an exponent where a person reads it better so."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    size = abs(value)
    if 1e4 <= size < 1e6:
        return f"{value:.0f}"
    return f"{value:.4g}" if 1e-3 <= size < 1e6 else f"{value:.3e}"


def percent(probability: float | None, digits: int = 3) -> Number:
    """A probability in per cent, with so many significant digits; 100 % is written only for all of it."""
    if probability is None:
        return Number("–", "none")
    share = 100 * probability
    if share < 100 and float(f"{share:.{digits}g}") >= 100:
        return Number("> 99.9 %" if digits > 2 else "> 99 %", repr(probability))
    text = f"{share:.{digits}g}" if share == 0 or share >= 1e-3 else f"{share:.1e}"
    return Number(f"{text} %", repr(probability))


def plural(number: int, thing: str, things: str = "") -> str:
    """`1 token`, `2 tokens`."""
    return f"{number} {thing if number == 1 else things or thing + 's'}"
