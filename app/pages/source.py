"""The pages of the cited files: the list of pins, and each file with what cites its lines."""

from dataclasses import dataclass
from functools import lru_cache

from app.explorer import Explorer
from app.pages.badge import Badge
from app.pages.evidence import content_badge, missing_badge, pins_of
from app.pages.frame import Frame, frame
from app.pages.links import source_url
from app.pages.scope import Link, Scope
from provenance.catalogue import Catalogue, Evidence, Operation
from provenance.citation import Pin, Span
from provenance.errors import ProvenanceError, UnknownSource
from provenance.sources import Content, Sources


@dataclass(frozen=True, slots=True)
class PinView:
    """A pinned file, what is known of its bytes, and how much cites it."""

    label: str
    repository: str
    path: str
    revision: str
    license: str
    url: str
    permalink: str
    badge: Badge
    blob: str
    carrier: str
    advice: str
    citations: int


@dataclass(frozen=True, slots=True)
class SourcesPage:
    """All cited files."""

    frame: Frame
    pins: tuple[PinView, ...]


@dataclass(frozen=True, slots=True)
class Citing:
    """An operation that cites lines of a file: its claims about them, and its tensors."""

    id: str
    title: str
    claims: tuple[str, ...]
    lines: tuple[tuple[int, str], ...]
    tensors: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """Lines that follow one another and are cited by the same operations; often by none."""

    lines: tuple[tuple[int, str], ...]
    cited_by: tuple[Citing, ...]


@dataclass(frozen=True, slots=True)
class SourcePage:
    """A cited file, whole; `segments` is empty where its bytes are not at hand."""

    frame: Frame
    pin: PinView
    segments: tuple[Segment, ...]
    citing: tuple[Citing, ...]


def sources_page(explorer: Explorer) -> SourcesPage:
    """The list of cited files."""
    scope = Scope.of(explorer)
    pins = pins_of(scope.catalogue)
    return SourcesPage(frame(scope, "Sources"), tuple(_pin(explorer.sources, scope.catalogue, pin) for pin in pins))


def source_page(explorer: Explorer, key: str) -> SourcePage:
    """A cited file by `owner/name/path`. Raises UnknownSource."""
    scope = Scope.of(explorer)
    pins = {pin.key: pin for pin in pins_of(scope.catalogue)}
    if key not in pins:
        raise UnknownSource(
            f"No tensor cites a file {key[:200]!r}.", hint="The page of sources lists all cited files."
        )
    pin = pins[key]
    spans = _spans(explorer.sources, scope.catalogue, pin)
    citing = {id: _citing(scope, pin, id, found) for id, found in spans.items()}
    return SourcePage(
        frame=frame(scope, f"{pin.repository}: {pin.path}"),
        pin=_pin(explorer.sources, scope.catalogue, pin),
        segments=_segments(explorer.sources, pin, spans, citing),
        citing=tuple(citing.values()),
    )


def _pin(sources: Sources, catalogue: Catalogue, pin: Pin) -> PinView:
    blob = carrier = advice = ""
    try:
        content = sources.content(pin)
    except ProvenanceError as problem:
        badge, advice = missing_badge(problem), problem.hint
    else:
        badge, blob, carrier = content_badge(content), content.blob.id, content.carrier
    return PinView(
        label=pin.label,
        repository=pin.repository,
        path=pin.path,
        revision=pin.revision,
        license=pin.license,
        url=source_url(pin),
        permalink=pin.permalink,
        badge=badge,
        blob=blob,
        carrier=carrier,
        advice=advice,
        citations=sum(len(_evidence(operation, pin)) for operation in catalogue.operations.values()),
    )


def _evidence(operation: Operation, pin: Pin) -> tuple[Evidence, ...]:
    return tuple(evidence for evidence in operation.evidence if evidence.citation.pin == pin)


def _spans(sources: Sources, catalogue: Catalogue, pin: Pin) -> dict[str, tuple[Span, ...]]:
    """The spans that each operation cites, as they stand in the bytes at hand."""
    found: dict[str, tuple[Span, ...]] = {}
    for operation in catalogue.operations.values():
        spans = [span for evidence in _evidence(operation, pin) for span in _as_read(sources, evidence)]
        if spans:
            found[operation.id] = tuple(dict.fromkeys(sorted(spans, key=lambda span: (span.first, span.last))))
    return found


def _as_read(sources: Sources, evidence: Evidence) -> tuple[Span, ...]:
    try:
        return sources.excerpt(evidence.citation).spans
    except ProvenanceError:
        return evidence.citation.spans


def _citing(scope: Scope, pin: Pin, id: str, spans: tuple[Span, ...]) -> Citing:
    operation = scope.catalogue.operations[id]
    return Citing(
        id=f"by-{id}",
        title=operation.title,
        claims=tuple(evidence.claim for evidence in _evidence(operation, pin)),
        lines=tuple((span.first, str(span)) for span in spans),
        tensors=tuple(scope.link(row) for row in scope.catalogue if row.operation == id),
    )


def _segments(
    sources: Sources, pin: Pin, spans: dict[str, tuple[Span, ...]], citing: dict[str, Citing]
) -> tuple[Segment, ...]:
    try:
        lines = _lines(sources.content(pin))
    except ProvenanceError:
        return ()
    segments: list[Segment] = []
    run: list[tuple[int, str]] = []
    by: tuple[str, ...] = ()
    for number, text in enumerate(lines, start=1):
        now = tuple(id for id, found in spans.items() if any(number in span for span in found))
        if now != by and run:
            segments.append(Segment(tuple(run), tuple(citing[id] for id in by)))
            run = []
        by = now
        run.append((number, text))
    if run:
        segments.append(Segment(tuple(run), tuple(citing[id] for id in by)))
    return tuple(segments)


@lru_cache(maxsize=8)
def _lines(content: Content) -> tuple[str, ...]:
    text = content.data.decode("utf-8", errors="replace")
    return tuple(text.removesuffix("\n").split("\n"))
