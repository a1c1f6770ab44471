"""`repin`: what another revision or release of a cited file does to its citations."""

import difflib
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from app.drift import SIGNS, by_place, citations_of, citers, shelf_of
from provenance.catalogue import Catalogue
from provenance.citation import Pin
from provenance.errors import InvalidInput, UnknownSource
from provenance.sources import Change, Drift, Obtained, resolve_all

if TYPE_CHECKING:
    from app.settings import Settings
    from provenance.gpt2.repin import Written


class PlaceOut(BaseModel):
    """A cited place, and what became of it there."""

    state: str = Field(description="same, moved, changed or vanished")
    anchor: str
    lines: tuple[int, int]
    new_anchor: str | None
    new_lines: tuple[int, int] | None
    operations: list[str] = Field(description="which operations cite it")
    note: str
    old_text: str
    new_text: str


class RepinOut(BaseModel):
    """How the citations of one file stand in another content of it."""

    repository: str
    path: str
    revision: str = Field(description="the pinned one, 40 hex digits")
    blob: str = Field(description="whose lines are cited, 40 hex digits")
    target: str
    target_blob: str
    target_origin: str
    counts: dict[str, int]
    places: list[PlaceOut]
    written: list[str] = Field(description="files that were rewritten")
    advice: str

    @property
    def holds(self) -> bool:
        """Whether every cited text still stands there."""
        return not self.counts[Drift.CHANGED] and not self.counts[Drift.VANISHED]


def repin(
    settings: "Settings", repository: str, target: str, *, write: bool = False, revision: str | None = None
) -> RepinOut:
    """Compare the cited content with another one, and with `write` rewrite the pin in this checkout.

    Raises UnknownSource, InvalidInput, SourceUnavailable, CarrierFailed.
    """
    from provenance.gpt2.catalogue import CATALOGUE
    from provenance.gpt2.pins import PINS

    if revision is not None and not write:
        raise InvalidInput("--revision is what --write pins.", hint="Add --write, or leave it out.")
    pin, shelf = _pin(repository, PINS), shelf_of(settings)
    content, pinned = shelf.obtain(pin, target), shelf.pinned(pin)
    changes = resolve_all(citations_of(CATALOGUE, pin), pinned, content.data)
    written = _write(pin, content, revision, changes) if write else None
    return _out(CATALOGUE, pin, content, changes, written)


def _pin(wanted: str, pins: Sequence[Pin]) -> Pin:
    """A pin by its repository or label. Raises UnknownSource."""
    found = next((pin for pin in pins if wanted in (pin.repository, pin.label)), None)
    if found is None:
        known = ", ".join(f"{pin.repository} ({pin.label})" for pin in pins)
        raise UnknownSource(f"Nothing cites a repository {wanted[:80]!r}.", hint=f"Cited are {known}.")
    return found


def _write(pin: Pin, content: Obtained, revision: str | None, changes: Sequence[Change]) -> "Written":
    from provenance.gpt2.repin import repinned, write

    return write(pin, repinned(pin, content, revision), changes, content.data)


def _out(
    catalogue: Catalogue, pin: Pin, content: Obtained, changes: Sequence[Change], written: "Written | None"
) -> RepinOut:
    places, by = by_place(changes), citers(catalogue, pin)
    counts = Counter(change.state for change in places)
    return RepinOut(
        repository=pin.repository,
        path=pin.path,
        revision=pin.revision,
        blob=pin.blobs[0].id,
        target=content.label,
        target_blob=content.blob_id,
        target_origin=content.origin,
        counts={state.value: counts[state] for state in Drift},
        places=[_place(change, by[change.span]) for change in places],
        written=[str(path) for path in written.files] if written else [],
        advice=written.advice if written else "",
    )


def _place(change: Change, operations: list[str]) -> PlaceOut:
    return PlaceOut(
        state=change.state.value,
        anchor=str(change.span.anchor),
        lines=(change.span.first, change.span.last),
        new_anchor=str(change.new_anchor) if change.new_anchor else None,
        new_lines=(change.new_first, change.new_last) if change.new_anchor else None,
        operations=operations,
        note=change.note,
        old_text=change.old_text,
        new_text=change.new_text,
    )


# --- as text ---


def repin_text(out: RepinOut) -> str:
    """All cited places in a table, the counts, and what changed."""
    head = [
        f"{out.repository} {out.path}",
        f"  cited  blob {out.blob}, pinned revision {out.revision}",
        f"  there  blob {out.target_blob}, {out.target} ({out.target_origin})",
    ]
    counts = ", ".join(f"{count} {state}" for state, count in out.counts.items())
    parts = ["\n".join(head), _table(out.places), f"{len(out.places)} cited places: {counts}."]
    parts += [_difference(place) for place in out.places if place.state in (Drift.CHANGED, Drift.VANISHED)]
    if out.advice:
        parts.append("\n".join(["Rewritten:", *(f"  {path}" for path in out.written), out.advice]))
    return "\n\n".join(parts)


def _table(places: Sequence[PlaceOut]) -> str:
    rows = [("", "state", "lines", "there", "anchor")]
    rows += [
        (SIGNS[Drift(p.state)], p.state, _lines(p.lines), _lines(p.new_lines) if p.new_lines else "–", _anchors(p))
        for p in places
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def _anchors(place: PlaceOut) -> str:
    return place.anchor if place.new_anchor in (None, place.anchor) else f"{place.anchor} → {place.new_anchor}"


def _lines(lines: tuple[int, int]) -> str:
    return f"{lines[0]}" if lines[0] == lines[1] else f"{lines[0]}–{lines[1]}"


def _difference(place: PlaceOut) -> str:
    """A changed place as a unified difference, whole; a vanished one with the reason."""
    there = f" → {_lines(place.new_lines)}" if place.new_lines else ""
    head = [f"{place.state.capitalize()}: {_lines(place.lines)}{there}, cited by {'; '.join(place.operations)}"]
    head += [f"  {place.note}"] if place.note else []
    old, new = place.old_text.split("\n"), place.new_text.split("\n") if place.new_lines else []
    lines = difflib.unified_diff(old, new, n=max(len(old), len(new)), lineterm="")
    return "\n".join([*head, *(f"  {line}" for line in list(lines)[3:])])
