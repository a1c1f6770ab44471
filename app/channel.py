"""Calls from one process of this server to another, over a Unix socket.

What travels is pickled, so each end must trust the other: the socket lies in a directory that only this
user can enter, and whoever connects proves that they know a secret that parent and children share. A
tensor travels as its raw bytes beside the message; a trace as its id, which the other end opens in the
store that both read.
"""

import io
import logging
import os
import pickle
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

import torch

from provenance.errors import ProvenanceError, Unavailable
from provenance.storage import Store
from provenance.trace import Trace

log = logging.getLogger(__name__)
_HEAD = struct.Struct("<QI")
_IDLE_CONNECTIONS = 64
_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a channel is: the path of its socket, and the secret."""

    path: Path
    secret: bytes


# --- messages ---


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: object) -> str | None:
        return obj.id if isinstance(obj, Trace) else None

    def reducer_override(self, obj: object) -> Any:
        if isinstance(obj, torch.Tensor):
            cells = obj.detach().contiguous()
            raw = cells.reshape(-1).view(torch.uint8).numpy()
            return _tensor, (pickle.PickleBuffer(raw.data), str(obj.dtype).removeprefix("torch."), tuple(obj.shape))
        if isinstance(obj, ProvenanceError):
            return _error, (type(obj), obj.args, dict(vars(obj)))
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, message: bytearray, buffers: list[bytearray], store: Store) -> None:
        super().__init__(io.BytesIO(message), buffers=buffers)
        self._store = store

    def persistent_load(self, pid: Any) -> Trace:
        return self._store.open(pid)


def _tensor(raw: bytearray, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    kind: torch.dtype = getattr(torch, dtype)
    return torch.frombuffer(raw, dtype=kind).reshape(shape) if len(raw) else torch.empty(shape, dtype=kind)


def _error(kind: type[ProvenanceError], args: tuple[Any, ...], known: dict[str, Any]) -> ProvenanceError:
    # Their constructors take other arguments than a message: what they made of them is what travels.
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(known)
    return error


def packed(value: object) -> list[bytes | memoryview]:
    """A message in the pieces in which it is sent: the first says how long all are."""
    buffers: list[pickle.PickleBuffer] = []
    message = io.BytesIO()
    _Pickler(message, protocol=5, buffer_callback=buffers.append).dump(value)
    raw = [buffer.raw() for buffer in buffers]
    sizes = struct.pack(f"<{len(raw)}Q", *(view.nbytes for view in raw))
    return [_HEAD.pack(message.tell(), len(raw)) + sizes + message.getvalue(), *raw]


def send(connection: socket.socket, pieces: list[bytes | memoryview]) -> None:
    """Send one message."""
    for piece in pieces:
        connection.sendall(piece)


def receive(connection: socket.socket, store: Store) -> Any:
    """Receive one message; traces in it are opened in the store. Raises EOFError where the other end is gone."""
    length, count = _HEAD.unpack(_exactly(connection, _HEAD.size))
    sizes = struct.unpack(f"<{count}Q", _exactly(connection, 8 * count))
    message = _exactly(connection, length)
    buffers = [_exactly(connection, size) for size in sizes]
    return _Unpickler(message, buffers, store).load()


def _exactly(connection: socket.socket, size: int) -> bytearray:
    found = bytearray(size)
    rest = memoryview(found)
    while rest:
        count = connection.recv_into(rest)
        if not count:
            raise EOFError
        rest = rest[count:]
    return found


# --- the end that answers ---


class Answering:
    """Answers calls by name; each connection has a thread, so that one slow call holds up no other."""

    def __init__(self, endpoint: Endpoint, calls: Mapping[str, Callable[..., object]], store: Store) -> None:
        self._endpoint = endpoint
        self._calls = calls
        self._store = store
        self._closed = False
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        # Nobody finds it before it listens, nor in the place of one that was killed.
        made = endpoint.path.with_suffix(".new")
        made.unlink(missing_ok=True)
        self._listener = Listener(str(made), "AF_UNIX", backlog=128)
        made.rename(endpoint.path)
        self._thread = threading.Thread(target=self._accept, name="answering", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more calls; whoever waits for an answer is told that there is none."""
        self._closed = True
        with suppress(OSError):
            Client(str(self._endpoint.path), "AF_UNIX").close()  # wakes it
        self._thread.join()
        with self._lock:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection = self._listener.accept()
            except OSError as problem:
                log.warning("a connection was not taken: %s", problem)
                time.sleep(_LOOK_SECONDS)  # there may be too many files open
                continue
            # In its own thread from here on: one who falls silent while the secret is shown holds up no other.
            threading.Thread(target=self._converse, args=(connection,), name="call", daemon=True).start()
        self._endpoint.path.unlink(missing_ok=True)
        with suppress(FileNotFoundError):  # it looks for its socket where that was made
            self._listener.close()

    def _converse(self, stranger: "Connection[Any, Any]") -> None:
        try:
            deliver_challenge(stranger, self._endpoint.secret)
            answer_challenge(stranger, self._endpoint.secret)
            connection = _plain(stranger)
        except (OSError, EOFError, AuthenticationError) as problem:
            stranger.close()
            if not self._closed:
                log.warning("a connection was refused: %s", problem or type(problem).__name__)
            return
        with self._lock:
            self._open.add(connection)
        with connection, suppress(OSError, EOFError):
            while not self._closed:
                send(connection, self._answer(connection))
        with self._lock:
            self._open.discard(connection)

    def _answer(self, connection: socket.socket) -> list[bytes | memoryview]:
        try:
            name, args, options = receive(connection, self._store)
            return packed((True, self._calls[name](*args, **options)))
        except ProvenanceError as error:
            return packed((False, error))
        except (OSError, EOFError):
            raise
        except Exception as error:
            log.exception("a call failed")
            return packed((False, RuntimeError(f"{type(error).__name__} in the engine; its log says why.")))


# --- the end that asks ---


class Asking:
    """Calls the other end; safe for several threads, each of which has a connection of its own meanwhile."""

    def __init__(self, endpoint: Endpoint, store: Store, patience_seconds: float = 10.0) -> None:
        self._endpoint = endpoint
        self._store = store
        self._patience_seconds = patience_seconds
        self._idle: list[socket.socket] = []
        self._lock = threading.Lock()
        self._closed = False

    def call(self, name: str, *args: object, **options: object) -> Any:
        """What the other end answers. Raises what it raised, and Unavailable where it is not there."""
        connection = self._connection()
        try:
            send(connection, packed((name, args, options)))
            good, answer = receive(connection, self._store)
        except (OSError, EOFError):
            connection.close()
            raise _gone() from None
        except BaseException:
            connection.close()  # the rest of a message may still come
            raise
        self._put_back(connection)
        if good:
            return answer
        raise answer

    def close(self) -> None:
        """Close the connections that nobody uses."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _connection(self) -> socket.socket:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._connect()
            if not _ended(connection):
                return connection
            connection.close()

    def _connect(self) -> socket.socket:
        end = time.monotonic() + self._patience_seconds
        while True:
            try:
                return _plain(Client(str(self._endpoint.path), "AF_UNIX", authkey=self._endpoint.secret))
            except FileNotFoundError:  # it has not begun to listen
                if time.monotonic() > end:
                    raise _gone() from None
                time.sleep(_LOOK_SECONDS)
            except (OSError, EOFError, AuthenticationError):
                raise _gone() from None

    def _put_back(self, connection: socket.socket) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < _IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()


def _plain(connection: "Connection[Any, Any]") -> socket.socket:
    """The socket of a connection that has shown its secret: large tensors are then read into place."""
    with connection:
        return socket.socket(fileno=os.dup(connection.fileno()))


def _ended(connection: socket.socket) -> bool:
    """Whether the other end of an idle connection is gone: it has nothing to say unasked."""
    connection.setblocking(False)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        connection.setblocking(True)
    return True


def _gone() -> Unavailable:
    return Unavailable(
        "The process that computes is not running at this moment.",
        hint="It is being started again: ask once more in a few seconds. What waited to be recorded is forgotten.",
    )
