"""The addresses of proofs: asking for a verification, its verdict, and how to cite."""

from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from app.explorer import Explorer
from app.families import find_in_families
from app.pages import cite, tensor
from app.pages.links import tensor_url, verdict_url
from app.pages.proof import proof_state
from app.pages.verdict import verdict_page
from app.render import render, wants_fragment
from app.routes import Here
from provenance.errors import ProvenanceError
from provenance.names import Address
from provenance.recorder import check_address
from provenance.trace import Trace

router = APIRouter(include_in_schema=False)


@router.post("/traces/{id}/verify")
def verify_trace(
    here: Here, id: str, address: Annotated[str, Form()] = "", head: Annotated[str, Form()] = ""
) -> Response:
    """Verify a trace in the background, and go back to the tensor or verdict from where it was asked."""
    trace = here.store.open(id)
    here.verifications.submit(trace)
    return RedirectResponse(_back(trace, address, head), 303)


@router.get("/traces/{id}/verdict")
def show_verdict(request: Request, here: Here, id: str, said: str = "") -> Response:
    """What was proven about a trace. A page that asks again says what it shows already."""
    page = verdict_page(here, here.store.open(id))
    if wants_fragment(request) and page.waiting is not None and page.waiting.said == said:
        return Response(status_code=204)
    return render(request, "verdict.html", page, block="verdict", keep=True)


@router.get("/traces/{id}/{address}/proof")
def show_proof(request: Request, here: Here, id: str, address: str, said: str = "", head: str = "") -> Response:
    """How far the verification is that a tensor's page waits for; when it has ended, the proof itself."""
    trace, found = here.store.open(id), Address.parse(address)
    check_address(here.catalogue(trace), trace, found)
    if not wants_fragment(request):
        return RedirectResponse(_tensor_of(trace, found, head), 303)
    state = proof_state(here, trace, found)
    if state.proof.waiting.runs and state.proof.waiting.said == said:
        return Response(status_code=204)
    if state.proof.waiting.runs:
        return render(request, "_proof.html", state, block="waiting")
    answer = render(request, "_sources.html", tensor.tensor_page(here, trace, found, None), block="sources")
    answer.headers["HX-Retarget"] = "#sources"
    answer.headers["HX-Reswap"] = "outerHTML show:none"
    return answer


@router.get("/cite/sites/{site}")
def cite_site(request: Request, here: Here, site: str, trace: str = "", family: str = "") -> Response:
    """How to cite all evidence of a tensor."""
    page = _cited(here, site, None, trace, family)
    return render(request, "cite.html", page, block="references", keep=True)


@router.get("/cite/sites/{site}/{number}")
def cite_evidence(
    request: Request, here: Here, site: str, number: int, trace: str = "", family: str = ""
) -> Response:
    """How to cite one piece of a tensor's evidence."""
    page = _cited(here, site, number, trace, family)
    return render(request, "cite.html", page, block="references", keep=True)


@router.get("/cite/traces/{id}")
def cite_trace(request: Request, here: Here, id: str) -> Response:
    """How to cite a trace."""
    return render(request, "cite.html", cite.cite_trace_page(here, here.store.open(id)), block="references")


def _cited(here: Explorer, site: str, number: int | None, trace: str, family: str) -> cite.CitePage:
    """How to cite a tensor of a trace, or of the family that is named, else of the first that has it."""
    if trace:
        opened = here.store.open(trace)
        return cite.cite_site_page(here, here.catalogue(opened).row(site), number, opened)
    row, outline = find_in_families(site, family, lambda catalogue, name: (catalogue.row(name), None))
    return cite.cite_site_page(here, row, number, None, outline.catalogue.family)


def _back(trace: Trace, address: str, head: str) -> str:
    """The page of a tensor of the trace; of anything else the verdict."""
    try:
        found = Address.parse(address)
        trace.check(step=found.step, layer=found.layer)
    except ProvenanceError:
        return verdict_url(trace.id)
    return _tensor_of(trace, found, head)


def _tensor_of(trace: Trace, address: Address, head: str) -> str:
    """Where a tensor's page says what was proven; `head` is as it was sent."""
    at_head = int(head) if head.isascii() and head.isdigit() and len(head) < 6 else None
    return tensor_url(trace.id, address, at_head) + "#sources"
