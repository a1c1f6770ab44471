"""Several web workers and one engine: who starts them, watches them, and stops them.

parent    took the port; starts the others, and starts again what dies
engine    has the models, the queue of recordings and the replays; answers calls over a private socket
worker    serves pages and the API on the parent's port; reads the trace store; asks the engine
"""

import logging
import multiprocessing
import os
import secrets
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from app.channel import Endpoint
from app.settings import Settings

log = logging.getLogger(__name__)
_SHORT_LIFE_SECONDS = 5.0
_PAUSE_SECONDS = 1.0
"""What dies within a short life is started again after a pause: it may well die again."""


def serve(settings: Settings, listening: socket.socket, tell: Callable[[str], None] = print) -> None:
    """Serve until a signal says stop; then the signal's usual effect follows."""
    with tempfile.TemporaryDirectory(prefix="tensor-provenance-") as private, _signals() as said:
        endpoint = Endpoint(Path(private) / "engine", secrets.token_bytes(32))
        if settings.metrics:
            # Each worker counts its requests in a file here, and whoever is asked reads all.
            (counts := Path(private) / "metrics").mkdir()
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(counts)
        engine = _Child("The engine", _run_engine, (settings, endpoint))
        workers = [
            _Child(f"Web worker {number}", _run_worker, (settings, listening, endpoint))
            for number in range(1, settings.workers + 1)
        ]
        try:
            for child in (engine, *workers):
                child.start()
            numbers = ", ".join(str(worker.process.pid) for worker in workers)
            tell(f"One engine (process {engine.process.pid}) and {len(workers)} web workers ({numbers})")
            _keep(said, (engine, *workers))
        finally:
            # Whoever is being answered may still need the engine: it goes last.
            _stop(said, workers)
            _stop(said, [engine])
    for number in said.numbers[:1]:
        signal.raise_signal(number)


# --- the parent ---


@dataclass
class _Said:
    """The signals that came, and a socket that becomes readable with each."""

    ear: socket.socket
    numbers: list[int] = field(default_factory=list)


@contextmanager
def _signals() -> Iterator[_Said]:
    ear, mouth = socket.socketpair()
    for end in (ear, mouth):
        end.setblocking(False)
    said = _Said(ear)

    def hear(number: int, frame: object) -> None:
        said.numbers.append(number)

    before = {number: signal.signal(number, hear) for number in _STOPPING}
    signal.set_wakeup_fd(mouth.fileno())
    try:
        yield said
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        ear.close()
        mouth.close()


_STOPPING = (signal.SIGINT, signal.SIGTERM)
_SPAWN = multiprocessing.get_context("spawn")  # a fork would inherit locks of threads that it does not have


class _Child:
    def __init__(self, name: str, run: Callable[..., None], args: tuple[object, ...]) -> None:
        self._name, self._run, self._args = name, run, args
        self._started = 0.0
        self.due: float | None = None
        self.process = self._new()

    def _new(self) -> SpawnProcess:
        return _SPAWN.Process(target=self._run, args=self._args, name=self._name)

    def start(self) -> None:
        self.process.start()
        self._started, self.due = time.monotonic(), None

    def look(self) -> None:
        """Start it again where it has ended, at once or after a pause."""
        now = time.monotonic()
        if self.due is None and not self.process.is_alive():
            log.warning("%s ended (exit code %s) and is started again.", self.process.name, self.process.exitcode)
            self.due = now if now - self._started > _SHORT_LIFE_SECONDS else now + _PAUSE_SECONDS
        if self.due is not None and self.due <= now:
            self.process.close()
            self.process = self._new()
            self.start()


def _keep(said: _Said, children: tuple[_Child, ...]) -> None:
    while not said.numbers:
        for child in children:
            child.look()
        due = [child.due for child in children if child.due is not None]
        alive = [child.process.sentinel for child in children if child.due is None]
        wait([said.ear, *alive], timeout=max(0.0, min(due) - time.monotonic()) if due else None)


def _stop(said: _Said, children: list[_Child]) -> None:
    """Ask them to stop and wait; a second Ctrl+C ends them as they are."""
    heard = len(said.numbers)
    processes = [child.process for child in children if child.process.pid is not None]
    for process in processes:
        process.terminate()
    while alive := [process.sentinel for process in processes if process.is_alive()]:
        if signal.SIGINT in said.numbers[max(1, heard) :]:
            for process in processes:
                process.kill()
        _drain(said.ear)
        wait([said.ear, *alive])
    for process in processes:
        process.join()


def _drain(ear: socket.socket) -> None:
    try:
        while ear.recv(64):
            pass
    except BlockingIOError:
        return


# --- the children ---


def _stop_with_parent() -> None:
    """Stop where the parent is gone without having said so."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _run_engine(settings: Settings, endpoint: Endpoint) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches all; the parent says when
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    _stop_with_parent()
    from app import logs
    from app.allocator import keep_freed_memory
    from app.engine_client import answering
    from app.examples import record_examples
    from app.explorer import Explorer

    logs.configure(settings)
    keep_freed_memory()
    explorer = Explorer(settings.model_copy(update={"replay_cache_mib": settings.replay_cache_mib // 2}))
    explorer.store.clean()

    calls = answering(explorer.engine, endpoint, explorer.store)
    recording = threading.Thread(target=record_examples, args=(explorer,))
    recording.start()
    stop.wait()
    explorer.close()
    calls.close()
    recording.join()


def _run_worker(settings: Settings, listening: socket.socket, endpoint: Endpoint) -> None:
    _stop_with_parent()
    from app import serving
    from app.engine_client import RemoteEngine
    from app.explorer import Explorer
    from app.main import create_app
    from provenance.places import traces_below
    from provenance.store import TraceStore

    mine = settings.model_copy(update={"example": False})  # the engine records it
    cache_bytes = (settings.replay_cache_mib << 19) // settings.workers

    def explorer(settings: Settings) -> Explorer:
        store = TraceStore(traces_below(settings.data_directory))
        return Explorer(settings, store, RemoteEngine(settings, store, endpoint, cache_bytes))

    try:
        serving.serve(create_app(mine, explorer), mine, listening)
    except KeyboardInterrupt:  # the way to stop it
        return
