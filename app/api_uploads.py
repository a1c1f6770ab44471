"""The API of files of tensors: hand one in, to be compared with a trace; see what it holds; remove it."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, status
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.types import Message

from app.api import Here, explorer_of, problems
from app.uploads import Upload, too_large
from provenance.durable import storing
from provenance.errors import InvalidInput

router = APIRouter(tags=["uploads"])

UploadId = Annotated[str, Path(description="the file's id, as it was answered when it was handed in", max_length=64)]
_OVERHEAD_BYTES = 64 << 10
"""What a form takes beside the file: boundaries, headers, small fields."""
_FIELDS = 8
"""The most fields of a form."""
_FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "maxProperties": _FIELDS,
                    "properties": {
                        "file": {
                            "type": "string",
                            "format": "binary",
                            "description": "a .safetensors or .npz file of named tensors",
                        }
                    },
                }
            }
        },
    }
}


class UploadOut(BaseModel):
    """A file that was handed in. `/api/compare` takes it as `file:` and its id."""

    id: str
    name: str = Field(description="the name that it came with")
    bytes: int
    tensors: int = Field(description="how many")
    names: list[str] = Field(description="the tensors' names, as the file has them")


@router.post(
    "/api/uploads",
    status_code=status.HTTP_201_CREATED,
    responses=problems(400, 413, 422),
    openapi_extra=_FORM,
)
async def hand_in(request: Request) -> UploadOut:
    """Keep a file of named tensors, safetensors or npz. The oldest files go when there are too many."""
    here = explorer_of(request)
    form = await limited_form(request, here.uploads.limit_bytes)
    try:
        upload = await keep(request, form)
    finally:
        await form.close()
    return await run_in_threadpool(_out, here, upload)


@router.get("/api/uploads/{id}", responses=problems(404))
def uploaded(here: Here, id: UploadId) -> UploadOut:
    """What a file holds that was handed in."""
    return _out(here, here.uploads.get(id))


@router.delete("/api/uploads/{id}", status_code=status.HTTP_204_NO_CONTENT, responses=problems(404))
def remove(here: Here, id: UploadId) -> None:
    """Remove a file that was handed in."""
    here.uploads.delete(id)


async def keep(request: Request, form: FormData, field: str = "file") -> Upload:
    """Keep the file in a form's field. Raises InvalidInput where there is none, UnreadableFile, or TooLarge."""
    file = form.get(field)
    if not isinstance(file, UploadFile):
        raise InvalidInput(
            f"The form has no file named {field!r}.", hint="Send it as multipart/form-data, with a file name."
        )
    return await run_in_threadpool(explorer_of(request).uploads.add, file.file, file.filename or "")


async def limited_form(request: Request, limit_bytes: int) -> FormData:
    """The form of a request with one file, read no further than the limit. Raises TooLarge, or StorageFailed."""
    most = limit_bytes + _OVERHEAD_BYTES
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced[:20]) > most:
        raise too_large("the file", limit_bytes)
    received = 0

    async def receive() -> Message:
        nonlocal received
        message = await request.receive()
        received += len(message.get("body", b""))
        if received > most:
            raise too_large("the file", limit_bytes)
        return message

    with storing("The file"):  # a large one waits in the system's temporary directory
        return await Request(request.scope, receive).form(max_files=1, max_fields=_FIELDS)


def _out(here: Here, upload: Upload) -> UploadOut:
    return UploadOut(**upload.model_dump(), names=list(here.uploads.open(upload.id)))
