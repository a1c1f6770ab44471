"""The whole application in this process, asked over HTTP without a network."""

import asyncio
import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from fastapi import FastAPI

from app.explorer import Explorer
from app.main import create_app
from app.settings import Settings

FOX = "The quick brown fox jumps over the lazy dog"
_PATIENCE_SECONDS = 200


class Api:
    """A client of a running application; it sees answers of 500 where a browser would."""

    def __init__(self, app: FastAPI, runner: asyncio.Runner) -> None:
        self.app = app
        self._runner = runner

    @property
    def explorer(self) -> Explorer:
        """The explorer behind the routes."""
        explorer: Explorer = self.app.state.explorer
        return explorer

    def ask(self, method: str, address: str, **options: Any) -> httpx.Response:
        """One request."""
        return self.ask_at_once((method, address, options))[0]

    def ask_at_once(self, *requests: tuple[str, str, dict[str, Any]]) -> list[httpx.Response]:
        """Several requests, all under way before the first is answered."""
        return self._runner.run(self._gather(requests))

    async def _gather(self, requests: tuple[tuple[str, str, dict[str, Any]], ...]) -> list[httpx.Response]:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=None) as client:
            return await asyncio.gather(*(client.request(m, address, **options) for m, address, options in requests))

    def json(self, address: str) -> Any:
        """The JSON at an address that exists."""
        return self.ask("GET", address).raise_for_status().json()

    def problem(self, method: str, address: str, status: int, **options: Any) -> Any:
        """The problem that a request is answered with."""
        answer = self.ask(method, address, **options)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert problem["status"] == status
        assert problem["title"]
        return problem

    def wait(self, address: str) -> Any:
        """The JSON at an address once its state is neither queued nor running."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while (found := self.json(address))["state"] in ("queued", "running"):
            assert time.monotonic() < end, found
            time.sleep(0.02)
        return found

    def record(self, **wanted: Any) -> str:
        """The address of a trace that was asked for and is done."""
        answer = self.ask("POST", "/api/traces", json=wanted)
        assert answer.status_code in (201, 202), answer.text
        address = answer.headers["Location"]
        assert self.wait(address)["state"] == "done"
        return address

    def values(self, address: str) -> np.ndarray[Any, Any]:
        """The array of a .npy address."""
        answer = self.ask("GET", address).raise_for_status()
        array: np.ndarray[Any, Any] = np.load(io.BytesIO(answer.content), allow_pickle=False)
        return array


@contextmanager
def running(directory: Path, **settings: Any) -> Iterator[Api]:
    """Start the application with the tiny model and data below a directory; stop it after."""
    settings = {"model": "tiny-untrained", "example": False, "network": False, **settings}
    app = create_app(Settings(data_directory=directory / "data", cache_directory=directory / "cache", **settings))
    lifespan = app.router.lifespan_context(app)
    with asyncio.Runner() as runner:
        runner.run(lifespan.__aenter__())
        try:
            yield Api(app, runner)
        finally:
            runner.run(lifespan.__aexit__(None, None, None))
