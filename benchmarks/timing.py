"""Timing several things against each other in one process: interleaved, in a new random order each round."""

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Work = Callable[[], object]
"""What is timed. The release of what it returns is timed with it, since keeping tensors is what costs."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Milliseconds of one thing in each round; rounds of things timed together belong to each other."""

    name: str
    milliseconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median of all rounds."""
        return statistics.median(self.milliseconds)

    def percentile(self, percent: float) -> float:
        """The smallest time that at least `percent` of the rounds do not exceed."""
        return percentile(self.milliseconds, percent)

    def over(self, other: "Timed") -> float:
        """Median of the ratios round by round, so that a slow stretch of the machine falls on both."""
        pairs = zip(self.milliseconds, other.milliseconds, strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def interleaved(
    works: Mapping[str, Work],
    rounds: int,
    warm_up: int = 1,
    seed: int = 0,
    before: Callable[[str], object] = lambda name: None,
) -> dict[str, Timed]:
    """Time every work once in each round. The collector of cycles waits until a round is over.

    `before` is called with the name of what comes next, outside the clock.
    """
    order, shuffle = list(works), random.Random(seed)
    taken: dict[str, list[float]] = {name: [] for name in works}
    gc.freeze()  # what is there already is not searched again in every round
    for number in range(-warm_up, rounds):
        shuffle.shuffle(order)
        gc.collect()
        gc.disable()
        try:
            for name in order:
                before(name)
                milliseconds = _once(works[name])
                if number >= 0:
                    taken[name].append(milliseconds)
        finally:
            gc.enable()
    gc.unfreeze()
    return {name: Timed(name, tuple(values)) for name, values in taken.items()}


def _once(work: Work) -> float:
    started = time.perf_counter()
    work()  # what it returns is released here, before the clock is read again
    return (time.perf_counter() - started) * 1e3


@dataclass(frozen=True, slots=True)
class Growth:
    """How a cost grows: fitted as a power of the size, `cost = c · size ** exponent`."""

    exponent: float
    largest_departure: float


def growth(sizes: Sequence[float], costs: Sequence[float]) -> Growth:
    """Least squares through the logarithms; `largest_departure` is the worst factor between fit and cost."""
    xs, ys = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    mean_x, mean_y = statistics.fmean(xs), statistics.fmean(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    worst = max(abs(y - mean_y - slope * (x - mean_x)) for x, y in zip(xs, ys, strict=True))
    return Growth(slope, math.exp(worst))
