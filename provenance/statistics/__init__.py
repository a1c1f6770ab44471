"""Statistics of the cells of a tensor: with NumPy for any real dtype, in machine code for float32.

Both give the same minimum, maximum, quantiles, edges and counts, to the last bit. Mean, standard deviation and
norm are sums in float64, which the two add up in different orders: their last digits can differ.
"""

from typing import NamedTuple

QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
BINS = 64

BUCKETS = 1 << 16
"""How many groups of float32 the machine code tells apart at first: by their upper 16 bits."""
MOMENTS = 5
"""The numbers that it fills in begin with this many: minimum, maximum, mean, std, l2. The quantiles follow."""
EDGES = MOMENTS + len(QUANTILES)
"""Where the edges of the bins follow on them."""
COUNTED = 2
"""The counts that it fills in begin with this many: whether there is a histogram (1 or 0), zeros. Bins follow."""


class Statistics(NamedTuple):
    """Of finite cells; `provenance.summary.Summary` says what each means.

    `quantiles`, `edges` and `counts` are empty where there are none.
    """

    count_zero: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    std: float | None
    l2: float | None
    quantiles: tuple[float, ...]
    edges: tuple[float, ...]
    counts: tuple[int, ...]
