"""`cite`: the evidence of a tensor, and a trace, as references."""

from typing import TYPE_CHECKING, Annotated

import typer

from app.cli_shell import FamilyName, emit, emit_json, opened, settings_with, trace_id
from provenance.citing import Format
from provenance.errors import InvalidInput

if TYPE_CHECKING:
    from app.explorer import Explorer
    from app.schemas_citing import CitedOut
    from provenance.catalogue import Catalogue, Intermediate
    from provenance.trace import Trace

_BETWEEN = {Format.BIBTEX: "\n\n", Format.CFF: "\n---\n"}
"""What stands between two citations. A CFF file holds one, so several are several documents."""


def cite(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A site, an address, OpenAI's expression, or another name.")
    ],
    format: Annotated[Format, typer.Option("--format", help="How to write the citations.")] = Format.MARKDOWN,
    trace: Annotated[
        str | None, typer.Option(metavar="ID", help="A trace: its id, 6 or more first digits, or 'latest'.")
    ] = None,
    family: FamilyName = None,
) -> None:
    """Cite the pinned lines that say what a tensor is.

    With --trace: that trace too, as markdown, bibtex, cff or json.
    """
    from app.families import find_in_families
    from provenance.lookup import find

    with opened(settings_with()) as here:
        recorded = None if trace is None else here.store.open(trace_id(here, trace))
        if recorded is None:
            row, outline = find_in_families(name, family or "")
            catalogue = outline.catalogue
        else:
            catalogue = here.catalogue(recorded)
            row, _ = find(catalogue, name)
        if recorded is None and not catalogue.context(row.site):
            raise InvalidInput(
                f"No code is cited for {row.site}: its equation is what stands behind it.",
                hint="A trace of it can be cited: --trace ID.",
            )
        if format is Format.JSON:
            emit_json(_cited(here, catalogue, row, recorded))
        else:
            emit(_text(here, catalogue, row, recorded, format))


def _cited(here: "Explorer", catalogue: "Catalogue", row: "Intermediate", trace: "Trace | None") -> "CitedOut":
    from app.schemas_citing import CitedOut, citations_of, trace_citation_of
    from provenance.cited import trace_citation

    return CitedOut(
        citations=citations_of(catalogue, row, here.sources),
        trace=trace_citation_of(trace_citation(trace.record)) if trace else None,
    )


def _text(
    here: "Explorer", catalogue: "Catalogue", row: "Intermediate", trace: "Trace | None", format: Format
) -> str:
    """The citations one after the other, none of them twice; the trace's last. Raises InvalidInput."""
    from provenance.cited import code_citation, trace_citation

    last = [trace_citation(trace.record).render(format)] if trace else []
    context = catalogue.context(row.site)
    texts = [code_citation(here.sources, entry.evidence).render(format) for entry in context]
    return _BETWEEN.get(format, "\n").join(dict.fromkeys(texts + last))
