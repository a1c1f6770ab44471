"""Running the web server: its log is ours, its stop takes a bounded time, and streams of events end with it."""

import logging
import socket
from types import FrameType

import uvicorn
from fastapi import FastAPI

from app import logs
from app.settings import Settings

log = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """A web server that tells its application as soon as it shall stop."""

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                log_level=settings.log_level,
                access_log=False,
                proxy_headers=False,  # the application has its own list of proxies
                server_header=False,
                timeout_graceful_shutdown=settings.shutdown_seconds,
            )
        )
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note the signal; the answers that never end look for that."""
        self._app.state.stopping = True
        super().handle_exit(sig, frame)


def serve(app: FastAPI, settings: Settings, listening: socket.socket) -> None:
    """Serve until a signal says stop."""
    logs.configure(settings)
    Server(app, settings).run(sockets=[listening])
