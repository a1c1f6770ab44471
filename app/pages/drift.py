"""The page of drift: how the cited code stands in other releases, side by side."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from app.drift import SIGNS, by_place, citations_of, citers, shelf_of
from app.explorer import Explorer
from app.pages.badge import Badge
from app.pages.frame import Frame, frame
from app.pages.links import source_url, with_query
from app.pages.scope import Scope
from provenance.citation import Pin, Span
from provenance.errors import SourceUnavailable, UnknownSource
from provenance.gpt2.releases import RELEASES, Finding, Release
from provenance.sources import Change, Drift, resolve_all

_KINDS = {Drift.SAME: "proven", Drift.MOVED: "proven", Drift.CHANGED: "differs", Drift.VANISHED: "missing"}
_MEANINGS = {
    Drift.SAME: "The same text at the same lines.",
    Drift.MOVED: "The same text at other lines.",
    Drift.CHANGED: "Another text in the same place.",
    Drift.VANISHED: "Nothing there is its counterpart.",
}


@dataclass(frozen=True, slots=True)
class ReleaseLink:
    """A release with how its cited places came out: one count for each state."""

    version: str
    url: str
    current: bool
    counts: tuple[tuple[Badge, int], ...]


@dataclass(frozen=True, slots=True)
class SideLine:
    """A line of code on one side; `mark` is `−` or `+` where the other side has no equal."""

    number: int
    mark: str
    text: str


@dataclass(frozen=True, slots=True)
class Side:
    """The cited lines on one side: their numbers, and their text where it is at hand."""

    lines: str
    code: tuple[SideLine, ...]


@dataclass(frozen=True, slots=True)
class PlaceView:
    """A cited place in both contents; `new` is None where it vanished. `open` shows its code at once."""

    id: str
    function: str
    badge: Badge
    cited_by: tuple[str, ...]
    page: str
    note: str
    old: Side
    new: Side | None
    open: bool


@dataclass(frozen=True, slots=True)
class DriftPage:
    """Another release beside the cited content; `advice` says how to get texts that are not here."""

    frame: Frame
    pin: Pin
    pinned: str
    release: str
    blob: str
    releases: tuple[ReleaseLink, ...]
    advice: str
    command: str
    places: tuple[PlaceView, ...]


def drift_url(version: str | None = None) -> str:
    """The page of drift, at a release."""
    return with_query("/sources/drift", release=version)


def drift_page(explorer: Explorer, version: str = "") -> DriftPage:
    """A release beside the cited content: the newest one where none is named. Raises UnknownSource."""
    scope = Scope.of(explorer)
    reported = [release for release in RELEASES if release.valid]
    release = next((r for r in reversed(reported) if version in ("", r.version)), None)
    if release is None:
        known = ", ".join(r.version for r in reported) or "none"
        raise UnknownSource(f"There is no report about release {version[:40]!r}.", hint=f"There are: {known}.")
    cited = citers(scope.catalogue, release.pin)
    changes, advice = _changes(explorer, scope, release)
    return DriftPage(
        frame=frame(scope, f"Drift: {release.blob.release}"),
        pin=release.pin,
        pinned=release.pin.blobs[0].release,
        release=release.blob.release,
        blob=release.blob.id,
        releases=tuple(_link(other, len(cited), current=other is release) for other in reported),
        advice=advice,
        command=f"tensor-provenance repin {release.pin.label} {release.version}",
        places=_computed(release, cited, changes) if changes else _saved(release, cited),
    )


def _link(release: Release, places: int, *, current: bool) -> ReleaseLink:
    counts = Counter(state for _, state, _, _ in release.findings)
    counts[Drift.SAME] = places - counts.total()
    shown = tuple((_badge(state), counts[state]) for state in Drift)
    return ReleaseLink(release.version, drift_url(release.version), current, shown)


def _changes(explorer: Explorer, scope: Scope, release: Release) -> tuple[Sequence[Change], str]:
    """The comparison itself where both contents are here, else what is missing."""
    shelf = shelf_of(explorer.settings)
    other = shelf.at_hand(release.pin, release.blob)
    if other is None:
        return (), f"The text of {release.blob.release} is not at hand here."
    try:
        pinned = shelf.pinned(release.pin)
    except SourceUnavailable as problem:
        return (), str(problem)
    return by_place(resolve_all(citations_of(scope.catalogue, release.pin), pinned, other)), ""


def _computed(
    release: Release, cited: Mapping[Span, Sequence[str]], changes: Sequence[Change]
) -> tuple[PlaceView, ...]:
    return tuple(
        _place(number, release.pin, change.span, change.state, cited[change.span], change.note, *_sides(change))
        for number, change in enumerate(changes, start=1)
    )


def _saved(release: Release, cited: Mapping[Span, Sequence[str]]) -> tuple[PlaceView, ...]:
    """The saved report: states and lines without a text."""
    findings: dict[str, Finding] = {finding[0]: finding for finding in release.findings}
    spans = sorted(cited, key=lambda span: (span.first, span.last))
    places = []
    for number, span in enumerate(spans, start=1):
        anchor = str(span.anchor)
        _, state, first, last = findings.get(anchor, (anchor, Drift.SAME, span.first, span.last))
        new = None if state is Drift.VANISHED else Side(str(Span(first, last, span.anchor)), ())
        places.append(_place(number, release.pin, span, state, cited[span], "", Side(str(span), ()), new))
    return tuple(places)


def _place(
    number: int, pin: Pin, span: Span, state: Drift, by: Sequence[str], note: str, old: Side, new: Side | None
) -> PlaceView:
    return PlaceView(
        id=f"place-{number}",
        function=span.anchor.function,
        badge=_badge(state),
        cited_by=tuple(by),
        page=source_url(pin, span.first),
        note=note,
        old=old,
        new=new,
        open=state in (Drift.CHANGED, Drift.VANISHED),
    )


def _badge(state: Drift) -> Badge:
    return Badge(_KINDS[state], SIGNS[state], state.value, _MEANINGS[state])


def _sides(change: Change) -> tuple[Side, Side | None]:
    old, new = change.old_text.split("\n"), change.new_text.split("\n")
    if change.new_span is None:
        return Side(str(change.span), _code(change.span.first, old, set(), "−")), None
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    blocks = matcher.get_matching_blocks()
    kept_old = {line for a, _, size in blocks for line in range(a, a + size)}
    kept_new = {line for _, b, size in blocks for line in range(b, b + size)}
    return (
        Side(str(change.span), _code(change.span.first, old, kept_old, "−")),
        Side(str(change.new_span), _code(change.new_first, new, kept_new, "+")),
    )


def _code(first: int, lines: Sequence[str], kept: set[int], mark: str) -> tuple[SideLine, ...]:
    return tuple(SideLine(first + n, "" if n in kept else mark, text) for n, text in enumerate(lines))
