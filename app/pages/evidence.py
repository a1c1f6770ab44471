"""Who says so: claims with their pinned lines, and what was proven about those lines."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from app.highlight import highlighted
from app.pages.badge import Badge
from app.pages.links import cite_url, source_url
from app.pages.testimony import Mark, execution_badge, marks_of
from provenance.catalogue import Catalogue, Context, Operation
from provenance.citation import Pin
from provenance.errors import ProvenanceError
from provenance.sources import Content, Excerpt, Gap, Proof, Sources
from provenance.verdict import Report

_OPENABLE = 60
"""The most lines of a gap that the page itself holds; of a longer one it has a link."""
_DEEPEST = 5


@dataclass(frozen=True, slots=True)
class CodeLine:
    """One line of an excerpt. `mark` says what was seen there when the file was run, if anything.

    `level` is how deep it is indented, for where it goes on when it does not fit.
    """

    number: int
    html: Markup
    level: int
    mark: Mark | None = None


@dataclass(frozen=True, slots=True)
class CodePart:
    """Cited lines that follow one another; or a gap, whose lines are there where they are few."""

    lines: tuple[CodeLine, ...]
    gap: str = ""
    gap_url: str = ""


@dataclass(frozen=True, slots=True)
class EvidenceView:
    """One claim of an operation, and its excerpt where the source is at hand.

    `number` is its place among the tensor's evidence; `source` is the label of the cited file, which
    gives the colour; `carried` says which blob was read, and from where; `execution` is None without
    a trace; `read_lines` are the lines of the copy that was read where they differ from the pinned
    ones; `advice` says what to do without an excerpt.
    """

    number: int
    operation: str
    claim: str
    label: str
    source: str
    repository: str
    path: str
    revision: str
    lines: str
    permalink: str
    page: str
    badge: Badge
    execution: Badge | None
    carried: str
    parts: tuple[CodePart, ...]
    read_lines: str
    advice: str
    cite_url: str


@dataclass(frozen=True, slots=True)
class EvidenceGroup:
    """An operation's evidence: one column for each cited file. `role` says what it does to the tensor."""

    id: str
    operation: str
    role: str
    difference: str
    columns: tuple[tuple[EvidenceView, ...], ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """A trace from which a tensor's evidence is looked at, and its report where it was verified."""

    trace: str
    report: Report | None


def evidence_of(
    catalogue: Catalogue, sources: Sources, site: str, seen: Seen | None = None
) -> tuple[EvidenceGroup, ...]:
    """The contextual evidence of a tensor: its producer's, then each of its consumers'."""
    numbered = list(enumerate(catalogue.context(site), start=1))
    by_operation = groupby(numbered, key=lambda entry: entry[1].operation.id)
    return tuple(_group(sources, site, list(entries), seen) for _, entries in by_operation)


def proof_badge(proof: Proof, explanation: str) -> Badge:
    """The badge of an excerpt's proof."""
    match proof:
        case Proof.VERIFIED:
            return Badge("proven", "✓", "verified", explanation)
        case Proof.SHARED:
            return Badge("proven", "≡", "same in every candidate", explanation)
        case Proof.RELEASE:
            return Badge("differs", "≈", "as in a release", explanation)


def content_badge(content: Content) -> Badge:
    """The badge of a whole file."""
    if content.settled:
        return proof_badge(Proof.VERIFIED, Proof.VERIFIED.explain(content.blob.release))
    shared = content.pin.shared_lines or 0
    return proof_badge(
        Proof.RELEASE,
        f"Read from {content.blob.release}: lines 1–{shared} are the same in every content that the pinned "
        "revision can have; later ones may be a line off until the git host has been asked.",
    )


def missing_badge(problem: ProvenanceError) -> Badge:
    """The badge of lines that cannot be shown."""
    return Badge("missing", "✕", "not available here", problem.message)


def pins_of(catalogue: Catalogue) -> tuple[Pin, ...]:
    """All cited files, in order of first use."""
    operations = catalogue.operations.values()
    return tuple(dict.fromkeys(e.citation.pin for operation in operations for e in operation.evidence))


def carrier_says(carrier: str) -> str:
    """Where bytes came from, for a person."""
    if carrier == "local cache":
        return "the local cache, which keeps checked bytes only"
    return carrier


def _group(sources: Sources, site: str, entries: Sequence[tuple[int, Context]], seen: Seen | None) -> EvidenceGroup:
    operation, produces = entries[0][1].operation, entries[0][1].produces
    columns: dict[str, list[EvidenceView]] = {}
    for number, context in entries:
        view = _view(sources, site, number, context, seen)
        columns.setdefault(view.source, []).append(view)
    return EvidenceGroup(
        id=f"evidence-{operation.id}",
        operation=operation.title,
        role="computes this tensor" if produces else "reads this tensor",
        difference=operation.difference,
        columns=tuple(map(tuple, columns.values())),
    )


def _view(sources: Sources, site: str, number: int, context: Context, seen: Seen | None) -> EvidenceView:
    evidence, citation = context.evidence, context.evidence.citation
    parts: tuple[CodePart, ...] = ()
    read_lines, advice, carried, first = "", "", "", citation.first
    try:
        excerpt = sources.excerpt(citation)
        content = sources.content(citation.pin)
    except ProvenanceError as problem:
        badge, advice = missing_badge(problem), problem.hint
    else:
        badge = proof_badge(excerpt.proof, excerpt.explanation)
        carried = f"git blob {excerpt.blob_id[:12]}, from {carrier_says(excerpt.carrier)}"
        parts = tuple(_parts(excerpt, content, _marks(site, context, seen)))
        first = excerpt.as_read.first
        if excerpt.as_read.lines != citation.lines:
            read_lines = f"{excerpt.as_read.lines} in {excerpt.release}"
    return EvidenceView(
        number=number,
        operation=context.operation.title,
        claim=evidence.claim,
        label=evidence.label,
        source=citation.pin.label,
        repository=citation.pin.repository,
        path=citation.pin.path,
        revision=citation.pin.revision,
        lines=citation.lines,
        permalink=citation.permalink,
        page=source_url(citation.pin, first),
        badge=badge,
        execution=None if seen is None else execution_badge(context.operation.id, evidence, seen.report),
        carried=carried,
        parts=parts,
        read_lines=read_lines,
        advice=advice,
        cite_url=cite_url(site, number, None if seen is None else seen.trace),
    )


def _marks(site: str, context: Context, seen: Seen | None) -> dict[int, Mark]:
    if seen is None or seen.report is None:
        return {}
    operation: Operation | None = None if context.produces else context.operation
    return marks_of(seen.report, site, context.evidence, operation)


def _level(text: str) -> int:
    return min((len(text) - len(text.lstrip(" "))) // 4, _DEEPEST)


def _parts(excerpt: Excerpt, content: Content, marks: dict[int, Mark]) -> Iterator[CodePart]:
    text = content.data.decode().split("\n")
    html = highlighted(content.data.decode())
    pin = excerpt.citation.pin

    def line(number: int) -> CodeLine:
        return CodeLine(number, html[number - 1], _level(text[number - 1]), marks.get(number))

    for part in excerpt.parts:
        if not isinstance(part, Gap):
            yield CodePart(tuple(line(cited.number) for cited in part.lines))
            continue
        left_out = range(part.first, part.last + 1)
        inside = tuple(map(line, left_out)) if len(left_out) <= _OPENABLE else ()
        yield CodePart(inside, str(part), source_url(pin, part.first))
