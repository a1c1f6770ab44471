"""Forks writers into a store, and has each killed at a chosen moment; a process of its own, driven by lines of JSON.

    {"do": "save", "into": "/…", "number": 3, "call": 17}      killed before the 17th call that touches files
    {"do": "save", "into": "/…", "number": 3, "bytes": 100}    killed by the kernel behind byte 100 of a file
    {"do": "endless", "into": "/…", "number": 3}               goes on until it is killed from outside

    {"do": "wait"}                                             for the writer that was started first

Of each writer its process id is told, and for each wait an exit code, negative for a signal.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_CALLS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "fcntl.flock")


class Killed:
    """The process of writers, as the tests drive it."""

    def __init__(self, given: Path, id: str) -> None:
        command = [sys.executable, __file__, str(given), id]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
        )

    def start(self, do: str, into: Path, **wanted: Any) -> int:
        """Start a writer; returns its process id."""
        return self._ask({"do": do, "into": str(into), **wanted})

    def ended(self) -> int:
        """How the writer that was started first ended, of those not asked for yet."""
        return self._ask({"do": "wait"})

    def run(self, do: str, into: Path, **wanted: Any) -> bool:
        """Whether a writer came to its end; False where it was killed."""
        self.start(do, into, **wanted)
        code = self.ended()
        assert code in (0, -signal.SIGKILL, -signal.SIGXFSZ), f"{do} {wanted} ended with {code}"
        return code == 0

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _ask(self, wanted: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def _kill_at_call(number: int) -> None:
    """Nothing on the disk changes between two of these calls, but for the bytes of a file that is open."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    fsync = os.fsync

    def flushed(handle: int) -> None:
        step()
        fsync(handle)

    os.fsync = flushed
    sys.addaudithook(lambda name, _: step() if name in _CALLS else None)


def _main() -> None:
    from app.uploads import Uploads
    from provenance.durable import partial_directory
    from provenance.errors import UnknownTrace
    from provenance.store import TraceStore
    from provenance.trace import Trace

    trace = TraceStore(Path(sys.argv[1])).open(sys.argv[2])

    def save(into: TraceStore, number: int) -> Trace:
        recipe = trace.recipe.model_copy(update={"threads": number})
        return into.save(recipe, trace.generated, trace.tensors)

    def perform(do: str, into: Path, number: int, text: str) -> None:
        store = TraceStore(into)
        id = trace.recipe.model_copy(update={"threads": number}).id
        if do == "save":
            save(store, number)
        elif do == "delete":
            store.delete(id)
        elif do == "attach":
            store.attach(id, "verdict.json", text)
        elif do == "quarantine":
            store.quarantine(id)
        elif do == "upload":
            Uploads(into, 1 << 20, 1 << 20).add(text.encode("latin-1"), "a file")
        elif do == "truncate":
            held = store.open(id)
            os.truncate(into / id / "tensors.safetensors", 0)
            assert all(bool((tensor == tensor).all()) for tensor in held.tensors.values())
        elif do == "hold":
            with partial_directory(into) as partial:
                (partial / "tensors.safetensors").write_bytes(b"half")
                (into / "held").touch()
                signal.pause()
        elif do == "endless":
            large = next(iter(trace.tensors.values())).new_zeros(500_000)
            for round in range(1_000_000):
                recipe = trace.recipe.model_copy(update={"threads": number + round % 7})
                tensors = {**trace.tensors, "wte": large} if round % 2 else trace.tensors
                with suppress(UnknownTrace):  # another writer has deleted it at once
                    store.save(recipe, trace.generated, tensors)
                with suppress(UnknownTrace):
                    store.attach(id, "verdict.json", text * (round % 3))
                if round % 4 == 3:
                    with suppress(UnknownTrace):
                        store.delete(trace.recipe.model_copy(update={"threads": number + 2}).id)

    def child(wanted: dict[str, Any]) -> None:
        call, size = wanted.pop("call", None), wanted.pop("bytes", None)
        if size is not None:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        if call is not None:
            _kill_at_call(call)
        perform(wanted["do"], Path(wanted["into"]), wanted.get("number", 1), wanted.get("text", "text"))

    waiting: list[int] = []
    for line in sys.stdin:
        wanted = json.loads(line)
        if wanted["do"] == "wait":
            print(os.waitstatus_to_exitcode(os.waitpid(waiting.pop(0), 0)[1]), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                child(wanted)
                code = 0
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(code)
        waiting.append(pid)
        print(pid, flush=True)
    for pid in waiting:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    _main()
