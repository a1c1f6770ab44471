"""The two sides of a comparison, as its pages read them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.comparing import FILE
from app.explorer import Explorer
from app.uploads import Upload
from provenance.compare_pair import Pair, pair_of
from provenance.comparison import Comparison, How, Recorded
from provenance.difference import Difference
from provenance.names import Address
from provenance.trace import Trace


@dataclass(frozen=True, slots=True)
class Handed:
    """A side that is a file that was handed in, with its tensors by name."""

    upload: Upload
    tensors: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Compared:
    """Two sides, and what came out when they were compared."""

    a: Recorded
    b: Recorded | Handed
    comparison: Comparison

    def pair(self, found: Difference) -> Pair:
        """Both tensors of a row, laid out alike. Raises InvalidInput where they were not compared."""
        other = self.b.tensors if isinstance(self.b, Handed) else self.b
        return pair_of(self.comparison, found, self.a, other)


def compared(explorer: Explorer, a: str, b: str, relative: float | None, how: How | None) -> Compared:
    """Compare a trace with another, or with a file that was handed in. Raises NotFound and InvalidInput."""
    comparison = explorer.compare(a, b, relative, how)
    if not b.startswith(FILE):
        return Compared(_side(explorer, a), _side(explorer, b), comparison)
    id = b.removeprefix(FILE)
    return Compared(_side(explorer, a), Handed(explorer.uploads.get(id), explorer.uploads.open(id)), comparison)


def _side(explorer: Explorer, id: str) -> Recorded:
    """A trace that is looked at: its tensors are kept for a while, as those of the other pages are."""
    trace: Trace = explorer.store.open(id)

    def tensor(address: Address) -> Any:
        return explorer.tensor(trace, address)

    return replace(explorer.recorded(trace), tensor=tensor)
