"""The files of a run: one for each part, so that a run can be stopped and taken up again."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.environments import environment_of
from benchmarks.machine import environment
from benchmarks.parts import Part
from benchmarks.plan import Plan

ROOT = Path(__file__).resolve().parents[1]
_LONGEST_SECONDS = 3600
_SAID_LINES = 6


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a part: its result as JSON, or the reason why there is none."""

    part: str
    date: str
    settings: str
    seconds: float
    result: Any = None
    problem: str = ""


class Store:
    """The parts measured so far below a directory."""

    def __init__(self, directory: Path, plan: Plan) -> None:
        self.directory = directory / "parts"
        self.environments = directory
        self.plan = plan
        self.directory.mkdir(parents=True, exist_ok=True)

    def found(self, part: Part, *, any_code: bool = False) -> Done | None:
        """A part that was measured with this plan and, unless `any_code`, with the code as it is now."""
        try:
            done = Done(**json.loads(self._file(part).read_text()))
        except (OSError, ValueError, TypeError):
            return None
        same = done.settings == self._settings(part) or (any_code and done.settings[:16] == self._settings(part)[:16])
        return done if same and not done.problem else None

    def measure(self, part: Part) -> Done:
        """Run a part now, in a process of its own. A failure is an answer too."""
        began = time.monotonic()
        result, problem = self._run(part)
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        done = Done(part.name, now, self._settings(part), time.monotonic() - began, result, problem)
        _write(self._file(part), json.dumps({field: getattr(done, field) for field in Done.__slots__}))
        return done

    def _run(self, part: Part) -> tuple[Any, str]:
        python = Path(sys.executable)
        if part.peer:
            made = environment_of(part.peer, self.environments)
            if made.problem:
                return None, f"{part.peer} cannot be installed: {made.problem}"
            python = made.python
        file, log = self._file(part).with_suffix(".result"), self._file(part).with_suffix(".log")
        file.unlink(missing_ok=True)
        own = environment(part.allocator, self.plan.threads) | {"PYTHONPATH": str(ROOT)}
        with log.open("w") as errors:
            process = subprocess.Popen(
                [str(python), "-m", "benchmarks.parts", part.name, str(file.resolve())],
                cwd=ROOT,
                env=own,
                stdin=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
            try:
                process.communicate(self.plan.to_json(), timeout=_LONGEST_SECONDS)
            except subprocess.TimeoutExpired:
                return None, f"stopped after {_LONGEST_SECONDS} s"
            finally:
                _end(process)
        if process.returncode or not file.exists():
            return None, f"exit code {process.returncode}: {_last(log)}"
        result = json.loads(file.read_text())
        file.unlink()
        return result, ""

    def _file(self, part: Part) -> Path:
        return self.directory / f"{part.name.replace(' ', '_').replace(',', '')}.json"

    def _settings(self, part: Part) -> str:
        """Two hashes: of the plan and the part, and of the code that is measured."""
        asked = hashlib.sha256(f"{self.plan.to_json()} {part}".encode()).hexdigest()[:16]
        return f"{asked}{code_hash(part.code)}"


@lru_cache
def code_hash(folders: tuple[str, ...]) -> str:
    """A hash of all files of some folders of this repository."""
    total = hashlib.sha256()
    for path in _files(folders):
        total.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return total.hexdigest()[:16]


def _files(folders: Iterable[str]) -> list[Path]:
    found = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    return sorted(path for path in found if "__pycache__" not in path.parts and path.suffix != ".safetensors")


def _end(process: "subprocess.Popen[str]") -> None:
    """End a process and what it started: only its own group."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-_SAID_LINES:])[-600:] or "it said nothing"


def _write(file: Path, text: str) -> None:
    """Write a file whole or not at all."""
    partial = file.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(file)
