"""Choosing a part of a tensor by the names of its axes: `[head=2, token=3:7]`.

An axis is named by what it counts where only one of the tensor's axes counts that, and by its symbol
otherwise. Tokens, keys and past tokens are numbered over the whole sequence, prompt and decode steps
together, so that a position means the same in every step.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from provenance.axes import Counts
from provenance.catalogue import Catalogue, Intermediate
from provenance.errors import InvalidInput, OutOfRange

Number = Annotated[int, Field(ge=0, le=999_999)]

_SPAN = re.compile(r"(?P<first>\d{1,6})(?::(?P<end>\d{1,6}))?", re.ASCII)
_MOST_SPANS = 64
QUERY = "query"
"""A token axis, where it stands beside a key axis."""


class Pick(BaseModel):
    """Some indices of one axis, as half-open spans in order, apart from each other."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    axis: str
    spans: tuple[tuple[Number, Number], ...]

    @property
    def indices(self) -> tuple[int, ...]:
        """All indices, in order."""
        return tuple(index for first, end in self.spans for index in range(first, end))

    def __str__(self) -> str:
        spans = (str(first) if end == first + 1 else f"{first}:{end}" for first, end in self.spans)
        return f"{self.axis}={','.join(spans)}"


def axis_names(catalogue: Catalogue, row: Intermediate) -> tuple[str, ...]:
    """The name of each axis of a site: what it counts, or its symbol where two count the same."""
    axes = [catalogue.axes[symbol] for symbol in row.shape]
    counted = Counter(axis.counts for axis in axes)
    return tuple(axis.counts.value if counted[axis.counts] == 1 else axis.symbol for axis in axes)


def pick_of(catalogue: Catalogue, row: Intermediate, axis: str, indices: Iterable[tuple[int, int]]) -> Pick:
    """A pick with its axis by the name that `axis_names` gives it. Raises InvalidInput."""
    spans = _joined(indices)
    if not spans:
        raise InvalidInput(f"No index of the axis {axis!r} of {row.site} is named.", hint=f"Write {axis}=0.")
    return Pick(axis=_axis(catalogue, row, axis), spans=spans)


def parse_picks(catalogue: Catalogue, row: Intermediate, text: str) -> tuple[Pick, ...]:
    """Read `head=0,2, token=3:7`, in the order of the axes. Raises InvalidInput naming the piece."""
    found: list[tuple[str, list[tuple[int, int]]]] = []
    for piece in (part.strip() for part in text.split(",")):
        name, equals, rest = piece.partition("=")
        if equals:
            found.append((name.strip(), []))
        elif not found:
            raise InvalidInput(f"{piece[:40]!r} names no axis.", hint="Write for example [head=2] or [token=3:7].")
        found[-1][1].append(_span((rest if equals else piece).strip()))
    picks = [pick_of(catalogue, row, name, spans) for name, spans in found]
    names = [pick.axis for pick in picks]
    if len(set(names)) < len(names):
        raise InvalidInput(f"An axis of {row.site} is named twice in {text[:60]!r}.")
    order = axis_names(catalogue, row)
    return tuple(sorted(picks, key=lambda pick: order.index(pick.axis)))


def check_picks(
    catalogue: Catalogue,
    row: Intermediate,
    picks: Iterable[Pick],
    constants: Mapping[str, int],
    positions: int,
    batch: int = 1,
) -> None:
    """Raise OutOfRange for an index over an axis' size, or over the positions and batch entries that are run."""
    for pick in picks:
        symbol = row.shape[axis_names(catalogue, row).index(pick.axis)]
        counts = catalogue.axes[symbol].counts
        size = positions if is_sequence(counts) else constants.get(symbol, batch if counts is Counts.BATCH else 1)
        last = pick.spans[-1][1] - 1
        if last >= size:
            raise OutOfRange(f"{row.site} has no {pick.axis} {last} here.", hint=f"It has {size}, from 0 on.")


def is_sequence(counts: Counts) -> bool:
    """Whether an axis runs along the sequence, so that its indices are positions."""
    return counts in (Counts.TOKEN, Counts.KEY, Counts.PAST)


def _axis(catalogue: Catalogue, row: Intermediate, name: str) -> str:
    names = axis_names(catalogue, row)
    if name in names:
        return name
    if name == QUERY and Counts.TOKEN in names:
        return Counts.TOKEN
    by_symbol = [named for named, symbol in zip(names, row.shape, strict=True) if symbol == name]
    if len(by_symbol) == 1 and names.count(by_symbol[0]) == 1:
        return by_symbol[0]
    usable = [named for named in names if names.count(named) == 1 and named != Counts.ONE]
    raise InvalidInput(
        f"{row.site} has no axis {name[:40]!r} that can be chosen.",
        hint=f"It has {', '.join(usable)}." if usable else "Change it as a whole.",
    )


def _span(text: str) -> tuple[int, int]:
    read = _SPAN.fullmatch(text)
    if read is None:
        raise InvalidInput(f"{text[:40]!r} is no index.", hint="An index is 3, a range 0:9 (its end left out).")
    first = int(read["first"])
    end = int(read["end"]) if read["end"] is not None else first + 1
    if end <= first:
        raise InvalidInput(f"The range {text} is empty.", hint="Its end is left out: 3:7 are 3, 4, 5 and 6.")
    return first, end


def _joined(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Spans in order, those that touch or overlap made one."""
    joined: list[tuple[int, int]] = []
    for first, end in sorted(spans):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((first, end))
    if len(joined) > _MOST_SPANS:
        raise InvalidInput(f"These are {len(joined)} separate ranges, and at most {_MOST_SPANS} can be named.")
    return tuple(joined)
