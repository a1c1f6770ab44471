"""Cited files: carried by whatever is at hand, accepted only by their git blob id."""

from provenance.sources.anchors import check, resolve
from provenance.sources.archives import ArchiveCarrier, download_archives
from provenance.sources.blob import Content, git_blob_id
from provenance.sources.carriers import CacheCarrier, Carrier, Delivery, PackageCarrier
from provenance.sources.clones import DirectoryCarrier, GitCarrier
from provenance.sources.drift import Change, Drift, lines_of, resolve_all
from provenance.sources.excerpts import Excerpt, Gap, Line, Proof, Run
from provenance.sources.library import CarrierReport, Sources, State, default_sources
from provenance.sources.obtain import Obtained, Shelf, release_of

__all__ = [
    "ArchiveCarrier",
    "CacheCarrier",
    "Carrier",
    "CarrierReport",
    "Change",
    "Content",
    "Delivery",
    "DirectoryCarrier",
    "Drift",
    "Excerpt",
    "Gap",
    "GitCarrier",
    "Line",
    "Obtained",
    "PackageCarrier",
    "Proof",
    "Run",
    "Shelf",
    "Sources",
    "State",
    "check",
    "default_sources",
    "download_archives",
    "git_blob_id",
    "lines_of",
    "release_of",
    "resolve",
    "resolve_all",
]
