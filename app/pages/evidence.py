"""Who says so: claims with their pinned lines, and what was proven about those lines."""

from dataclasses import dataclass

from app.pages.links import source_url
from provenance.catalogue import Catalogue, Context
from provenance.citation import Pin
from provenance.errors import ProvenanceError
from provenance.sources import Content, Excerpt, Gap, Proof, Sources


@dataclass(frozen=True, slots=True)
class Badge:
    """What was proven, never by colour alone: a kind for the colour, a sign, a word, a sentence."""

    kind: str
    sign: str
    word: str
    explanation: str


@dataclass(frozen=True, slots=True)
class CodeLine:
    """One line of an excerpt."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class CodePart:
    """Lines that follow one another, or (without lines) the sentence about those left out."""

    lines: tuple[CodeLine, ...]
    gap: str = ""


@dataclass(frozen=True, slots=True)
class EvidenceView:
    """One claim of an operation, and its excerpt where the source is at hand.

    `role` says what the operation does to the tensor; `source` is the label of the cited file, which
    gives the colour; `read_lines` are the lines of the copy that
    was read where they differ from the pinned ones; `advice` says what to do without an excerpt.
    """

    operation: str
    role: str
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
    parts: tuple[CodePart, ...]
    read_lines: str
    advice: str


def evidence_of(catalogue: Catalogue, sources: Sources, site: str) -> tuple[EvidenceView, ...]:
    """The contextual evidence of a tensor: its producer's, then its consumers'."""
    return tuple(_view(context, sources) for context in catalogue.context(site))


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


def _view(context: Context, sources: Sources) -> EvidenceView:
    evidence, citation = context.evidence, context.evidence.citation
    parts: tuple[CodePart, ...] = ()
    read_lines, advice, first = "", "", citation.first
    try:
        excerpt = sources.excerpt(citation)
    except ProvenanceError as problem:
        badge, advice = missing_badge(problem), problem.hint
    else:
        badge, parts = proof_badge(excerpt.proof, excerpt.explanation), _parts(excerpt)
        first = excerpt.as_read.first
        if excerpt.as_read.lines != citation.lines:
            read_lines = f"{excerpt.as_read.lines} in {excerpt.release}"
    return EvidenceView(
        operation=context.operation.title,
        role="computes this tensor" if context.produces else "reads this tensor",
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
        parts=parts,
        read_lines=read_lines,
        advice=advice,
    )


def _parts(excerpt: Excerpt) -> tuple[CodePart, ...]:
    return tuple(
        CodePart((), str(part))
        if isinstance(part, Gap)
        else CodePart(tuple(CodeLine(line.number, line.text) for line in part.lines))
        for part in excerpt.parts
    )
