"""Pairing the statements of a function with those of its other version, as comparing two texts does.

The best order-keeping pairing is found over all statements at once, so that one of several equal
statements is told apart by what stands around it. What was moved out of order is paired after, where
its text leaves no doubt; and statements in which nothing but names changed, where they stand one by one.
"""

import keyword
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

_WORD = re.compile(r"\w+")
_NAME = re.compile(r"[^\W\d]\w*")
_ALIKE = 0.65
_ALIKE_SAME_NAME = 0.5
"""Share of common words from which a changed statement counts as the same one; lower for the same target."""

_EXACT = 2.0


@dataclass(frozen=True, slots=True)
class Unit:
    """A statement as pairing sees it: its text without the outer indentation, and what it assigns or is."""

    text: str
    names: frozenset[str]

    @property
    def words(self) -> Counter[str]:
        """How often each word stands in it."""
        return Counter(_WORD.findall(self.text))

    @property
    def shape(self) -> str:
        """The text with every name masked and no blanks: equal where only names differ."""
        masked = _NAME.sub(lambda found: found[0] if keyword.iskeyword(found[0]) else "N", self.text)
        return "".join(masked.split())


def unindented(text: str) -> str:
    """A statement's text without the indentation of its first line."""
    indent = text[: len(text) - len(text.lstrip())]
    return "\n".join(line.removeprefix(indent) for line in text.split("\n"))


def pair(old: Sequence[Unit], new: Sequence[Unit]) -> dict[int, int]:
    """For each old unit's index that of its counterpart, where there is one."""
    found = _in_order(_scores(old, new), len(old), len(new))
    found |= _moved(old, new, found)
    found |= _renamed(old, new, found)
    return found


def _scores(old: Sequence[Unit], new: Sequence[Unit]) -> dict[tuple[int, int], float]:
    """How well two units go together. Those whose text has as many twins at the other side go with twins only."""
    before, after = Counter(unit.text for unit in old), Counter(unit.text for unit in new)
    old_free = [(i, u, u.words) for i, u in enumerate(old) if before[u.text] > after[u.text]]
    new_free = [(j, u, u.words) for j, u in enumerate(new) if after[u.text] > before[u.text]]
    scores = {(i, j): _EXACT for i, a in enumerate(old) for j, b in enumerate(new) if a.text == b.text}
    for i, a, words in old_free:
        for j, b, others in new_free:
            likeness = 2 * (words & others).total() / max(1, words.total() + others.total())
            if a.text != b.text and likeness >= (_ALIKE_SAME_NAME if a.names & b.names else _ALIKE):
                scores[i, j] = likeness
    return scores


def _in_order(scores: Mapping[tuple[int, int], float], rows: int, columns: int) -> dict[int, int]:
    """The pairs that keep the order and have the largest sum of scores; early ones among equals."""
    best = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    for i in reversed(range(rows)):
        for j in reversed(range(columns)):
            together = best[i + 1][j + 1] + scores[i, j] if (i, j) in scores else -1.0
            best[i][j] = max(together, best[i + 1][j], best[i][j + 1])
    found: dict[int, int] = {}
    i = j = 0
    while i < rows and j < columns:
        if (i, j) in scores and best[i][j] == best[i + 1][j + 1] + scores[i, j]:
            found[i] = j
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return found


def _moved(old: Sequence[Unit], new: Sequence[Unit], found: Mapping[int, int]) -> dict[int, int]:
    """Left-over units of one text, where both sides have one: moved out of order."""
    taken = set(found.values())
    left_old = [i for i in range(len(old)) if i not in found]
    left_new = [j for j in range(len(new)) if j not in taken]
    before, after = Counter(old[i].text for i in left_old), Counter(new[j].text for j in left_new)
    at = {new[j].text: j for j in left_new}
    return {i: at[old[i].text] for i in left_old if before[old[i].text] == 1 == after[old[i].text]}


def _renamed(old: Sequence[Unit], new: Sequence[Unit], found: Mapping[int, int]) -> dict[int, int]:
    """Units between two pairs that differ in names alone, one by one."""
    more: dict[int, int] = {}
    for before, after in _gaps(found, len(old), len(new)):
        if [old[i].shape for i in before] == [new[j].shape for j in after]:
            more |= dict(zip(before, after, strict=True))
    return more


def _gaps(found: Mapping[int, int], rows: int, columns: int) -> Iterator[tuple[list[int], list[int]]]:
    """The unpaired units between pairs that follow one another at both sides."""
    pairs = [(-1, -1), *sorted(found.items()), (rows, columns)]
    taken = set(found.values())
    for (i, j), (next_i, next_j) in pairwise(pairs):
        yield list(range(i + 1, next_i)), [k for k in range(j + 1, next_j) if k not in taken]
