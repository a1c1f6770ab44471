"""Logs: one line an event, as words or JSON, with the id of the request that it belongs to.

No line holds a prompt: requests are logged without their query, and errors without their messages,
which may quote what was asked.
"""

import json
import logging
import re
import secrets
import sys
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import TextIO

from app.settings import Settings

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
FIELDS = "fields"
"""The attribute of a log record that holds its named values."""

_GIVEN_ID = re.compile(rb"[A-Za-z0-9._-]{8,64}")
_PLAIN = re.compile(r"[\w./:@{}+*-]+", re.ASCII)
_FRAMES = 12


def request_id(given: bytes | None) -> str:
    """The id of a request: the one that came with it where that is well formed, else a new one."""
    if given is not None and _GIVEN_ID.fullmatch(given):
        return given.decode("ascii")
    return secrets.token_hex(8)


def configure(settings: Settings, stream: TextIO | None = None) -> None:
    """Send all logs of this process to a stream, by default standard error."""
    handler = logging.StreamHandler(stream or sys.stderr)
    with_messages = settings.log_level == "debug"
    handler.setFormatter(JsonLines(with_messages) if settings.log_format == "json" else TextLines(with_messages))
    root = logging.getLogger()
    for former in root.handlers[:]:
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(settings.log_level.upper())


class _Lines(logging.Formatter):
    def __init__(self, with_messages: bool = False) -> None:
        super().__init__()
        self.with_messages = with_messages

    def known(self, record: logging.LogRecord) -> dict[str, object]:
        """The named values of a record, in the order in which they are written."""
        found: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if id := REQUEST_ID.get():
            found["request_id"] = id
        found |= getattr(record, FIELDS, {})
        if record.exc_info and record.exc_info[0] is not None:
            kind, error, where = record.exc_info
            found["error"] = f"{kind.__name__}: {error}" if self.with_messages else kind.__name__
            found["at"] = _frames(where)
        return found


class JsonLines(_Lines):
    """A JSON object a line, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self.known(record), default=str)


class TextLines(_Lines):
    """Time, level and message, then `name=value`; control characters are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        found = self.known(record)
        head = (
            f"{found.pop('time')} {found.pop('level')} {found.pop('logger')}: {printable(str(found.pop('message')))}"
        )
        return " ".join([head, *(f"{name}={_value(value)}" for name, value in found.items())])


def printable(text: str) -> str:
    """A text in one line that a terminal shows as it is: control and direction characters are escaped."""
    return "".join(c if c.isprintable() and c != "\\" else c.encode("unicode_escape").decode() for c in text)


def _value(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _frames(where: TracebackType | None) -> str:
    frames = traceback.extract_tb(where)[-_FRAMES:]
    return " > ".join(f"{frame.filename}:{frame.lineno}:{frame.name}" for frame in frames)
