"""How to cite: a tensor's evidence, one piece of it, or a trace, in every format."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.frame import Frame, frame
from app.pages.links import cite_trace_url, cite_url, trace_url
from app.pages.scope import Scope
from provenance.catalogue import Intermediate
from provenance.cited import code_citation, trace_citation
from provenance.citing import CodeCitation
from provenance.citing_trace import TraceCitation
from provenance.errors import OutOfRange
from provenance.inputs import said
from provenance.trace import Trace


@dataclass(frozen=True, slots=True)
class Format:
    """A citation in one format, to be copied; `id` is that of its field."""

    id: str
    name: str
    text: str
    lines: bool


@dataclass(frozen=True, slots=True)
class Reference:
    """Something that can be cited, and what is known about it."""

    id: str
    title: str
    known: str
    formats: tuple[Format, ...]


@dataclass(frozen=True, slots=True)
class CitePage:
    """References, each in every format that it has; `url` is this page's own.

    `own` says that there is no cited code: what is said here rests on equations.
    """

    frame: Frame
    own: bool
    title: str
    back: str
    back_text: str
    url: str
    references: tuple[Reference, ...]


def cite_site_page(
    explorer: Explorer, row: Intermediate, number: int | None, trace: Trace | None, family: str = ""
) -> CitePage:
    """A tensor's evidence, or the piece with that number. Raises OutOfRange."""
    scope = Scope.of(explorer, trace, family=family)
    context = scope.catalogue.context(row.site)
    if number is not None and not 1 <= number <= len(context):
        raise OutOfRange(
            f"{row.site} has no evidence {number}.",
            hint=f"It has {len(context)} pieces, counted from 1." if context else "No cited code stands behind it.",
        )
    chosen = context if number is None else (context[number - 1],)
    codes = dict.fromkeys(code_citation(explorer.sources, entry.evidence) for entry in chosen)
    prefix = f"cite-{number or 'all'}"
    references = [_code(f"{prefix}-{place}", code) for place, code in enumerate(codes, start=1)]
    if trace is not None and number is None:
        references.append(_trace(f"{prefix}-trace", trace_citation(trace.record)))
    return CitePage(
        frame=frame(scope, f"Cite {row.title}", site=row.site),
        own=not scope.outline.cited,
        title=f"Cite {row.title}" if number is None else f"Cite {codes.popitem()[0].title}",
        back=scope.url(row),
        back_text=row.title,
        url=cite_url(row.site, number, trace.id if trace else None, scope.family),
        references=tuple(references),
    )


def cite_trace_page(explorer: Explorer, trace: Trace) -> CitePage:
    """A trace in every format that it has."""
    cited = trace_citation(trace.record)
    return CitePage(
        frame=frame(Scope.of(explorer, trace), f"Cite {cited.title}"),
        own=False,
        title=f"Cite {cited.title}",
        back=trace_url(trace.id),
        back_text=said(trace.recipe),
        url=cite_trace_url(trace.id),
        references=(_trace("cite-trace", cited),),
    )


def _code(id: str, code: CodeCitation) -> Reference:
    return Reference(
        id=id,
        title=code.title,
        known=code.known,
        formats=(
            Format(f"{id}-url", "Address", code.url, lines=False),
            Format(f"{id}-swhid", "SWHID", code.swhid, lines=False),
            Format(f"{id}-markdown", "Markdown", code.markdown, lines=True),
            Format(f"{id}-bibtex", "BibTeX", code.bibtex, lines=True),
            Format(f"{id}-cff", "CFF", code.cff, lines=True),
        ),
    )


def _trace(id: str, cited: TraceCitation) -> Reference:
    return Reference(
        id=id,
        title=cited.title,
        known="Everything that determines the run; it has no public address and no SWHID.",
        formats=(
            Format(f"{id}-markdown", "Markdown", cited.markdown, lines=True),
            Format(f"{id}-bibtex", "BibTeX", cited.bibtex, lines=True),
            Format(f"{id}-cff", "CFF", cited.cff, lines=True),
        ),
    )
