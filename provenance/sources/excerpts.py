"""Excerpts: cited lines, taken from checked bytes and never from anywhere else."""

from collections.abc import Iterable, Iterator
from dataclasses import InitVar, dataclass
from enum import StrEnum

from provenance.citation import Citation, Span
from provenance.errors import Corrupt, ProvenanceError
from provenance.sources.anchors import check, resolve
from provenance.sources.blob import Content

_SEAL = object()


class Proof(StrEnum):
    """What is known about the lines of an excerpt."""

    VERIFIED = "verified"
    SHARED = "shared"
    RELEASE = "release"

    def explain(self, release: str) -> str:
        """One sentence for a person; `release` names the copy that was read."""
        match self:
            case Proof.VERIFIED:
                return "These are the pinned revision's own bytes: their git blob id was checked."
            case Proof.SHARED:
                return (
                    "These lines are the same in every content that the pinned revision can have; "
                    f"read from {release}, as the revision's own blob was not seen here."
                )
            case Proof.RELEASE:
                return (
                    f"Lines as in {release}: the pinned revision's own may be a line off, "
                    "until the git host has been asked."
                )


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a source file, without its line end."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Run:
    """Cited lines that follow one another."""

    lines: tuple[Line, ...]

    @property
    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(line.text for line in self.lines)


@dataclass(frozen=True, slots=True)
class Gap:
    """Lines between two runs that are not cited, and so not shown."""

    first: int
    last: int

    def __str__(self) -> str:
        if self.first == self.last:
            return f"line {self.first} omitted"
        return f"lines {self.first}–{self.last} omitted"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The text of a citation. Only `excerpt_of` makes one.

    `spans` are the lines as they stand in the bytes that were read; they differ from the
    citation's only for `Proof.RELEASE`, or when another blob than the pin's first was settled.
    `release` names the release or blob that was read.
    """

    citation: Citation
    spans: tuple[Span, ...]
    parts: tuple[Run | Gap, ...]
    blob_id: str
    carrier: str
    release: str
    proof: Proof
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("An Excerpt is made from checked bytes only: use Sources.excerpt.")

    @property
    def explanation(self) -> str:
        """One sentence on what is known about these lines."""
        return self.proof.explain(self.release)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The parts without the gaps."""
        return tuple(part for part in self.parts if isinstance(part, Run))

    @property
    def as_read(self) -> Citation:
        """The citation with the lines as they stand in the bytes that were read."""
        return Citation(self.citation.pin, self.spans)


def excerpt_of(content: Content, citation: Citation) -> Excerpt:
    """Cut the cited lines out of checked bytes.

    Raises AnchorMoved when an anchor does not stand at its pinned lines, Corrupt when the bytes
    are not UTF-8 text.
    """
    if content.pin != citation.pin:
        raise ProvenanceError(f"The citation is of {citation.pin.key}, the content of {content.pin.key}.")
    spans = tuple(_stands(content, span) for span in citation.spans)
    return Excerpt(
        citation=citation,
        spans=spans,
        parts=tuple(_parts(_lines(content), spans)),
        blob_id=content.blob.id,
        carrier=content.carrier,
        release=content.blob.release,
        proof=_proof(content, citation),
        seal=_SEAL,
    )


def _proof(content: Content, citation: Citation) -> Proof:
    if content.settled:
        return Proof.VERIFIED
    return Proof.SHARED if citation.shared else Proof.RELEASE


def _stands(content: Content, span: Span) -> Span:
    """The span as it stands in these bytes; pinned lines count where they are fixed."""
    pin = content.pin
    if content.blob == pin.blobs[0] or (pin.shared_lines is not None and span.last <= pin.shared_lines):
        check(content.data, span)
        return span
    return Span(*resolve(content.data, span.anchor), span.anchor)


def _lines(content: Content) -> list[str]:
    try:
        return content.data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise Corrupt(f"{content.pin.path} is not UTF-8 text: {error}.") from error


def _parts(lines: list[str], spans: Iterable[Span]) -> Iterator[Run | Gap]:
    """Runs of cited lines in order, with a gap between each two. Touching spans make one run."""
    cited = sorted({number for span in spans for number in range(span.first, span.last + 1)})
    run: list[Line] = []
    for number in cited:
        if run and number > run[-1].number + 1:
            yield Run(tuple(run))
            yield Gap(run[-1].number + 1, number - 1)
            run = []
        run.append(Line(number, lines[number - 1]))
    yield Run(tuple(run))
