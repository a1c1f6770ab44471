"""What `repin` and the page of drift share: which places of a file are cited, by what, and where texts lie."""

from collections.abc import Sequence

from app.settings import Settings
from provenance.catalogue import Catalogue, Evidence
from provenance.citation import Citation, Pin, Span
from provenance.sources import Change, Drift, Shelf

SIGNS = {Drift.SAME: "=", Drift.MOVED: "→", Drift.CHANGED: "≠", Drift.VANISHED: "✕"}


def shelf_of(settings: Settings) -> Shelf:
    """Where other contents of the cited files are looked for."""
    return Shelf(settings.cache_directory / "sources", settings.source_directories, settings.network)


def citations_of(catalogue: Catalogue, pin: Pin) -> tuple[Citation, ...]:
    """Every citation of a pin, once, in order of computation."""
    return tuple(dict.fromkeys(evidence.citation for _, evidence in _citing(catalogue, pin)))


def citers(catalogue: Catalogue, pin: Pin) -> dict[Span, list[str]]:
    """For each cited place the titles of the operations that cite it."""
    found: dict[Span, list[str]] = {}
    for title, evidence in _citing(catalogue, pin):
        for span in evidence.citation.spans:
            if title not in found.setdefault(span, []):
                found[span].append(title)
    return found


def by_place(changes: Sequence[Change]) -> list[Change]:
    """Each cited place once, in order of line."""
    return sorted({c.span: c for c in changes}.values(), key=lambda change: (change.span.first, change.span.last))


def _citing(catalogue: Catalogue, pin: Pin) -> list[tuple[str, Evidence]]:
    operations = catalogue.operations.values()
    return [(o.title, evidence) for o in operations for evidence in o.evidence if evidence.citation.pin == pin]
