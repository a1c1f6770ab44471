"""An environment of its own for each peer, made once by pip."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import versions
from benchmarks.peers import PEERS

_OURS = ("pydantic", "safetensors", "numpy", "tokenizers")
"""What our model and recorder need beside torch."""

_INSTALL = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


@dataclass(frozen=True, slots=True)
class Environment:
    """The Python of a peer's environment, or why there is none."""

    python: Path
    problem: str = ""


def environment_of(peer: str, below: Path) -> Environment:
    """The environment of a peer below a directory; made where it is not there yet.

    Torch comes first, at the release of this environment, so that the registry's build for this machine is
    taken; transformers at ours too, unless the peer refuses it.
    """
    requirement = next(known.requirement for known in PEERS if known.name == peer)
    home = (below / peer.lower()).resolve()
    python, stamp = home / "bin" / "python", home / "installed.txt"
    if stamp.is_file() and stamp.read_text() == requirement:
        return Environment(python)
    print(f"installing {requirement} into {home.name} (once) ...", flush=True)
    ours = versions(("torch", "transformers"))
    torch, transformers = f"torch=={ours['torch'].partition('+')[0]}", f"transformers=={ours['transformers']}"
    problem = (
        _run(sys.executable, "-m", "venv", str(home))
        or _run(str(python), *_INSTALL, torch, *_OURS)
        or (
            _run(str(python), *_INSTALL, torch, transformers, requirement)
            and _run(str(python), *_INSTALL, torch, requirement)
        )
    )
    if not problem:
        stamp.write_text(requirement)
    return Environment(python, problem)


def _run(*command: str) -> str:
    """Run a command: nothing where it worked, else the last thing it said."""
    done = subprocess.run(command, capture_output=True, text=True)
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return "" if done.returncode == 0 else (said[-1] if said else f"exit code {done.returncode}")
