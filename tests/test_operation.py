"""Running it: logs without prompts, readiness, metrics, and a stop that takes a bounded time."""

import asyncio
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from api_client import Api, running
from audit import NOT_HERE, Audit, read_report
from audit import main as audit
from prometheus_client.parser import text_string_to_metric_families

from app import logs
from app.entrance import Entrance
from app.jobs import Tally
from app.logs import FIELDS, JsonLines, TextLines, printable, request_id
from app.serving import Server
from app.settings import Settings, load_settings

ROOT = Path(__file__).resolve().parents[1]
SECRET = "the code of the safe is 1-2-3-4"


@contextmanager
def logged(**settings: str) -> Iterator[io.StringIO]:
    """What is written to the log meanwhile, as the server would write it."""
    root = logging.getLogger()
    handlers, level, quiet = root.handlers[:], root.level, logging.getLogger("httpx").level
    stream = io.StringIO()
    logs.configure(load_settings(**{"log_level": "info", "log_format": "json", **settings}), stream)
    logging.getLogger("httpx").setLevel("WARNING")  # the test's own client
    try:
        yield stream
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.getLogger("httpx").setLevel(quiet)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


# --- logs ---


def test_a_request_is_a_line_with_its_id_and_without_its_query(tmp_path: Path) -> None:
    asked = {"X-Request-ID": "from-the-proxy.1", "Accept-Encoding": "identity"}
    with running(tmp_path) as api, logged() as stream:
        answer = api.ask("GET", "/api/search?q=scores", headers=asked)
    (line,) = lines(stream)
    assert answer.headers["X-Request-ID"] == "from-the-proxy.1"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line.pop("time"))
    assert line.pop("ms") >= 0
    assert line == {
        "level": "info",
        "logger": "app.requests",
        "message": "answered",
        "request_id": "from-the-proxy.1",
        "method": "GET",
        "path": "/api/search",
        "status": 200,
        "bytes": len(answer.content),
    }


def test_the_time_is_taken_from_the_first_byte_to_the_last() -> None:
    times = iter((10.0, 10.25))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def nothing(*_: Any) -> None:
        return

    entrance = Entrance(app, lambda request, id: pytest.fail("it does not fail"), clock=lambda: next(times))
    with logged() as stream:
        asyncio.run(entrance({"type": "http", "method": "GET", "path": "/", "headers": []}, nothing, nothing))
    (line,) = lines(stream)
    assert (line["ms"], line["status"], line["bytes"]) == (250.0, 204, 0)


@pytest.mark.parametrize("given", [b"short", b"a" * 65, b"with space", b"forged\n", "ünicode-x".encode(), b"", None])
def test_an_id_that_is_not_well_formed_is_made_anew(given: bytes | None) -> None:
    made = request_id(given)
    assert re.fullmatch("[0-9a-f]{16}", made)
    assert made != request_id(given)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "text"])
def test_no_prompt_is_ever_in_the_log(tmp_path: Path, form: str) -> None:
    with logged(log_format=form) as stream, running(tmp_path) as api:
        address = api.record(prompt=SECRET, steps=1)
        for path in ("", "/tensors/h.0.attn.pattern"):
            api.json(address + path)
        for path in ("", "/h.0.attn.pattern", "/verdict", "/delete"):
            api.ask("GET", address.removeprefix("/api") + path)
        api.ask("GET", "/traces", params={"q": SECRET})
        api.ask("GET", "/search", params={"q": SECRET})
        api.ask("POST", "/api/traces", json={"prompt": SECRET, "steps": 9999})
        api.ask("POST", "/api/traces", json={"prompt": SECRET * 5000})
        api.ask("POST", "/record", data={"prompt": SECRET, "steps": "many"})
    said = stream.getvalue()
    assert said.count("/api/traces") > 5
    for word in ("safe", "1-2-3-4", "code"):
        assert word not in said


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_failure_is_logged_with_its_place_and_without_its_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    def fail() -> None:
        raise RuntimeError(f"could not encode {SECRET!r}")

    with running(tmp_path) as api, logged(log_format=form, log_level="error") as stream:
        monkeypatch.setattr(api.explorer.store, "list", fail)
        answer = api.ask("GET", "/api/traces")
    (line,) = stream.getvalue().splitlines()
    assert "safe" not in line
    assert "RuntimeError" in line
    assert "test_operation.py" in line
    assert answer.headers["X-Request-ID"] in line


def record(message: str, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("a.b", logging.WARNING, "x.py", 1, message, (), None)
    made.created = 0.25
    setattr(made, FIELDS, fields)
    return made


def test_a_line_cannot_be_forged() -> None:
    path = "/x\r\n2026 error forged\x1b[2J\u202e\u2028 a=b"
    text = TextLines().format(record(f"odd: {path}", path=path, plain="/a/{b}", number=3))
    assert text == (
        r"1970-01-01T00:00:00.250+00:00 warning a.b: odd: /x\r\n2026 error forged\x1b[2J\u202e\u2028 a=b "
        r'path="/x\r\n2026 error forged\u001b[2J\u202e\u2028 a=b" plain=/a/{b} number=3'
    )
    whole = JsonLines().format(record("odd", path=path))
    assert "\n" not in whole
    assert whole.isascii()
    assert json.loads(whole)["path"] == path


def test_printable_text_stays_as_it_is() -> None:
    assert printable("größe ≥ 3 – 日本") == "größe ≥ 3 – 日本"
    assert printable("a\\nb\nc") == r"a\\nb\nc"


def test_a_path_is_logged_in_one_line_whatever_it_holds(tmp_path: Path) -> None:
    with running(tmp_path) as api, logged(log_format="text") as stream:
        api.ask("GET", "/sites/a%0d%0aforged%1b%5b2J%e2%80%ae" + "x" * 1000)
    (line,) = stream.getvalue().splitlines()
    assert line.isascii()
    assert r'path="/sites/a\r\nforged\u001b[2J\u202exxx' in line
    assert len(line) < 600


def test_the_log_of_the_server_is_ours_alone() -> None:
    config = Server(None, load_settings(shutdown_seconds=7)).config  # type: ignore[arg-type]
    assert (config.access_log, config.log_config, config.proxy_headers, config.timeout_graceful_shutdown) == (
        False, None, False, 7,
    )  # fmt: skip


# --- ready ---


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("operation"), metrics=True) as api:
        yield api


def test_it_is_ready_with_its_model_store_and_queue(api: Api) -> None:
    assert api.json("/readyz") == {"status": "ready"}


def test_it_is_not_ready_without_its_weights(tmp_path: Path) -> None:
    with running(tmp_path, model="gpt2-xl") as api:
        problem = api.problem("GET", "/readyz", 503)
        assert problem["detail"] == "The weights of the model 'gpt2-xl' are not here."


def test_it_is_not_ready_with_a_full_queue(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.explorer.jobs, "tally", lambda: Tally(waiting=16))
    assert api.problem("GET", "/readyz", 503)["detail"] == "The queue of recordings is full."


def test_it_is_not_ready_where_it_cannot_write(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        (tmp_path / "file").write_text("")
        settings = api.explorer.settings.model_copy(update={"data_directory": tmp_path / "file" / "below"})
        api.explorer.settings = settings
        assert api.problem("GET", "/readyz", 503)["detail"] == "The directory of the traces cannot be written."
        api.explorer.settings = settings.model_copy(update={"read_only": True})
        assert api.json("/readyz") == {"status": "ready"}


def test_a_signal_to_stop_is_known_at_once(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        server = Server(api.app, load_settings())
        server.handle_exit(signal.SIGTERM, None)
        assert server.should_exit
        assert api.problem("GET", "/readyz", 503)["detail"] == "The server is stopping."
        assert api.ask("GET", "/healthz").status_code == 200


def test_streams_of_events_end_when_the_server_stops(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        go = threading.Event()
        api.explorer.jobs._run = lambda recipe, progress: go.wait(30)  # type: ignore[attr-defined]
        address = api.ask("POST", "/record", data={"prompt": "held"}).headers["Location"]
        api.app.state.stopping = True
        answer = api.ask("GET", f"{address}/events")  # would last for half a minute
        assert answer.text.startswith("retry: 500")
        assert "event: end" not in answer.text
        go.set()


# --- metrics ---


def samples(api: Api) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = api.ask("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(answer.text)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_metrics_count_requests_by_route_and_recordings_by_state(api: Api) -> None:
    before = samples(api)
    address = api.record(prompt=SECRET)
    size = api.json(address)["tensors_bytes"]
    api.ask("GET", "/api/traces/abcdef0123")
    api.ask("GET", "/nowhere/at/all")
    api.ask("BREW", "/healthz")
    api.json(f"{address}/tensors/h.0.attn.scores")
    after = samples(api)

    def more(name: str, **labels: str) -> float:
        key = (f"tensor_provenance_{name}", tuple(sorted(labels.items())))
        return after[key] - before.get(key, 0)

    assert more("requests_total", method="POST", route="/api/traces", status="202") == 1
    assert more("requests_total", method="GET", route="/api/traces/{id}", status="404") == 1
    assert more("requests_total", method="GET", route="none", status="404") == 1
    assert more("requests_total", method="other", route="none", status="405") == 1
    assert more("request_seconds_count", route="/api/traces") == 1
    assert more("request_seconds_bucket", route="/api/traces", le="+Inf") == 1
    assert more("recordings_ended_total", state="done") == 1
    assert more("recordings_begun_total") == 1
    assert more("store_traces") == 1
    assert more("store_bytes") == size
    assert after[("tensor_provenance_recordings", (("state", "waiting"),))] == 0
    assert after[("tensor_provenance_model_bytes", ())] > 1_000_000
    assert after[("tensor_provenance_replay_cache_bytes", ())] > 0
    assert after[("tensor_provenance_queue_seconds_total", ())] >= 0


def test_metrics_name_no_prompt_trace_or_client(api: Api) -> None:
    id = api.record(prompt=SECRET).rpartition("/")[2]
    for path in (f"/traces/{id}", f"/api/traces/{id}", f"/static/{id}.css", f"/{id}"):
        api.ask("GET", path)
    text = api.ask("GET", "/metrics").text
    assert id not in text
    assert "safe" not in text
    assert "127.0.0.1" not in text


def test_metrics_are_off_unless_asked_for(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        assert api.ask("GET", "/metrics").status_code == 404


# --- files ---

_WATCHED = """
import os, sys, tempfile
from pathlib import Path
allowed = tuple(sys.argv[1].split(os.pathsep))
written = []

def note(event, args):
    if event == "open" and isinstance(args[0], (str, bytes)) and isinstance(args[2], int):
        path = os.path.realpath(os.fsdecode(args[0]))
        if args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and not path.startswith(("/dev/", *allowed)):
            written.append(path)
    elif event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "os.link", "os.symlink"):
        if any(isinstance(arg, int) and arg >= 0 for arg in args[1:]):
            return  # a name inside a directory that is open, and was checked by its own name
        paths = [os.path.realpath(os.fsdecode(arg)) for arg in args if isinstance(arg, (str, bytes, os.PathLike))]
        written.extend(path for path in paths if not path.startswith(allowed))

from api_client import running
with running(Path(sys.argv[2])) as api:
    sys.addaudithook(note)
    address = api.record(prompt="a b c", steps=1)
    golden = api.ask("GET", address + "/tensors/logits.npy").content
    api.ask("POST", "/api/uploads", files={"file": ("x" * 90 + ".npz", golden * 3000)})
    for path in ("/", "/sources", "/models", "/map", address.removeprefix("/api"), "/compare"):
        api.ask("GET", path)
    api.ask("POST", address + "/verdict")
    end = 4000
    while api.json(address + "/verdict")["state"] in ("queued", "running") and (end := end - 1):
        __import__("time").sleep(0.05)
    assert api.json(address + "/verdict")["holds"] is True
    api.ask("DELETE", address)
print(sorted(set(written)))
"""


@pytest.mark.slow
def test_it_writes_below_its_directories_only(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "tmp").mkdir()
    allowed = os.pathsep.join(str(tmp_path / name) for name in ("own", "tmp"))
    done = subprocess.run(
        [sys.executable, "-B", "-c", _WATCHED, allowed, str(tmp_path / "own")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}", "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


# --- what is installed ---


def test_a_report_of_faults_counts_what_could_be_looked_up() -> None:
    report = {
        "dependencies": [
            {"name": "a", "version": "1", "vulns": []},
            {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1", "3"]}]},
            {"name": "c", "skip_reason": "Dependency not found"},
        ],
        "fixes": [],
    }
    assert read_report(json.dumps(report)) == Audit(2, ("b 2: PYSEC-1, mended by: 2.1, 3",))


def test_where_nothing_can_be_looked_up_the_audit_says_so_and_does_not_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit(str(tmp_path / "no such tool"), str(ROOT / "requirements.lock")) == 0
    assert capsys.readouterr().out == f"{NOT_HERE}\n"


def test_a_fault_fails_the_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tool = tmp_path / "tool"
    report = '{"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "X-1", "fix_versions": []}]}]}'
    tool.write_text(f"#!/bin/sh\necho '{report}'\nexit 1\n")
    tool.chmod(0o700)
    (tmp_path / "lock").write_text("# made\na==1\n")
    assert audit(str(tool), str(tmp_path / "lock")) == 1
    assert capsys.readouterr().out == "a 1: X-1, mended by: \n1 of 1 packages checked, 1 faults\n"


# --- the handbook ---


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_in_the_handbook_with_its_default(name: str) -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
    assert len(rows) == 1
    default = Settings.model_fields[name].default
    written = rows[0].split("|")[2].strip().strip("`")
    if name not in ("data_directory", "cache_directory"):
        plain = "" if default in (None, ()) else str(default)
        assert written == (plain.lower() if isinstance(default, bool) else plain)


def test_every_metric_is_in_the_handbook(api: Api) -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    names = re.findall(r"^# TYPE (\S+)", api.ask("GET", "/metrics").text, re.MULTILINE)
    assert len(names) >= 10
    assert [name for name in names if f"`{name}`" not in text] == []


def test_tests_that_the_threat_model_names_exist() -> None:
    named = re.findall(r"`tests/(\w+)\.py::(\w+)`", (ROOT / "SECURITY.md").read_text())
    assert len(named) > 12
    for module, test in named:
        path = ROOT / "tests" / f"{module}.py"
        assert re.search(rf"^def {test}\(", path.read_text(), re.MULTILINE), f"{module}::{test}"
