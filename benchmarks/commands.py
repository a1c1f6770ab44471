"""The command line: how soon `--help` answers, what it imports, and how long `verify` takes."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.plan import Plan
from benchmarks.timing import Timed, interleaved

PROMPT = "The quick brown fox jumps over the lazy dog"
"""9 tokens of GPT-2's vocabulary."""

HEAVY = ("torch", "numpy", "transformers", "fastapi", "pydantic")
_IMPORTED = re.compile(r"^import time:.*\|\s+(\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Verified:
    """One `verify` with its recording, in a process of its own, from start to exit."""

    model: str
    steps: int
    seconds: float
    proving_seconds: float
    holds: bool


@dataclass(frozen=True, slots=True)
class Commands:
    """`--help` as a whole process, which heavy packages it imports, and the proofs."""

    help: Timed
    python_alone: Timed
    imported: tuple[str, ...]
    verified: tuple[Verified, ...]


def measure(plan: Plan) -> Commands:
    """Run the commands as a person would."""
    timed = interleaved(
        {"--help": lambda: _run(["-m", "app.cli", "--help"]), "python -c pass": lambda: _run(["-c", "pass"])},
        max(plan.repeats, 2),
    )
    listed = _run(["-X", "importtime", "-m", "app.cli", "--help"]).stderr
    imported = heavy_imports(listed)
    said = ", ".join(imported) or "none of the heavy packages"
    print(f"--help: {timed['--help'].median:.0f} ms, imports {said}", flush=True)
    verified = []
    for model in plan.verified:
        verified.append(_verify(model))
        print(f"verify {model}: {verified[-1].seconds:.1f} s, holds: {verified[-1].holds}", flush=True)
    return Commands(timed["--help"], timed["python -c pass"], imported, tuple(verified))


def heavy_imports(listed: str) -> tuple[str, ...]:
    """The heavy packages in what `python -X importtime` lists."""
    packages = {name.partition(".")[0] for name in _IMPORTED.findall(listed)}
    return tuple(name for name in HEAVY if name in packages)


def _verify(model: str) -> Verified:
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        arguments = ["verify", "--model", model, "--prompt", PROMPT, "--steps", "1", "--json"]
        done = _run(["-m", "app.cli", *arguments], data=Path(directory))
        seconds = time.perf_counter() - began
    if not done.stdout:
        raise RuntimeError(f"`verify --model {model}` failed: {done.stderr[-400:]}")
    report = json.loads(done.stdout)
    return Verified(model, 1, seconds, float(report["seconds"]), done.returncode == 0)


def _run(arguments: Sequence[str], data: Path | None = None) -> "subprocess.CompletedProcess[str]":
    own = {"TENSOR_PROVENANCE_NETWORK": "no"}
    if data is not None:
        own |= {
            "TENSOR_PROVENANCE_DATA_DIRECTORY": str(data),
            "TENSOR_PROVENANCE_CACHE_DIRECTORY": str(data / "cache"),
        }
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TENSOR_PROVENANCE_")}
    return subprocess.run([sys.executable, *arguments], env=kept | own, capture_output=True, text=True)
