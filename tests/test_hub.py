"""Weights of the hub: what its cache holds, and a download from a hub of our own on this machine."""

import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from checkpoint_files import config_of, state_of, write, write_shards
from conftest import tiny_model_of
from huggingface_hub import constants
from huggingface_hub.utils import disable_progress_bars, enable_progress_bars

from provenance.errors import BlobMismatch, Unavailable, UnknownModel
from provenance.gpt2.checkpoints import Checkpoints
from provenance.gpt2.config import Config
from provenance.gpt2.hub import HUB, cached, fetch
from provenance.model_sources import Kind
from provenance.sources import git_blob_id

pytestmark = pytest.mark.slow

CONFIG = Config(n_layer=1, n_head=2, n_embd=16, n_ctx=8, n_vocab=50257, n_inner=64)
PINNED = "607a30d783dfa663caf39e06633721c8d4cfcd7e"
NEWEST = "f" * 40


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache."""
    directory = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(directory))
    return directory


@pytest.fixture(autouse=True)
def _no_bars() -> Iterator[None]:
    disable_progress_bars()
    yield
    enable_progress_bars()


@dataclass
class Hub:
    """A hub with one commit: its files, how many bytes it sends before it hangs up, what was asked of it."""

    files: dict[str, bytes]
    commit: str = PINNED
    cut_after: int | None = None
    told: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)
    endpoint: str = ""

    def listing(self) -> dict[str, object]:
        return {"id": "x", "sha": self.commit, "siblings": [self._entry(name) for name in self.files]}

    def _entry(self, name: str) -> dict[str, object]:
        data = self.files[name]
        entry: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": git_blob_id(data)}
        if name.endswith(".safetensors"):
            entry["lfs"] = {"sha256": self.sha256(name), "size": len(data), "pointerSize": 134}
        return entry

    def sha256(self, name: str) -> str:
        return self.told.get(name) or hashlib.sha256(self.files[name]).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Answers as the hub's API and its file addresses do."""

    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = self.path.partition("?")[0]
        asked = self.headers.get("Range")
        self.hub.asked.append((self.command, path, asked))
        if path.startswith("/api/models/"):
            data, start, headers = json.dumps(self.hub.listing()).encode(), 0, {}
        else:
            name = path.partition("/resolve/")[2].partition("/")[2]
            data = self.hub.files[name]
            start = int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0
            headers = {"X-Repo-Commit": self.hub.commit, "ETag": f'"{self.hub.sha256(name)}"'}
        self.send_response(206 if asked else 200)
        for key, value in headers.items():
            self.send_header(key, value)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if body:
            most = self.hub.cut_after if len(data) > 100_000 else None
            self.wfile.write(data[start:] if most is None else data[start : start + most])
            if most is not None:
                self.hub.cut_after, self.close_connection = None, True


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    directory = write(tmp_path_factory.mktemp("published"), config_of(CONFIG), state_of(tiny_model_of(CONFIG)))
    published = {name: (directory / name).read_bytes() for name in ("config.json", "model.safetensors")}
    return published | {"README.md": b"not wanted", "pytorch_model.bin": b"not wanted", "vocab.json": b"{}"}


@pytest.fixture
def hub(files: dict[str, bytes]) -> Iterator[Hub]:
    published = Hub(dict(files))
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Answers", (Handler,), {"hub": published}))
    published.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield published
    server.shutdown()
    server.server_close()
    thread.join()


def lay(cache: Path, name: str, revision: str, *, ref: str | None = None) -> Path:
    """A snapshot's folder in the cache, as the hub's client lays it out."""
    repository = cache / f"models--{HUB[name].repository.replace('/', '--')}"
    if ref:
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / ref).write_text(revision)
    directory = repository / "snapshots" / revision
    directory.mkdir(parents=True)
    return directory


# --- the cache ---


def test_a_cache_with_a_config_alone_is_not_available(cache: Path) -> None:
    directory = lay(cache, "gpt2", PINNED)
    write(directory, config_of(CONFIG))
    assert cached("gpt2") is None
    assert not Checkpoints().known("gpt2").available
    with pytest.raises(UnknownModel, match="weights of 'gpt2' are not on this machine"):
        Checkpoints().load("gpt2")


def test_a_cache_that_lacks_a_shard_is_not_available(cache: Path) -> None:
    directory = lay(cache, "gpt2-xl", NEWEST, ref="main")
    write_shards(directory, config_of(CONFIG), state_of(tiny_model_of(CONFIG)))
    assert cached("gpt2-xl") == directory
    (directory / "model-00002-of-00003.safetensors").unlink()
    assert cached("gpt2-xl") is None


@pytest.mark.parametrize(("revision", "ref"), [(PINNED, None), (NEWEST, "main")])
def test_a_whole_snapshot_of_the_pin_or_of_main_is_loaded(revision: str, ref: str | None, cache: Path) -> None:
    write(lay(cache, "gpt2", revision, ref=ref), config_of(CONFIG), state_of(tiny_model_of(CONFIG)))
    source = Checkpoints().known("gpt2")
    assert (source.available, source.kind, source.advice) == (True, Kind.HUB, "")
    assert Checkpoints().load("gpt2").config == CONFIG
    assert Checkpoints().inspect("gpt2").origin == (
        f"the Hugging Face hub's cache: openai-community/gpt2 at {revision}"
    )


def test_a_pickle_in_the_cache_is_never_read(cache: Path) -> None:
    directory = lay(cache, "gpt2", PINNED)
    write(directory, config_of(CONFIG))
    (directory / "pytorch_model.bin").write_bytes(b"never read")
    assert cached("gpt2") is None


# --- fetching ---


def test_a_fetched_model_is_in_the_cache_at_the_pinned_commit(hub: Hub) -> None:
    said: list[str] = []
    fetched = fetch("gpt2", said.append, endpoint=hub.endpoint)
    assert (fetched.commit, fetched.directory) == (PINNED, cached("gpt2"))
    wanted = ["config.json", "model.safetensors", "vocab.json"]
    assert fetched.sizes == {name: len(hub.files[name]) for name in wanted}
    megabytes = sum(len(hub.files[name]) for name in wanted) / 1e6
    assert said == [f"gpt2: 3 files, {megabytes:,.0f} MB, from openai-community/gpt2 at {PINNED}"]
    assert sorted(file.name for file in fetched.directory.iterdir()) == wanted
    assert all(f"/revision/{PINNED}" in path or f"/resolve/{PINNED}/" in path for _, path, _ in hub.asked)


def test_a_model_without_a_pin_is_fetched_at_the_newest_commit_and_says_which(hub: Hub) -> None:
    hub.commit = NEWEST
    said: list[str] = []
    assert fetch("gpt2-medium", said.append, endpoint=hub.endpoint).commit == NEWEST
    assert said[0].endswith(f"from openai-community/gpt2-medium at {NEWEST}")
    assert Checkpoints().known("gpt2-medium").available


def test_what_is_here_already_is_not_fetched_again(hub: Hub) -> None:
    fetch("gpt2", lambda text: None, endpoint=hub.endpoint)
    hub.asked.clear()
    fetch("gpt2", lambda text: None, endpoint=hub.endpoint)
    assert [path for method, path, _ in hub.asked if method == "GET" and "/resolve/" in path] == []


def test_a_download_that_is_cut_off_goes_on_where_it_stopped(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 100_000)  # what is written at once
    hub.cut_after = 500_000
    fetch("gpt2", lambda text: None, endpoint=hub.endpoint)
    starts = [asked for method, path, asked in hub.asked if method == "GET" and path.endswith("model.safetensors")]
    assert starts == [None, "bytes=500000-"]
    assert Checkpoints().load("gpt2").config == CONFIG


def test_a_file_with_another_hash_is_refused_and_deleted(hub: Hub) -> None:
    hub.told["model.safetensors"] = "0" * 64
    with pytest.raises(BlobMismatch, match=r"model\.safetensors is not what was published: .*, not 0{64}\. It was"):
        fetch("gpt2", lambda text: None, endpoint=hub.endpoint)
    assert cached("gpt2") is None


def test_a_hub_that_does_not_answer_is_said(cache: Path) -> None:
    with pytest.raises(Unavailable, match=r"openai-community/gpt2 could not be fetched: .* goes on where it stopped"):
        fetch("gpt2", lambda text: None, endpoint="http://127.0.0.1:9")


def test_a_repository_without_weights_is_said(hub: Hub) -> None:
    del hub.files["model.safetensors"]
    with pytest.raises(Unavailable, match=r"The published repository has no model\.safetensors\.index\.json\."):
        fetch("gpt2", lambda text: None, endpoint=hub.endpoint)


def test_only_names_of_the_hub_can_be_fetched() -> None:
    with pytest.raises(UnknownModel, match=r"nothing to fetch for 'demo'\. The hub has gpt2, gpt2-medium"):
        fetch("demo", lambda text: None)


def test_the_stated_sizes_follow_from_the_shapes() -> None:
    """fp32 parameters, and one fp32 mask of 1,024 × 1,024 for each layer."""
    for name, layers, width in (
        ("gpt2", 12, 768), ("gpt2-medium", 24, 1024), ("gpt2-large", 36, 1280), ("gpt2-xl", 48, 1600),
    ):  # fmt: skip
        block = 12 * width**2 + 13 * width
        parameters = 50257 * width + 1024 * width + layers * block + 2 * width
        assert HUB[name].megabytes == pytest.approx((4 * parameters + layers * 4 * 1024**2) / 1e6, abs=1)
