"""The API of verdicts: ask for a trace to be verified, and read what was proven."""

from fastapi import APIRouter, Response, status
from pydantic import BaseModel

from app.api import Here, TraceId, problems
from app.jobs import State
from provenance.verdict import Report

router = APIRouter(tags=["verdicts"])


class VerdictOut(BaseModel):
    """A verification: `state` is null where nobody asked for one; `holds` and `report` follow when done."""

    trace: str
    state: State | None
    proving: str = ""
    error: str = ""
    holds: bool | None = None
    report: Report | None = None


@router.post(
    "/api/traces/{id}/verdict",
    status_code=status.HTTP_202_ACCEPTED,
    responses={201: {"model": VerdictOut, "description": "The trace is verified."}, **problems(404, 410)},
)
def verify_trace(here: Here, id: TraceId, response: Response) -> VerdictOut:
    """Verify a trace in the background: bytes, coverage, execution, parity and equations."""
    trace = here.store.open(id)
    asked = here.verifications.submit(trace)
    response.headers["Location"] = f"/api/traces/{trace.id}/verdict"
    if asked.state is State.DONE:
        response.status_code = status.HTTP_201_CREATED
    return read_verdict(here, id)


@router.get("/api/traces/{id}/verdict", responses=problems(404, 410))
def read_verdict(here: Here, id: TraceId) -> VerdictOut:
    """What was proven about a trace, or how far the verification is."""
    trace = here.store.open(id)
    known = here.verifications.state(trace)
    if known is None:
        return VerdictOut(trace=trace.id, state=None)
    report = here.verifications.report(trace) if known.state is State.DONE else None
    return VerdictOut(
        trace=trace.id,
        state=known.state,
        proving=known.proving,
        error=known.error,
        holds=report.holds if report else None,
        report=report,
    )
