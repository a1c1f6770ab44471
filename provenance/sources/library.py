"""The library of cited files: asks carriers in order, believes none, and cuts excerpts."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from provenance.citation import Citation, Pin
from provenance.errors import BlobMismatch, CarrierFailed, SourceUnavailable
from provenance.sources.archives import ArchiveCarrier
from provenance.sources.blob import Content, checked_blob
from provenance.sources.carriers import CacheCarrier, Carrier, PackageCarrier, packages_of
from provenance.sources.clones import DirectoryCarrier, GitCarrier
from provenance.sources.excerpts import Excerpt, excerpt_of
from provenance.sources.store import Settlements


class State(StrEnum):
    """How a carrier answered for a pin."""

    HOLDS = "holds it"
    LACKS = "does not carry it"
    REFUSED = "refused"
    FAILED = "failed"
    NOT_ASKED = "not asked"


@dataclass(frozen=True, slots=True)
class CarrierReport:
    """What one carrier said about one pin: a row of the status table."""

    pin: Pin
    carrier: str
    state: State
    detail: str

    def __str__(self) -> str:
        said = (self.detail or self.state).rstrip(".")
        return said if said.startswith(self.carrier) else f"{self.carrier}: {said}"


class Sources:
    """Checked contents and excerpts of cited files. Safe to use from several threads.

    A cache below `cache_directory` is always asked first; then the carriers, in their order.
    """

    def __init__(self, carriers: Sequence[Carrier], cache_directory: Path) -> None:
        self._cache = CacheCarrier(cache_directory / "blobs")
        self._settlements = Settlements(cache_directory / "settled")
        self.carriers: tuple[Carrier, ...] = (self._cache, *carriers)
        self._contents: dict[Pin, Content] = {}
        self._excerpts: dict[Citation, tuple[Content, Excerpt]] = {}
        self.missed = 0
        self._remote_said: dict[tuple[Pin, str], CarrierReport] = {}
        self._locks: dict[Pin, threading.Lock] = {}
        self._guard = threading.Lock()

    def content(self, pin: Pin) -> Content:
        """The file's checked bytes. Raises SourceUnavailable when no carrier has them.

        A remote carrier is asked only when no other has the file, and after a failure not again
        until `fetch`: a page must not wait twice for a host that does not answer.
        """
        with self._lock(pin):
            if pin not in self._contents:
                found, reports = self._gather(pin, insist=False)
                if found is None:
                    self.missed += 1
                    raise _unavailable(pin, reports)
                self._contents[pin] = found
            return self._contents[pin]

    def excerpt(self, citation: Citation) -> Excerpt:
        """The cited lines. Raises SourceUnavailable, AnchorMoved."""
        content = self.content(citation.pin)
        known = self._excerpts.get(citation)
        if known is None or known[0] is not content:
            # Finding the anchors means parsing the file's statements: once for each citation.
            known = self._excerpts[citation] = (content, excerpt_of(content, citation))
        return known[1]

    def status(self, pins: Iterable[Pin]) -> list[CarrierReport]:
        """What each carrier says about each pin; remote ones are not asked."""
        return [self._report(carrier, pin) for pin in pins for carrier in self.carriers]

    def fetch(self, pins: Iterable[Pin]) -> list[CarrierReport]:
        """Get what is missing and settle what is open, over the network where carriers may.

        Does not raise for a carrier that fails: the reports say so.
        """
        reports: list[CarrierReport] = []
        for pin in pins:
            with self._lock(pin):
                found, said = self._gather(pin, insist=True)
                if found is not None:
                    self._contents[pin] = found
            reports += said
        return reports

    def _gather(self, pin: Pin, *, insist: bool) -> tuple[Content | None, list[CarrierReport]]:
        """Ask carriers in order until the revision's own bytes are there, else keep the first found."""
        known = self._known(pin)
        found: Content | None = None
        reports: list[CarrierReport] = []
        for carrier in self.carriers:
            earlier = self._remote_said.get((pin, carrier.name))
            if carrier.remote and not insist and (found is not None or earlier is not None):
                reports += [earlier] if earlier else []
                continue
            content, report = self._ask(carrier, pin, known)
            reports.append(report)
            if carrier.remote:
                self._remote_said[pin, carrier.name] = report
            if content is not None and (found is None or content.settled):
                found = content
            if found is not None and found.settled:
                break
        if found is not None:
            self._keep(found)
        return found, reports

    def _ask(self, carrier: Carrier, pin: Pin, known: Pin) -> tuple[Content | None, CarrierReport]:
        """Ask one carrier and check what it delivers. `known` is the pin, narrowed if settled."""
        try:
            delivery = carrier.read(known)
            if delivery is None:
                return None, CarrierReport(pin, carrier.name, State.LACKS, "")
            blob = checked_blob(known, delivery.data, delivery.origin)
        except BlobMismatch as error:
            return None, CarrierReport(pin, carrier.name, State.REFUSED, error.message)
        except CarrierFailed as error:
            return None, CarrierReport(pin, carrier.name, State.FAILED, error.message)
        settled = delivery.at_revision or len(known.blobs) == 1
        seen = "the pinned revision's own" if settled else f"as in {blob.release}"
        detail = f"{delivery.origin}: blob {blob.id[:12]}, {seen}"
        content = Content(pin, blob, delivery.data, delivery.origin, settled)
        return content, CarrierReport(pin, carrier.name, State.HOLDS, detail)

    def _report(self, carrier: Carrier, pin: Pin) -> CarrierReport:
        if carrier.remote:
            return self._remote_said.get(
                (pin, carrier.name), CarrierReport(pin, carrier.name, State.NOT_ASKED, "asked by fetch only")
            )
        return self._ask(carrier, pin, self._known(pin))[1]

    def _known(self, pin: Pin) -> Pin:
        """The pin with the one blob that its revision is known to hold, where that is known."""
        held = self._contents.get(pin)
        blob = held.blob if held and held.settled else self._settlements.get(pin)
        return pin if blob is None else replace(pin, blobs=(blob,), shared_lines=None)

    def _keep(self, content: Content) -> None:
        if content.carrier != self._cache.name:
            self._cache.put(content.data)
        if content.settled and len(content.pin.blobs) > 1:
            self._settlements.put(content.pin, content.blob)

    def _lock(self, pin: Pin) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(pin, threading.Lock())


def default_sources(cache_directory: Path, directories: Sequence[Path] = (), *, network: bool = False) -> Sources:
    """The usual carriers: cache, named directories, installed packages, archives, git host.

    The git host takes part only with `network`.
    """
    carriers: list[Carrier] = [DirectoryCarrier(directory) for directory in directories]
    carriers += [PackageCarrier(), ArchiveCarrier(cache_directory / "archives")]
    if network:
        carriers.append(GitCarrier(cache_directory / "git"))
    return Sources(carriers, cache_directory)


def _unavailable(pin: Pin, reports: Sequence[CarrierReport]) -> SourceUnavailable:
    said = "; ".join(str(report) for report in reports)
    names = " or ".join(f"{p.distribution}=={p.version}" for p in packages_of(pin))
    install = f", or install {names}" if names else ""
    return SourceUnavailable(
        f"{pin.path} of {pin.repository} at {pin.revision[:12]} is not at hand ({said}).",
        hint=f"Run `tensor-provenance sources fetch`{install}.",
    )
