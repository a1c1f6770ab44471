"""Cited files: carried by whatever is at hand, accepted only by their git blob id."""

from provenance.sources.anchors import check, resolve
from provenance.sources.archives import ArchiveCarrier, download_archives
from provenance.sources.blob import Content, git_blob_id
from provenance.sources.carriers import CacheCarrier, Carrier, Delivery, PackageCarrier
from provenance.sources.clones import DirectoryCarrier, GitCarrier
from provenance.sources.excerpts import Excerpt, Gap, Line, Proof, Run
from provenance.sources.library import CarrierReport, Sources, State, default_sources

__all__ = [
    "ArchiveCarrier",
    "CacheCarrier",
    "Carrier",
    "CarrierReport",
    "Content",
    "Delivery",
    "DirectoryCarrier",
    "Excerpt",
    "Gap",
    "GitCarrier",
    "Line",
    "PackageCarrier",
    "Proof",
    "Run",
    "Sources",
    "State",
    "check",
    "default_sources",
    "download_archives",
    "git_blob_id",
    "resolve",
]
