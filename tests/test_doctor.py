"""`doctor`: each thing that can go wrong is found, named with what to do, and repaired where nothing is lost."""

import errno
import io
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import prompt_of, tiny_model_of

import app.doctor
from app.cli import main
from app.doctor import check_models, check_port, check_versions, diagnose
from app.doctor_disk import check_data, check_traces, size
from app.findings import Diagnosis, Finding, Level
from app.settings import Settings, load_settings
from app.uploads import Uploads
from provenance.durable import partial_directory
from provenance.recorder import plan
from provenance.sources import git_blob_id
from provenance.store import TraceStore
from provenance.trace import Trace

TENSORS = {"logits": torch.ones(2, 3)}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory, a cache, and an environment with nothing else of ours in it."""
    for name in [name for name in os.environ if name.startswith("TENSOR_PROVENANCE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TENSOR_PROVENANCE_DATA_DIRECTORY", str(tmp_path / "data"))
    monkeypatch.setenv("TENSOR_PROVENANCE_CACHE_DIRECTORY", str(tmp_path / "cache"))
    monkeypatch.setenv("TENSOR_PROVENANCE_PORT", "0")
    return tmp_path


@pytest.fixture
def store(here: Path) -> TraceStore:
    return TraceStore(here / "data" / "traces")


def saved(store: TraceStore, number: int = 1) -> Trace:
    recipe = plan(tiny_model_of(), prompt_of((1, 2)), steps=0, threads=number)
    return store.save(recipe, prompt_of((5,)).tokens, TENSORS)


def handed_in(here: Path) -> str:
    stream = io.BytesIO()
    np.savez(stream, x=np.ones(3))
    return Uploads(here / "data" / "uploads", 1 << 20, 1 << 20).add(stream.getvalue(), "x.npz").id


def not_fine(diagnosis: Diagnosis) -> list[Finding]:
    return [finding for finding in diagnosis.findings if finding.level is not Level.FINE]


def only(diagnosis: Diagnosis) -> Finding:
    """The one finding that needs attention; it says what to do."""
    (finding,) = not_fine(diagnosis)
    assert finding.advice
    return finding


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code, capsys.readouterr().out


# --- all is well ---


def test_where_all_is_well_it_says_so_and_exits_with_0(
    store: TraceStore, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(store), saved(store, 2), handed_in(here)
    code, text = run(capsys)
    assert code == 0
    assert text.endswith("Nothing needs attention.\n")
    assert "✗" not in text
    assert "2 traces" in text
    assert f"1 file, {size(next((here / 'data' / 'uploads').glob('*/content')).stat().st_size)} of 512 MiB" in text
    assert "blob 230b83cc2ac7" in text
    assert "demo is here" in text


def test_it_writes_nothing(store: TraceStore, here: Path) -> None:
    saved(store)
    before = sorted((path, path.lstat().st_mtime_ns) for path in (here / "data").rglob("*"))
    diagnose()
    assert sorted((path, path.lstat().st_mtime_ns) for path in (here / "data").rglob("*")) == before


def test_an_empty_start_is_fine(here: Path) -> None:
    assert not_fine(diagnose()) == []
    assert not (here / "data").exists()


def test_json_has_the_same_findings(
    store: TraceStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSOR_PROVENANCE_MODLE", "gpt2")
    code, text = run(capsys, "--json")
    assert code == 1
    (finding,) = [each for each in json.loads(text)["findings"] if each["level"] != "fine"]
    assert (finding["area"], finding["level"]) == ("Settings", "attention")
    assert finding["what"] == "There is no setting TENSOR_PROVENANCE_MODLE; it has no effect."
    assert finding["advice"].startswith("Did you mean TENSOR_PROVENANCE_MODEL")


# --- settings, versions, port ---


def test_a_setting_that_cannot_be_read_is_named_with_its_value(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOR_PROVENANCE_PORT", "many")
    finding = only(diagnose())
    assert (finding.area, finding.level) == ("Settings", Level.WRONG)
    assert "TENSOR_PROVENANCE_PORT cannot be 'many'" in finding.what


def test_a_package_of_another_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["torch<2.0,>=1.0", "no-such-package==1", "numpy>=1", 'tensorflow>=99; extra == "tensorflow"']
    monkeypatch.setattr(app.doctor.metadata, "requires", lambda _: asked)
    said = [(finding.level, finding.what) for finding in check_versions() if finding.level is not Level.FINE]
    assert said == [
        (Level.ATTENTION, f"torch {torch.__version__} is installed; this project asks for <2.0,>=1.0."),
        (Level.WRONG, "no-such-package is not installed."),
    ]


@contextmanager
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def test_a_port_that_another_program_has_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.doctor, "_WAIT_SECONDS", 0.05)
    with listening() as port:
        finding = check_port(load_settings(port=port))
    assert finding.level is Level.ATTENTION
    assert finding.what == f"127.0.0.1, port {port}: {os.strerror(errno.EADDRINUSE)}."
    assert "--port" in finding.advice
    assert check_port(load_settings(port=port)).level is Level.FINE


# --- the disk ---


def test_a_data_directory_that_is_a_file_is_named(here: Path) -> None:
    (here / "data").write_text("mine")
    said = list(check_data(load_settings()))
    assert [(finding.level, finding.what) for finding in said] == [(Level.WRONG, f"{here / 'data'} is no directory.")]


def test_a_data_directory_that_cannot_be_written_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    (here / "data").mkdir()
    monkeypatch.setattr("app.doctor_disk.tempfile.TemporaryFile", refuse)
    (finding,) = [finding for finding in check_data(load_settings()) if finding.level is not Level.FINE]
    assert finding.what == f"Nothing can be written to {here / 'data'}: Permission denied."


@pytest.mark.parametrize(("free", "level"), [(10 << 20, Level.WRONG), (500 << 20, Level.ATTENTION)])
def test_a_disk_with_little_room_is_named(
    here: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: Level
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1 << 40, 0, free))  # type: ignore[attr-defined]
    (finding,) = [finding for finding in check_data(load_settings()) if finding.level is not Level.FINE]
    assert finding.level is level
    assert f"{free >> 20} MiB free" in finding.what


def test_a_directory_that_everybody_can_change_is_named(store: TraceStore, here: Path) -> None:
    saved(store)
    store.directory.chmod(0o777)
    assert only(diagnose()).what == f"Every user of this machine can change {store.directory}."


# --- traces ---


def test_a_spoilt_trace_is_found_then_put_into_quarantine_and_the_rest_stays(
    store: TraceStore, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoilt, kept = saved(store).id, saved(store, 2).id
    (store.directory / spoilt / "tensors.safetensors").write_bytes(b"spoilt")
    finding = only(diagnose())
    assert (finding.area, finding.level) == ("Traces", Level.WRONG)
    assert finding.what == f"The tensors of trace {spoilt} are not those that were written."
    assert "doctor --repair" in finding.advice
    assert (store.directory / spoilt).is_dir(), "without --repair nothing is moved"
    code, text = run(capsys, "--repair")
    assert code == 0
    assert f"Trace {spoilt} was moved into quarantine." in text
    assert list(store.ids()) == [kept]
    (aside,) = (store.directory / "quarantine").glob(f"{spoilt}-*/tensors.safetensors")
    assert aside.read_bytes() == b"spoilt"
    assert run(capsys)[0] == 0


def test_of_a_large_trace_only_the_size_is_checked_unless_deep(
    store: TraceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = saved(store).id
    file = store.directory / id / "tensors.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    monkeypatch.setattr("app.doctor_disk._QUICK_BYTES", 10)
    settings = load_settings()
    assert [finding.level for finding in check_traces(settings, deep=False)] == [Level.FINE] * 2
    assert "1 by size only: --deep" in next(check_traces(settings, deep=False)).what
    assert next(check_traces(settings, deep=True)).level is Level.WRONG
    diagnose(repairing=True)
    assert list(store.ids()) == [id]
    diagnose(repairing=True, deep=True)
    assert list(store.ids()) == []


def test_a_trace_of_a_newer_version_is_named_and_never_moved(store: TraceStore) -> None:
    id = saved(store).id
    file = store.directory / id / "trace.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 3}))
    finding = only(diagnose(repairing=True))
    assert finding.level is Level.ATTENTION
    assert "Update tensor-provenance" in finding.advice
    assert list(store.ids()) == [id]


def test_leftovers_are_found_and_removed_but_not_what_is_being_written(store: TraceStore) -> None:
    saved(store)
    (store.directory / ".partial-left").mkdir()
    (store.directory / ".partial-left" / "tensors.safetensors").write_bytes(bytes(2048))
    with partial_directory(store.directory) as written:
        finding = only(diagnose())
        assert finding.what == "1 leftover of writers that were killed, 2.0 KiB."
        repaired = diagnose(repairing=True)
        assert repaired.is_fine
        assert [f.what for f in repaired.findings if f.area == "Repair"] == ["1 leftover removed."]
        assert "1 writer at work now." in [f.what for f in repaired.findings]
        assert written.is_dir()
    assert not list(store.directory.glob(".partial-*"))


def test_what_is_none_of_ours_is_left_alone(store: TraceStore) -> None:
    saved(store)
    (store.directory / "notes.txt").write_text("mine")
    diagnosis = diagnose(repairing=True)
    assert diagnosis.is_fine
    assert any("notes.txt" in finding.what for finding in diagnosis.findings)
    assert (store.directory / "notes.txt").read_text() == "mine"


def test_a_spoilt_file_that_was_handed_in_is_found_and_put_into_quarantine(here: Path) -> None:
    id = handed_in(here)
    (here / "data" / "uploads" / id / "content").write_bytes(b"spoilt")
    assert only(diagnose()).what == f"The file {id} is not as it came."
    assert diagnose(repairing=True).is_fine
    assert Uploads(here / "data" / "uploads", 1, 1).list() == ()
    assert len(list((here / "data" / "uploads" / "quarantine").glob(f"{id}-*/content"))) == 1


# --- cache, sources, models ---


def test_a_spoilt_file_of_the_cache_is_found_and_removed(here: Path) -> None:
    blobs = here / "cache" / "sources" / "blobs"
    blobs.mkdir(parents=True)
    good, bad = blobs / git_blob_id(b"good"), blobs / git_blob_id(b"bad")
    good.write_bytes(b"good")
    bad.write_bytes(b"other")
    assert only(diagnose()).what == f"{bad} has other bytes than its name says."
    assert diagnose(repairing=True).is_fine
    assert good.read_bytes() == b"good"
    assert not bad.exists()


def test_a_source_that_is_not_at_hand_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provenance.sources.carriers.PackageCarrier.read", lambda self, pin: None)
    said = [finding for finding in diagnose().findings if finding.area == "Cited sources"]
    assert [finding.level for finding in said] == [Level.WRONG] * 2
    assert said[0].what.startswith("openai/gpt-2 src/model.py is not at hand")
    assert said[0].advice == "Run `tensor-provenance sources fetch`."


def models_said(**settings: Any) -> list[tuple[Level, str]]:
    found = check_models(Settings(**settings), deep=False)
    return [(finding.level, finding.what) for finding in found if finding.level is not Level.FINE]


def test_models_that_cannot_be_loaded_are_named(here: Path) -> None:
    (here / "damaged").mkdir()
    (here / "damaged" / "config.json").write_text("{")
    ((first, damaged), (second, gone)) = models_said(model_directories=(here / "damaged", here / "gone"))
    assert first is second is Level.WRONG
    assert damaged.startswith("damaged cannot be loaded: ")
    assert gone == "gone is not here."
    ((level, unknown),) = models_said(model="nobody")
    assert (level, unknown) == (Level.WRONG, "The model 'nobody' of the settings is not known.")


def test_weights_in_the_hub_cache_that_are_not_what_was_published_are_named(here: Path) -> None:
    demo = Path(app.doctor.__file__).parents[1] / "provenance" / "gpt2" / "demo"
    folder, blobs = here / "copied", here / "blobs"
    folder.mkdir()
    blobs.mkdir()
    for file in demo.iterdir():
        if file.suffix == ".json":
            shutil.copy(file, folder)
    (blobs / ("0" * 64)).write_bytes((demo / "model.safetensors").read_bytes())
    (folder / "model.safetensors").symlink_to(blobs / ("0" * 64))
    ((level, said),) = models_said(model_directories=(folder,))
    assert level is Level.WRONG
    assert said == f"{folder / 'model.safetensors'} is not what was published."


def test_sizes_are_written_for_a_person() -> None:
    assert [size(n) for n in (0, 1023, 1024, 2048, 10 << 20, int(3.4 * 2**30), 5 << 40)] == [
        "0 bytes", "1023 bytes", "1.0 KiB", "2.0 KiB", "10 MiB", "3.4 GiB", "5.0 TiB",
    ]  # fmt: skip
