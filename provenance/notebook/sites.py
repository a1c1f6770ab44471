"""What every tensor is and which pinned lines say so, for Python and notebooks. Reads no trace, loads no torch."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import overload

from provenance import lookup, places
from provenance.catalogue import Catalogue, Intermediate
from provenance.catalogues import CATALOGUES, EXAMPLE_CONSTANTS, catalogue_named
from provenance.errors import UnknownSite
from provenance.notebook.cards import Html, card, code, element, facts, heading, join, link, plural, quiet, table
from provenance.notebook.evidence import Citable, Cited, Written, checked_sources, written
from provenance.sources import Sources
from provenance.variants import exists_in

_SHOWN_SITES = 12


class Site:
    """A named place in the computation, layer and step left open: what it is, and who says so."""

    def __init__(self, row: Intermediate, catalogue: Catalogue, sources: Sources) -> None:
        self.row = row
        self._catalogue = catalogue
        self._sources = sources

    @property
    def site(self) -> str:
        """Its name in addresses: `h.attn.scores`."""
        return self.row.site

    @property
    def family(self) -> str:
        """The model family that it is of."""
        return self._catalogue.family

    @property
    def name(self) -> str:
        """The cited code's own expression for it."""
        return self.row.name

    @property
    def title(self) -> str:
        """What people call it."""
        return self.row.title

    @property
    def description(self) -> str:
        """One or two sentences on what it is."""
        return self.row.description

    @property
    def formula(self) -> str:
        """How it is computed from its inputs, in LaTeX."""
        return self.row.formula

    @property
    def shape(self) -> str:
        """Its shape with named axes, in the sizes of the family's best known model."""
        return self._catalogue.shape(self.row, EXAMPLE_CONSTANTS[self._catalogue.family])

    @property
    def aliases(self) -> tuple[str, ...]:
        """Its names in other implementations; `{layer}` stands for the layer's number."""
        return tuple(alias.pattern for alias in self.row.aliases)

    @property
    def inputs(self) -> "Sites":
        """What it is computed from."""
        return self._sites(self._catalogue.row(name) for name in dict.fromkeys(read.site for read in self.row.inputs))

    @property
    def readers(self) -> "Sites":
        """What is computed from it."""
        return self._sites(self._catalogue.readers(self.site))

    @property
    def evidence(self) -> tuple[Cited, ...]:
        """The claims that stand behind it: its producer's, then those of the operations that read it."""
        return tuple(Cited(context, self._sources) for context in self._catalogue.context(self.site))

    def cite(self, format: str = "markdown") -> Written:
        """Write all its evidence as references: url, markdown, bibtex, cff, swhid or json."""
        return written(self.evidence, format)

    def _sites(self, rows: Iterable[Intermediate]) -> "Sites":
        return Sites(Site(row, self._catalogue, self._sources) for row in rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Site) and (self.site, self._catalogue) == (other.site, other._catalogue)

    def __hash__(self) -> int:
        return hash(self.site)

    def __repr__(self) -> str:
        return f"<Site {self.site} {self.shape}: {self.title}>\n  {self.name}"

    def _repr_html_(self) -> str:
        return card(
            heading(self.row.kind.value, self.name, self.title),
            element("p", code(self.site), " ", self.shape),
            element("p", self.description),
            facts((("Exists in", exists_in(self.row)), *self.names_html())),
            *(cited.html() for cited in self.evidence if cited.context.produces),
            quiet(link(self._url, "Open in the explorer, when it runs")),
        )

    @property
    def _url(self) -> str:
        first = next(iter(CATALOGUES))
        family = "" if self.family == first else f"?family={self.family}"
        return f"{places.explorer_address()}/sites/{self.site}{family}"

    def names_html(self) -> Iterator[tuple[str, str]]:
        """Its other names by scheme, and its neighbours, as rows of facts."""
        for scheme in dict.fromkeys(alias.scheme for alias in self.row.aliases):
            yield scheme, _codes(alias.pattern for alias in self.row.aliases if alias.scheme == scheme)
        yield "Computed from", _codes(site.site for site in self.inputs)
        yield "Read by", _codes(site.site for site in self.readers)


class Sites(Sequence[Site]):
    """Several sites, in order of computation or best first."""

    def __init__(self, found: Iterable[Site]) -> None:
        self._found = tuple(found)

    @overload
    def __getitem__(self, index: int) -> Site: ...

    @overload
    def __getitem__(self, index: slice) -> "Sites": ...

    def __getitem__(self, index: int | slice) -> "Site | Sites":
        return Sites(self._found[index]) if isinstance(index, slice) else self._found[index]

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        shown = [f"  {site.site}: {site.title}" for site in self._found[:_SHOWN_SITES]]
        more = [f"  and {len(self) - _SHOWN_SITES} more"] if len(self) > _SHOWN_SITES else []
        return "\n".join([f"<{plural(len(self), 'site')}>", *shown, *more])

    def _repr_html_(self) -> str:
        rows = [(code(site.site), code(site.name), site.title, site.shape) for site in self]
        return card(table(("Site", "Expression", "Title", "Shape"), rows))


def site(name: str, *, family: str = "") -> Site:
    """What a tensor is, by its site, address, OpenAI's expression or any alias; needs no trace.

    Without a family it is that of the first one that has it. Raises UnknownSite with near matches,
    UnknownFamily, or AmbiguousName with the candidates.
    """
    catalogues = _catalogues(family)
    for catalogue in catalogues:
        with suppress(UnknownSite):
            return Site(lookup.find(catalogue, name)[0], catalogue, checked_sources())
    return Site(lookup.find(catalogues[0], name)[0], catalogues[0], checked_sources())


def sites(*, family: str = "") -> Sites:
    """Every named tensor of a family's forward pass, the first family's if none is named, in order of computation.

    Raises UnknownFamily.
    """
    catalogue = catalogue_named(family)
    return Sites(Site(row, catalogue, checked_sources()) for row in catalogue)


def search(query: str, *, family: str = "") -> Sites:
    """Tensors by any part of their names and descriptions, best first; close names where nothing fits.

    Looks through all families, or one. Raises UnknownFamily.
    """
    catalogues = _catalogues(family)
    found = [(match, catalogue) for catalogue in catalogues for match in lookup.search(catalogue, query)]
    if not found:
        found = [(match, catalogue) for catalogue in catalogues for match in lookup.near(catalogue, query)]
    found.sort(key=lambda each: -each[0].score)
    return Sites(Site(match.row, catalogue, checked_sources()) for match, catalogue in found)


def cite(thing: Citable | str, format: str = "markdown") -> Written:
    """Write a citation of a Site, a Tensor, a Trace, or a tensor's name.

    `format` is url, markdown, bibtex, cff, swhid or json. Raises InvalidInput for another one.
    """
    return (site(thing) if isinstance(thing, str) else thing).cite(format)


def _catalogues(family: str) -> tuple[Catalogue, ...]:
    """The catalogue of a family, or those of all."""
    return (catalogue_named(family),) if family else tuple(CATALOGUES.values())


def _codes(names: Iterable[str]) -> Html:
    """Names in code, separated by blanks."""
    return join(part for name in names for part in (code(name), Html(" ")))
