"""The part of the API that gives citations."""

from fastapi import APIRouter

from app.api import Family, Here, Name, TraceId, problems
from app.families import find_in_families
from app.schemas_citing import CitationOut, TraceCitationOut, citations_of, trace_citation_of
from provenance.cited import trace_citation

router = APIRouter()


@router.get("/api/sites/{site:path}/citations", tags=["catalogue"], responses=problems(404, 410, 422))
def site_citations(here: Here, site: Name, family: Family = "") -> list[CitationOut]:
    """Each evidence of one tensor as address, Markdown, BibTeX, CFF and SWHID; none where no code is cited."""
    row, outline = find_in_families(site, family)
    return citations_of(outline.catalogue, row, here.sources)


@router.get("/api/traces/{id}/citation", tags=["traces"], responses=problems(404, 410))
def citation_of_trace(here: Here, id: TraceId) -> TraceCitationOut:
    """One trace as Markdown, BibTeX and CFF."""
    return trace_citation_of(trace_citation(here.store.open(id).record))
