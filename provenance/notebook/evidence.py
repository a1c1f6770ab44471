"""Claims with their pinned lines, and how they are written in a reference. Loads no torch."""

from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Protocol

from provenance import places
from provenance.catalogue import Context
from provenance.cited import code_citation
from provenance.citing import CodeCitation, Format
from provenance.errors import InvalidInput, ProvenanceError
from provenance.notebook.cards import Html, card, element, join, lines_of_code, link, quiet
from provenance.sources import Excerpt, Run, Sources, default_sources

_BETWEEN = {Format.BIBTEX: "\n\n", Format.CFF: "\n---\n"}


class Written(str):
    """A citation, ready to be copied. A notebook shows its text, without a string's quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return card(lines_of_code(self.split("\n")))


class Citable(Protocol):
    """Whatever can be cited: a Site, a Tensor, a Trace."""

    def cite(self, format: str = "markdown") -> Written:
        """Write the citation in a format."""


class Cited:
    """One claim about a tensor, and the pinned lines that prove it."""

    def __init__(self, context: Context, sources: Sources) -> None:
        self.context = context
        self._sources = sources

    @property
    def claim(self) -> str:
        """What the lines prove, in one sentence."""
        return self.context.evidence.claim

    @cached_property
    def reference(self) -> CodeCitation:
        """The lines as a reference, in every format."""
        return code_citation(self._sources, self.context.evidence)

    @cached_property
    def excerpt(self) -> Excerpt:
        """The lines themselves, from bytes whose git blob id was checked. Raises SourceUnavailable."""
        return self._sources.excerpt(self.context.evidence.citation)

    @property
    def permalink(self) -> str:
        """The address of the lines at the full revision."""
        return self.reference.url

    @property
    def text(self) -> str:
        """The cited lines, without their numbers. Raises SourceUnavailable."""
        return "\n".join(run.text for run in self.excerpt.runs)

    def cite(self, format: str = "markdown") -> Written:
        """Write the lines as a reference: url, markdown, bibtex, cff, swhid or json."""
        return Written(self.reference.render(format_of(format)))

    def html(self) -> Html:
        """The claim, the link to the lines, and the lines with their numbers."""
        try:
            shown = join([lines_of_code(_numbered(self.excerpt)), quiet(self.excerpt.explanation)])
        except ProvenanceError as error:
            shown = quiet(str(error))
        return element("blockquote", element("p", self.claim), link(self.permalink, self.reference.title), shown)

    def __repr__(self) -> str:
        return f"<Cited {self.reference.title}: {self.claim}>"

    def _repr_html_(self) -> str:
        return card(self.html())


def written(evidence: Iterable[Cited], format: str, *last: str) -> Written:
    """Several citations one after the other, none of them twice. Raises InvalidInput where there are none."""
    asked = format_of(format)
    evidence = tuple(evidence)
    if not evidence and not last:
        raise InvalidInput(
            "No code is cited for this tensor: its equation is what stands behind it.", hint="Cite the trace."
        )
    if asked is Format.JSON:
        return Written("[" + ",\n".join([*(cited.cite(format) for cited in evidence), *last]) + "]")
    texts = [*(cited.cite(format) for cited in evidence), *last]
    return Written(_BETWEEN.get(asked, "\n").join(dict.fromkeys(texts)))


def format_of(name: str) -> Format:
    """A citation's format by its name. Raises InvalidInput."""
    try:
        return Format(name)
    except ValueError:
        known = ", ".join(format.value for format in Format)
        raise InvalidInput(f"There is no citation format {name!r}.", hint=f"Choose one of {known}.") from None


def checked_sources() -> Sources:
    """The cited files at hand on this machine; the network is not asked."""
    return _sources(places.cache_directory(), places.source_directories())


@lru_cache(maxsize=4)
def _sources(cache: Path, directories: tuple[Path, ...]) -> Sources:
    return default_sources(places.sources_below(cache), directories, network=False)


def _numbered(excerpt: Excerpt) -> Iterator[str]:
    """The lines with their numbers, and a word on those between them that are not cited."""
    width = len(str(excerpt.spans[-1].last))
    for part in excerpt.parts:
        if isinstance(part, Run):
            yield from (f"{line.number:>{width}}  {line.text}" for line in part.lines)
        else:
            yield f"{'':>{width}}  … {part}"
