"""How cited lines are written in a reference: address, Markdown, BibTeX, CFF, SWHID, JSON.

Everything is built from plain data, offline. A citation claims no more than is known: only where
the blob is settled as the revision's own does its SWHID name repository, revision and path.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote

from provenance.citation import Blob, Citation, Span
from provenance.errors import InvalidInput
from provenance.markup import bibtex_entry, cff_document, markdown_text, tex, visible

_EN_DASH = tex("–")


class Format(StrEnum):
    """A way to write a citation."""

    URL = "url"
    MARKDOWN = "markdown"
    BIBTEX = "bibtex"
    CFF = "cff"
    SWHID = "swhid"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class CodeCitation:
    """Lines of a pinned file, and the blob in which they stand as cited.

    `settled` tells whether that blob is known to be the revision's own; `claim` is what the
    lines prove, in one sentence.
    """

    citation: Citation
    blob: Blob
    settled: bool
    claim: str

    @property
    def author(self) -> str:
        """The organisation behind the repository."""
        return self.citation.pin.author or f"The contributors to {self.citation.pin.repository}"

    @property
    def lines(self) -> str:
        """The lines as a person writes them; where some are left out, with the cited ones."""
        spans = self.citation.spans
        word = "line" if self.citation.first == self.citation.last else "lines"
        parts = f" (of these {', '.join(map(str, spans))})" if self.citation.gaps else ""
        return f"{word} {self.citation.lines}{parts}"

    @property
    def known(self) -> str:
        """One sentence on what is known about the content."""
        if self.settled:
            return f"Git blob {self.blob.id}, the revision's own content."
        if self.citation.shared:
            return (
                f"Git blob {self.blob.id}, as in {self.blob.release}; at these lines it equals "
                "every content that the revision can have."
            )
        return (
            f"The lines are those of {self.blob.release} (git blob {self.blob.id}); those of the revision may differ."
        )

    @property
    def _at_revision(self) -> bool:
        """Whether the revision is known to have this very text at these lines."""
        return self.settled or self.citation.shared

    @property
    def url(self) -> str:
        """Address of the whole range at the full revision."""
        return self.url_of(self.citation.first, self.citation.last)

    def url_of(self, first: int, last: int) -> str:
        """Address of some of the lines."""
        fragment = f"#L{first}" if first == last else f"#L{first}-L{last}"
        return quote(self.citation.pin.permalink, safe="/:") + fragment

    @property
    def core_swhid(self) -> str:
        """SWHID of the blob: its git id is the id of the content."""
        return f"swh:1:cnt:{self.blob.id}"

    @property
    def swhid(self) -> str:
        """SWHID of the whole range, qualified; see `swhid_of`."""
        return self.swhid_of(self.citation.first, self.citation.last)

    def swhid_of(self, first: int, last: int) -> str:
        """SWHID of a run of lines, its qualifiers in the specified order.

        Origin, anchor and path together say that the revision holds the blob at that path. They
        are left out where that is not settled: the content and its lines are what is known.
        """
        pin = self.citation.pin
        place = (
            f"origin={quote(pin.origin, safe='/:')}",
            f"anchor=swh:1:rev:{pin.revision}",
            f"path=/{quote(pin.path)}",
        )
        lines = f"lines={first}" if first == last else f"lines={first}-{last}"
        return ";".join([self.core_swhid, *(place if self.settled else ()), lines])

    @property
    def markdown(self) -> str:
        """A link to the lines."""
        pin = self.citation.pin
        text = f"{pin.repository} {pin.path}, {self.lines} at {pin.revision[:12]}"
        doubt = "" if self._at_revision else markdown_text(f" (lines as in {self.blob.release})")
        return f"[{markdown_text(text)}]({self.url}){doubt}"

    @property
    def title(self) -> str:
        """Repository, path and lines."""
        return f"{self.citation.pin.repository}: {self.citation.pin.path}, {self.lines}"

    @property
    def year(self) -> int | None:
        """Year of the revision, where it was looked up."""
        return self.citation.pin.year

    @property
    def bibtex(self) -> str:
        """A `@misc` entry in ASCII, with the fields that biblatex-software knows."""
        pin = self.citation.pin
        lines = "-".join(f"L{span}" for span in self.citation.spans)
        return bibtex_entry(
            f"{pin.repository}-{pin.path.rpartition('/')[2]}-{pin.revision[:12]}-{lines}",
            author=f"{{{tex(self.author)}}}",
            title=f"{{{tex(self.title).replace(_EN_DASH, '--')}}}",
            year=str(self.year or ""),
            url=self.url,
            note=tex(f"Revision {pin.revision}. {self.known}"),
            license=tex(pin.license),
            swhid=self.swhid,
        )

    @property
    def cff(self) -> str:
        """A Citation File Format 1.2.0 document."""
        pin = self.citation.pin
        commit = {"commit": pin.revision} if self._at_revision else {}
        # CFF takes SPDX names here and nothing else; such a name has no blanks.
        spdx = {} if " " in pin.license else {"license": pin.license}
        return cff_document(
            {
                "message": "To cite these lines of code, use this.",
                "type": "software",
                "title": visible(self.title),
                "authors": [{"name": self.author}],
                "abstract": visible(f"{self.claim} {self.known} License: {pin.license}."),
                "url": self.url,
                "repository-code": quote(pin.origin, safe="/:"),
                **commit,
                **spdx,
                "identifiers": [
                    {"type": "swh", "value": self.core_swhid, "description": "The content in which the lines stand"},
                    {"type": "other", "value": self.swhid, "description": "The lines"},
                ],
            }
        )

    def fields(self) -> Mapping[str, object]:
        """Everything, as JSON can hold it."""
        pin = self.citation.pin
        return {
            "claim": self.claim,
            "repository": pin.repository,
            "revision": pin.revision,
            "path": pin.path,
            "author": self.author,
            "license": pin.license,
            "lines": self.citation.lines,
            "spans": [self._span(span) for span in self.citation.spans],
            "blob": self.blob.id,
            "settled": self.settled,
            "known": self.known,
            "url": self.url,
            "swhid": self.swhid,
            "core_swhid": self.core_swhid,
            "markdown": self.markdown,
            "bibtex": self.bibtex,
            "cff": self.cff,
        }

    def _span(self, span: Span) -> Mapping[str, object]:
        return {
            "first": span.first,
            "last": span.last,
            "anchor": str(span.anchor),
            "url": self.url_of(span.first, span.last),
            "swhid": self.swhid_of(span.first, span.last),
        }

    def render(self, format: Format) -> str:
        """The citation in one format, without a line end after it."""
        if format is Format.JSON:
            return json.dumps(self.fields(), indent=2)
        text: str = getattr(self, format.value)
        return text


def cite_code(citation: Citation, blob_id: str, settled: bool, claim: str) -> CodeCitation:
    """Cite lines as they stand in a blob. Raises InvalidInput for a blob that the pin does not know."""
    for blob in citation.pin.blobs:
        if blob.id == blob_id:
            return CodeCitation(citation, blob, settled, claim)
    raise InvalidInput(f"Blob {blob_id[:12]!r} is no content of {citation.pin.key} that its pin knows.")
