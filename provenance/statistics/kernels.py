"""Statistics of float32 cells in machine code: few passes over memory, and exact where the docstring says so.

The upper 16 bits of a float32 (sign, exponent, 7 bits of the mantissa) name one of 65,536 buckets. One pass counts
the cells of each, which gives the rank of every bucket's cells. A second looks cell by cell at two kinds only: those
that hold a wanted rank, and those that an edge of the histogram cuts. The order key of a float32 is an int32 that
sorts as the float does, -0 right below 0. Importing this imports numba, and the first call compiles: see `compiled`.
All that `measure` calls stays in this file, or numba would not notice that its stored code is out of date.
"""

import numpy as np

from provenance.statistics import BUCKETS, COUNTED, MOMENTS
from provenance.statistics.machine import machine_code

_BLOCK = 8192  # cells that stay in the caches for two loops
_SAMPLE = 256  # cells that tell roughly where the mean lies
_FEW = 4096  # cells of one bucket among which a rank is found digit by digit
_MAGNITUDE = np.int32(0x7FFFFFFF)
_INFINITY = np.int32(0x7F800000)
_SIGN = np.int32(31)
_UPPER = np.uint32(16)
_ONE = np.uint32(1)
_MINUS = 1 << 15
_GROUP = 16  # buckets that are counted together where neither rank nor edge lies among them
_CUT = np.uint8(128)  # a flag's bit: an edge cuts this bucket. The other bits are the slot of its ranks, from 1.
_SLOT = np.uint8(127)

# Without `reassoc` a sum stays a chain of additions, which no vector unit can share out.
_SUM = machine_code(fastmath={"reassoc", "nsz", "contract"})
_EXACT = machine_code()


@_SUM
def _survey(cells, bits, around):  # type: ignore[no-untyped-def]
    """Smallest and largest order key, smallest magnitude but 0 (less one), zeros, and sums around a value."""
    low, high, least, zeros = _MAGNITUDE, np.int32(-_MAGNITUDE - 1), np.uint32(0xFFFFFFFF), np.int32(0)
    total = squares = 0.0
    for i in range(bits.size):
        cell = bits[i]
        key = np.int32(cell ^ np.int32(np.int32(cell >> _SIGN) & _MAGNITUDE))
        low, high = min(low, key), max(high, key)
        magnitude = np.int32(cell & _MAGNITUDE)
        zeros += np.int32(magnitude == 0)
        least = min(least, np.uint32(np.uint32(magnitude) - _ONE))  # 0 becomes the largest
        distance = np.float64(cells[i]) - around
        total += distance
        squares += distance * distance
    return low, high, least, zeros, total, squares


@_EXACT
def _walk(cells, counts, moments, counted):  # type: ignore[no-untyped-def]
    """Counts of buckets, zeros and moments in one pass; the range of keys; false at a cell that is not finite."""
    signed, raw = cells.view(np.int32), cells.view(np.uint32)
    low, high, least = _MAGNITUDE, np.int32(-_MAGNITUDE - 1), np.uint32(0xFFFFFFFF)
    total = spread = 0.0
    mean = _survey(cells[:_SAMPLE], signed[:_SAMPLE], 0.0)[4] / min(_SAMPLE, cells.size)
    for start in range(0, cells.size, _BLOCK):
        end = min(start + _BLOCK, cells.size)
        size = end - start
        # Sums around the mean so far lose no digits where it is large; as a float32 it adds no rounding.
        around = np.float64(np.float32(mean))
        lowest, highest, smallest, zeros, part, squares = _survey(cells[start:end], signed[start:end], around)
        if highest >= _INFINITY or lowest <= np.int32(-_INFINITY - 1):
            counts[:] = 0
            return False, low, high, least
        low, high, least = min(low, lowest), max(high, highest), min(least, smallest)
        counted[1] += zeros
        apart = around + part / size - mean
        if start:  # Chan's rule for the squares of two parts
            spread += apart * apart * start * size / end
        spread += max(squares - part / size * part, 0.0)
        total += around * size + part
        mean = total / end
        for i in range(start, end):
            counts[raw[i] >> _UPPER] += _ONE
    moments[2] = mean
    moments[3] = np.sqrt(spread / cells.size)
    moments[4] = np.sqrt(spread + mean * mean * cells.size)
    return True, low, high, least


@_EXACT
def _cut(first, last, edges):  # type: ignore[no-untyped-def]
    """Fill in the edges as numpy.linspace does; give, for each inner one, the key of the first float32 not below.

    One more key, above all, ends the list; it stands alone where float64 cannot tell the edges apart.
    """
    bins = edges.size - 1
    keys = np.full(bins, np.int64(_MAGNITUDE) + 1)
    if first == last:
        first, last = first - 0.5, last + 0.5
    edges[:bins] = np.arange(bins) * ((last - first) / bins) + first
    edges[bins] = last
    if (edges[:-1] >= edges[1:]).any():
        return keys[bins - 1 :]
    nearest = edges[1:-1].astype(np.float32)
    bits = nearest.view(np.int32)
    for i in range(nearest.size):
        keys[i] = bits[i] if bits[i] >= 0 else bits[i] ^ _MAGNITUDE
        if np.float64(nearest[i]) < edges[i + 1]:
            keys[i] += 1
        elif nearest[i] == 0:
            keys[i] = -1  # -0, which equals 0
    return keys


@_EXACT
def _plan(counts, flags, keys, histogram, ranks, low, high, least):  # type: ignore[no-untyped-def]
    """Count whole buckets into their bins, empty the table, and flag the buckets to be looked into.

    Gives the flagged buckets, each rank's slot and rank in it, the slots' sizes, the number of flagged cells.
    """
    flagged, sizes = np.empty(keys.size + ranks.size, np.int64), np.zeros(ranks.size + 1, np.int64)
    slots, within = np.empty(ranks.size, np.int64), np.empty(ranks.size, np.int64)
    listed = slot = rank = cell_bin = 0
    below = wanted = np.int64(0)
    smallest = (np.int64(least + _ONE) >> 16) & -_GROUP
    group, last = (np.int64(low) >> 16) & -_GROUP, np.int64(high) >> 16
    while group <= last:
        start = group if group >= 0 else _MINUS - _GROUP - group
        size = np.int64(counts[start : start + _GROUP].sum())
        while keys[cell_bin] <= group << 16:
            cell_bin += 1
        whole = keys[cell_bin] >= (group + _GROUP) << 16
        if whole and (rank == ranks.size or ranks[rank] >= below + size):
            histogram[cell_bin] += size
            below += size
        else:
            for upper in range(group, group + _GROUP):
                raw = upper if upper >= 0 else _MINUS - 1 - upper
                size = np.int64(counts[raw])
                if size == 0:
                    continue
                code = np.uint8(0)
                if rank < ranks.size and ranks[rank] < below + size:
                    slot += 1
                    code = np.uint8(slot)
                    sizes[slot] = size
                    while rank < ranks.size and ranks[rank] < below + size:
                        slots[rank], within[rank] = slot, ranks[rank] - below
                        rank += 1
                while keys[cell_bin] <= upper << 16:
                    cell_bin += 1
                if keys[cell_bin] < (upper + 1) << 16:
                    code |= _CUT
                else:
                    histogram[cell_bin] += size
                if code:
                    flags[raw] = code
                    flagged[listed] = raw
                    listed += 1
                    wanted += size
                below += size
        counts[start : start + _GROUP] = 0
        group += _GROUP
        # No cell lies between the smallest magnitude and 0.
        if -_GROUP - smallest < group < -_GROUP:
            group = np.int64(-_GROUP)
        elif 0 < group < smallest:
            group = smallest
    return flagged[:listed], slots, within, sizes, wanted


@_EXACT
def _share(cells, flags, wanted, edges, histogram, sizes):  # type: ignore[no-untyped-def]
    """Count the cells of cut buckets into their bins; give the keys of each slot's cells, and where slots end."""
    pairs = cells[: cells.size // 2 * 2].view(np.uint64)  # two cells a load
    close, filled = np.empty(min(wanted, pairs.size) + 1, np.uint64), np.uint64(0)
    # Without branches: a flagged cell comes too seldom, and too irregularly, to be foreseen.
    for pair in pairs:
        close[filled] = pair
        either = flags[(pair >> np.uint64(16)) & np.uint64(65535)] | flags[pair >> np.uint64(48)]
        filled += np.uint64(either != 0)
    halves = close[:filled].view(np.uint32)
    found, filled = np.empty(wanted + 1, np.uint32), np.uint64(0)
    for half in halves:
        found[filled] = half
        filled += np.uint64(flags[half >> _UPPER] != 0)
    if filled < wanted:  # the last cell of an odd number
        found[filled] = cells[-1:].view(np.uint32)[0]
    values, signed, ends = found.view(np.float32), found.view(np.int32), np.cumsum(sizes)
    places, keys = ends - sizes, np.empty(ends[-1], np.int32)
    for i in range(wanted):
        code = flags[found[i] >> _UPPER]
        if code & _CUT:
            # By numpy.histogram's rule: guess by scaling, then ask the edges.
            value = np.float64(values[i])
            guess = int((value - edges[0]) / (edges[-1] - edges[0]) * histogram.size)
            guess = min(guess, histogram.size - 1)
            guess -= value < edges[guess]
            guess += (value >= edges[guess + 1]) & (guess + 1 < histogram.size)
            histogram[guess] += 1
        slot = np.int64(code & _SLOT)
        if slot:
            keys[places[slot]] = np.int32(signed[i] ^ np.int32(np.int32(signed[i] >> _SIGN) & _MAGNITUDE))
            places[slot] += 1
    return keys, ends


@_EXACT
def _value(key):  # type: ignore[no-untyped-def]
    one = np.empty(1, np.int32)
    one[0] = key if key >= 0 else key ^ _MAGNITUDE
    return np.float64(one.view(np.float32)[0])


@_EXACT
def _select(keys, rank, digits):  # type: ignore[no-untyped-def]
    """The key of a rank among few keys with the same upper half: by their third byte, then by their last."""
    found = np.int32(0)
    for shift in (8, 0):
        digits[:] = 0
        for i in range(keys.size):
            if shift or ((keys[i] >> 8) & 255) == found:
                digits[(keys[i] >> shift) & 255] += 1
        digit = 0
        while rank >= digits[digit]:
            rank -= digits[digit]
            digit += 1
        found = np.int32((found << 8) | digit)
    return np.int32((keys[0] & np.int32(-BUCKETS)) | found)


@_EXACT
def _at_ranks(keys, ends, sizes, slots, within, counts):  # type: ignore[no-untyped-def]
    """The values at the wanted ranks, each in its slot."""
    values, digits = np.empty(slots.size), np.empty(256, np.int64)
    for i, slot in enumerate(slots):
        part = keys[ends[slot] - sizes[slot] : ends[slot]]
        if part.size <= _FEW:
            values[i] = _value(_select(part, within[i], digits))
            continue
        if i == 0 or slots[i - 1] != slot:
            for j in range(part.size):
                counts[part[j] & (BUCKETS - 1)] += _ONE
        lower, left = 0, within[i]
        while left >= counts[lower]:
            left -= counts[lower]
            lower += 1
        values[i] = _value(np.int32((part[0] & np.int32(-BUCKETS)) | lower))
        if i + 1 == slots.size or slots[i + 1] != slot:
            counts[:] = 0
    return values


@_EXACT
def _ranks(quantiles, size):  # type: ignore[no-untyped-def]
    """The two ranks around each quantile, and the order in which they rise."""
    ranks, order = np.empty(2 * quantiles.size, np.int64), np.arange(2 * quantiles.size)
    ranks[::2] = (quantiles * (size - 1)).astype(np.int64)
    ranks[1::2] = np.minimum(ranks[::2] + 1, size - 1)
    for i in range(1, order.size):
        while i and ranks[order[i - 1]] > ranks[order[i]]:
            order[i - 1], order[i] = order[i], order[i - 1]
            i -= 1
    return ranks, order


@_EXACT
def measure(cells, quantiles, counts, flags, moments, counted):  # type: ignore[no-untyped-def]
    """Fill `moments` and `counted` for float32 cells [n], n > 0; false where one of them is not finite.

    `quantiles` rise from 0 to 1. `moments` take MOMENTS numbers, the quantiles by numpy.quantile's linear method, the
    edges of the bins; `counted` COUNTED counts, the bins. `counts` and `flags` are tables [BUCKETS] of uint32 and
    uint8: zeros, and zeros again afterwards.
    """
    counted[:] = 0
    finite, low, high, least = _walk(cells, counts, moments, counted)
    if not finite:
        return False
    edges, histogram = moments[MOMENTS + quantiles.size :], counted[COUNTED:]
    moments[0], moments[1] = _value(low), _value(high)
    cuts = _cut(moments[0], moments[1], edges)
    counted[0] = cuts.size == histogram.size
    ranks, order = _ranks(quantiles, cells.size)
    flagged, slots, within, sizes, wanted = _plan(counts, flags, cuts, histogram, ranks[order], low, high, least)
    keys, ends = _share(cells, flags, wanted, edges, histogram, sizes)
    values = np.empty(ranks.size)
    values[order] = _at_ranks(keys, ends, sizes, slots, within, counts)
    for i in range(quantiles.size):
        below, above = values[2 * i], values[2 * i + 1]
        part = quantiles[i] * (cells.size - 1) - ranks[2 * i]
        apart = above - below
        moments[MOMENTS + i] = below + apart * part if part < 0.5 else above - apart * (1 - part)
    for raw in flagged:
        flags[raw] = 0
    return True


@_EXACT
def measure_several(rows, quantiles, counts, flags, moments, counted):  # type: ignore[no-untyped-def]
    """`measure` for each of a tuple of rows, in one call: threads seldom wait for the interpreter.

    `moments` and `counted` have a row for each; -1 is the first count where cells are none or not all finite.
    """
    for i, cells in enumerate(rows):
        if cells.size == 0 or not measure(cells, quantiles, counts, flags, moments[i], counted[i]):
            counted[i, 0] = -1
