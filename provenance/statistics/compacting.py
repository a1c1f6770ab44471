"""Leaving out masked cells and cells that are not finite, in machine code. Importing this imports numba."""

import numpy as np

from provenance.statistics.machine import machine_code

_MAGNITUDE = np.int32(0x7FFFFFFF)
_INFINITY = np.int32(0x7F800000)


@machine_code()
def compact(cells, masked, kept, counted):  # type: ignore[no-untyped-def]
    """Copy the finite, unmasked ones of float32 cells [n] to the front of `kept` [n], and say how many they are.

    `masked` [m] is boolean and repeats n/m times over the cells. `counted` takes the unmasked cells that are
    NaN, +inf and -inf.
    """
    bits, out = cells.view(np.int32), kept.view(np.int32)
    filled = 0
    counted[:] = 0
    for start in range(0, bits.size, masked.size):
        for i in range(masked.size):
            if masked[i]:
                continue
            cell = bits[start + i]
            magnitude = np.int32(cell & _MAGNITUDE)
            if magnitude < _INFINITY:
                out[filled] = cell
                filled += 1
            elif magnitude > _INFINITY:
                counted[0] += 1
            else:
                counted[2 if cell < 0 else 1] += 1
    return filled
