"""Files of tensors that are handed in: kept by content, bounded, and refused with the reason."""

import hashlib
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from api_client import Api, running

import app.uploads
from app.uploads import Upload, Uploads
from provenance.errors import TooLarge, UnknownUpload, UnreadableFile
from provenance.tensor_files import read_tensors

MIB = 1 << 20


def npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


SMALL = npz(**{"h.0.attn.q": np.arange(6.0), "logits@1": np.ones(2)})


@pytest.fixture
def uploads(tmp_path: Path) -> Uploads:
    return Uploads(tmp_path / "uploads", MIB, 3 * MIB)


def files_below(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


# --- the store ---


@pytest.mark.parametrize("as_stream", [True, False])
def test_a_file_is_kept_by_its_content(uploads: Uploads, as_stream: bool) -> None:
    upload = uploads.add(io.BytesIO(SMALL) if as_stream else SMALL, "port.npz")
    id = hashlib.sha256(SMALL).hexdigest()[:32]
    assert upload == Upload(id=id, name="port.npz", bytes=len(SMALL), tensors=2)
    assert (uploads.directory / id / "content").read_bytes() == SMALL
    assert files_below(uploads.directory) == {f"{id}/content", f"{id}/upload.json"}


def test_another_process_finds_it(uploads: Uploads) -> None:
    upload = uploads.add(SMALL, "port.npz")
    other = Uploads(uploads.directory, MIB, 3 * MIB)
    assert other.get(upload.id) == upload
    assert {name: tensor.tolist() for name, tensor in other.open(upload.id).items()} == {
        "h.0.attn.q": [0, 1, 2, 3, 4, 5],
        "logits@1": [1, 1],
    }


def test_the_same_content_is_kept_once_under_its_last_name(uploads: Uploads) -> None:
    first, second = uploads.add(SMALL, "one.npz"), uploads.add(SMALL, "two.npz")
    assert first.id == second.id
    assert uploads.list() == (second,)


def test_the_last_two_are_read_once(uploads: Uploads, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def count(path: Path, **options: Any) -> dict[str, torch.Tensor]:
        read.append(path.parent.name)
        return read_tensors(path, **options)

    ids = [uploads.add(npz(x=np.full(3, n)), "x").id for n in range(3)]
    monkeypatch.setattr(app.uploads, "read_tensors", count)
    for id in (ids[1], ids[2], ids[1], ids[0], ids[1], ids[2]):
        uploads.open(id)
    assert read == [ids[0], ids[2]]


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "a\x00b", "\ud800", "x" * 5000, "", "C:\\x", "<b>"]
)
def test_a_name_is_text_and_never_a_path(uploads: Uploads, name: str, tmp_path: Path) -> None:
    upload = uploads.add(SMALL, name)
    assert files_below(tmp_path) == {f"uploads/{upload.id}/content", f"uploads/{upload.id}/upload.json"}
    assert uploads.get(upload.id) == upload
    assert 0 < len(upload.name) <= 200
    upload.model_dump_json().encode()


@pytest.mark.parametrize(
    "id", ["", "..", "../uploads", "x" * 32, "0" * 31, "0" * 32, "A" * 32, "0" * 32 + "\n", "\x00"]
)
def test_what_was_not_handed_in_is_unknown(uploads: Uploads, id: str) -> None:
    for act in (uploads.get, uploads.open, uploads.delete):
        with pytest.raises(UnknownUpload):
            act(id)


def test_what_is_deleted_is_gone(uploads: Uploads) -> None:
    id = uploads.add(SMALL, "x").id
    uploads.delete(id)
    assert files_below(uploads.directory) == set()
    with pytest.raises(UnknownUpload):
        uploads.open(id)


def test_the_oldest_go_when_all_take_too_much(uploads: Uploads) -> None:
    ids = [uploads.add(npz(x=np.full(100_000, n)), str(n)).id for n in range(3)]  # 0.76 MiB each
    uploads.add(npz(x=np.full(100_000, 0)), "again")
    newest = uploads.add(npz(x=np.full(100_000, 3)), "3").id
    assert [upload.id for upload in uploads.list()] == [newest, ids[0], ids[2]]


def test_the_newest_stays_even_alone_over_the_total(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path, MIB, 1000)
    uploads.add(SMALL, "x")
    big = uploads.add(npz(x=np.ones(1000)), "y")
    assert uploads.list() == (big,)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x80\x04N.", SMALL[:100]])
def test_what_cannot_be_read_is_not_kept(uploads: Uploads, content: bytes) -> None:
    with pytest.raises(UnreadableFile, match=r"'port\.npz'"):
        uploads.add(content, "port.npz")
    assert files_below(uploads.directory) == set()


def test_a_stream_is_read_no_further_than_the_limit(uploads: Uploads) -> None:
    class Endless(io.RawIOBase):
        given = 0

        def readable(self) -> bool:
            return True

        def read(self, size: int = -1, /) -> bytes:
            self.given += size
            return b"\0" * size

    endless: Any = Endless()
    with pytest.raises(TooLarge, match="1 MiB"):
        uploads.add(endless, "x")
    assert endless.given <= 3 * MIB
    assert files_below(uploads.directory) == set()


def test_what_unpacks_to_more_than_the_limit_is_refused(uploads: Uploads) -> None:
    stream = io.BytesIO()
    np.savez_compressed(stream, x=np.zeros(MIB))
    assert len(stream.getvalue()) < MIB // 8
    with pytest.raises(TooLarge, match="1 MiB"):
        uploads.add(stream.getvalue(), "x")


def test_many_at_once_are_all_kept_whole(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path, MIB, 64 * MIB)
    contents = [npz(x=np.full(1000, n % 4)) for n in range(16)]
    threads = [threading.Thread(target=uploads.add, args=(content, "x")) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {upload.id for upload in uploads.list()} == {hashlib.sha256(c).hexdigest()[:32] for c in contents}
    assert all(uploads.open(upload.id)["x"].shape == (1000,) for upload in uploads.list())
    assert len(files_below(tmp_path)) == 8


# --- over HTTP ---


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("api"), upload_limit_mib=1, uploads_total_mib=2) as api:
        yield api


def handed_in(name: str, content: bytes, field: str = "file") -> dict[str, Any]:
    return {"files": {field: (name, content, "application/octet-stream")}}


def test_a_file_is_handed_in_seen_and_removed(api: Api) -> None:
    answer = api.ask("POST", "/api/uploads", **handed_in("<port>.npz", SMALL))
    assert answer.status_code == 201
    upload = answer.json()
    assert upload == {
        "id": hashlib.sha256(SMALL).hexdigest()[:32],
        "name": "<port>.npz",
        "bytes": len(SMALL),
        "tensors": 2,
        "names": ["h.0.attn.q", "logits@1"],
    }
    address = f"/api/uploads/{upload['id']}"
    assert api.json(address) == upload
    assert api.explorer.uploads.open(upload["id"])["logits@1"].tolist() == [1, 1]
    assert api.ask("DELETE", address).status_code == 204
    for method in ("GET", "DELETE"):
        assert "Hand it in again" in api.problem(method, address, 404)["detail"]


def test_a_file_over_the_limit_is_answered_with_413_and_the_limit(api: Api) -> None:
    for size in (MIB + 1, 2 * MIB):
        problem = api.problem("POST", "/api/uploads", 413, **handed_in("big.npz", bytes(size)))
        assert "1 MiB" in problem["detail"]


def test_a_file_of_unannounced_size_is_read_no_further_than_the_limit(api: Api) -> None:
    given = 0

    async def endless() -> Any:
        nonlocal given
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="x.npz"\r\n\r\n'
        while given < 64 * MIB:
            given += MIB // 4
            yield bytes(MIB // 4)

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    assert "1 MiB" in api.problem("POST", "/api/uploads", 413, content=endless(), headers=headers)["detail"]
    assert given <= 2 * MIB


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (handed_in("x.npz", b"\x80\x04N."), "pickle"),
        (handed_in("x.npz", b""), "empty"),
        (handed_in("x.npz", SMALL, field="other"), "no file named 'file'"),
        ({"data": {"file": "text"}}, "no file named 'file'"),
        ({}, "no file named 'file'"),
        ({"json": {"file": 1}}, "no file named 'file'"),
    ],
)
def test_what_cannot_be_kept_is_answered_with_422_and_the_reason(
    api: Api, request_: dict[str, Any], said: str
) -> None:
    problem = api.problem("POST", "/api/uploads", 422, **request_)
    assert said in problem["detail"]


@pytest.mark.parametrize("body", [b"", b"--b", b"--b\r\nnonsense", b"--b\r\n\r\n\r\n--b--"])
def test_a_damaged_form_is_refused_and_no_fault_of_ours(api: Api, body: bytes) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = api.ask("POST", "/api/uploads", content=body, headers=headers)
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"
    no_boundary = api.ask("POST", "/api/uploads", content=body, headers={"Content-Type": "multipart/form-data"})
    assert no_boundary.status_code in (400, 422)


def test_two_files_at_once_are_refused(api: Api) -> None:
    files = [("file", ("a.npz", SMALL)), ("file", ("b.npz", SMALL))]
    assert api.ask("POST", "/api/uploads", files=files).status_code in (400, 422)


def test_the_form_is_documented(api: Api) -> None:
    document = api.json("/api/openapi.json")
    operation = document["paths"]["/api/uploads"]["post"]
    assert "file" in json.dumps(operation["requestBody"]["content"]["multipart/form-data"])
    assert {"201", "413", "422"} <= operation["responses"].keys()
