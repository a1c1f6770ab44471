"""The application as a real server, and the Chromium that looks at it."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Any

import httpx
import uvicorn
from playwright.sync_api import Browser, sync_playwright

from app.explorer import Explorer
from app.main import create_app
from app.settings import Settings

NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
_PATIENCE_SECONDS = 120


class NoChromium(Exception):
    """None of the known names is a program here."""


@dataclass(frozen=True)
class Served:
    """A running server, and the explorer behind it; paths are without the host."""

    base: str
    explorer: Explorer

    def json(self, path: str, **query: str | int) -> Any:
        """The API's answer."""
        return httpx.get(f"{self.base}/api{path}", params=query, timeout=60).raise_for_status().json()

    def text(self, path: str) -> str:
        """A page or file as text."""
        return httpx.get(f"{self.base}{path}", timeout=60).raise_for_status().text

    def verify(self, trace: str) -> None:
        """Verify a trace, and wait until that is done."""
        httpx.post(f"{self.base}/api{trace}/verdict", timeout=60).raise_for_status()
        end = time.monotonic() + _PATIENCE_SECONDS
        while (found := self.json(f"{trace}/verdict"))["state"] != "done":
            assert found["state"] in ("queued", "running") and time.monotonic() < end, found
            time.sleep(0.05)

    def record(self, prompt: str | None, **wanted: str | int | list[str]) -> str:
        """The path of a trace, `/traces/…`, once it is recorded; without a prompt that of seeded vectors."""
        answer = httpx.post(f"{self.base}/api/traces", json={"prompt": prompt, **wanted}, timeout=60)
        path = answer.raise_for_status().headers["location"].removeprefix("/api")
        end = time.monotonic() + _PATIENCE_SECONDS
        while (found := self.json(path))["state"] != "done":
            assert found["state"] in ("queued", "running") and time.monotonic() < end, found
            time.sleep(0.02)
        return str(path)


@contextmanager
def serving(settings: Settings) -> Iterator[Served]:
    """Serve the application on a free port; stop it after."""
    app = create_app(settings)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.02)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Served(f"http://127.0.0.1:{port}", app.state.explorer)
    finally:
        server.should_exit = True
        thread.join()


def chromium_path() -> str:
    """Where Chromium is. Raises NoChromium."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        raise NoChromium(
            f"No Chromium is installed ({', '.join(NAMES)}). Run 'make browser', or 'make quick' without."
        )
    return found


@contextmanager
def started_chromium() -> Iterator[Browser]:
    """A headless Chromium of the system."""
    path = chromium_path()
    # Chromium refuses its sandbox to root.
    options = [*_OPTIONS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options)
        try:
            yield browser
        finally:
            browser.close()
