"""The progress of a recording as server-sent events."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from pydantic import BaseModel

from app.jobs import Job, State
from app.pages.progress import progress_of
from provenance.errors import Unavailable

_LOOK_SECONDS = 0.1
_ALIVE_SECONDS = 10.0
_LIFE_SECONDS = 30.0
"""A stream ends after this long and the browser asks anew, so that none holds up the server's stop."""


class ProgressEvent(BaseModel):
    """How far a recording is: segments done and in all, and the same in words."""

    id: str
    state: State
    done: int
    total: int
    says: str
    error: str


async def progress_events(
    job_now: Callable[[], Job | None], gone: Callable[[], Awaitable[bool]], look_seconds: float = _LOOK_SECONDS
) -> AsyncIterator[str]:
    """One `progress` event for every change, and one `end` event when the recording has ended.

    Stops when the reader is gone. Never blocks: it only looks at the job, in a thread, and sleeps.
    """
    yield "retry: 500\n\n"
    started = spoke = time.monotonic()
    last = ""
    while not await gone():
        try:
            job = await asyncio.to_thread(job_now)
        except Unavailable:
            return  # the browser asks anew
        if job is None or job.state in (State.DONE, State.FAILED):
            yield f"event: end\ndata: {_data(job) if job else '{}'}\n\n"
            return
        if (data := _data(job)) != last:
            yield f"event: progress\ndata: {data}\n\n"
            last, spoke = data, time.monotonic()
        elif time.monotonic() - spoke > _ALIVE_SECONDS:
            yield ": still here\n\n"
            spoke = time.monotonic()
        if time.monotonic() - started > _LIFE_SECONDS:
            return
        await asyncio.sleep(look_seconds)


def _data(job: Job) -> str:
    now = progress_of(job)
    return ProgressEvent(
        id=job.id, state=job.state, done=job.done, total=job.total, says=now.says, error=job.error
    ).model_dump_json()
