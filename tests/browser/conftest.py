"""One server with two models and their traces, and tabs of a real browser on which any error fails the test.

The fixtures live as long as this package: Playwright keeps an event loop in the thread that other
tests need for their own.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from api_client import FOX
from checkpoint_files import config_of, state_of, write
from conftest import tiny_model_of
from playwright.sync_api import Browser, BrowserContext, Page

from app.settings import Settings
from provenance.gpt2.config import Config

from .exported import Place, export_some, served_folder
from .serving import NoChromium, Served, serving, started_chromium

ARTEFACTS = Path(__file__).resolve().parents[2] / "test-artefacts"
EIGHT_HEADS = Config(n_layer=6, n_head=8, n_embd=32, n_ctx=64, n_vocab=50257, n_inner=128, epsilon=1e-5)
"""Deep and wide enough for a question about head 7, or about layer 5."""
STEPS = 3
LAPTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}


@dataclass(frozen=True)
class Site:
    """A server with the example recorded by two models: the home page leads into `trace`, of the default model.

    `proven` is a verified trace, `other` one of the same model whose prompt differs in one token, `vectors` a
    verified run of a model that reads no text, `causal` one of its variants.
    """

    served: Served
    tiny: str
    trace: str
    proven: str
    other: str
    vectors: str
    causal: str

    @property
    def base(self) -> str:
        """The server's address."""
        return self.served.base


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The running application."""
    directory: Path = tmp_path_factory.mktemp("browser")
    model = tiny_model_of(EIGHT_HEADS, seed=4)
    checkpoint = write(directory / "eight-heads", config_of(EIGHT_HEADS), state_of(model))
    settings = Settings(
        data_directory=directory / "data", cache_directory=directory / "cache", model="eight-heads",
        model_directories=(checkpoint,), example=False, network=False, source_directories=(),
    )  # fmt: skip
    with serving(settings) as served:
        vectors = served.record(None, model="textbook-l2", length=6, batch=3)
        served.verify(vectors)
        causal = served.record(None, model="textbook-pre-causal-l2", length=6, batch=3)
        tiny = served.record(FOX, steps=STEPS, model="tiny-untrained")
        proven = served.record("It is proven", steps=1, model="tiny-untrained")
        served.verify(proven)
        other = served.record(FOX.replace("fox", "cat"), steps=STEPS)
        trace = served.record(FOX, steps=STEPS)
        yield Site(served, tiny, trace, proven, other, vectors, causal)


@pytest.fixture(scope="package")
def exported(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A static site of `trace` on a plain web server."""
    here, folder = site.served.explorer, tmp_path_factory.mktemp("export") / "site"
    trace = here.store.open(site.trace.removeprefix("/traces/"))
    export_some(here, trace, folder)
    with served_folder(folder) as base:
        yield Place(base, trace)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """Chromium."""
    try:
        with started_chromium() as started:
            yield started
    except NoChromium as problem:
        pytest.fail(str(problem))


Open = Callable[..., Page]


@pytest.fixture
def open_tab(request: pytest.FixtureRequest, chromium: Browser, site: Site) -> Iterator[Open]:
    """Opens tabs, each with options of its own; any complaint of the browser fails the test.

    `deliberate` names the statuses of answers that the test asks for and a browser complains about.
    """
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def listen(page: Page, deliberate: tuple[int, ...]) -> None:
        allowed = tuple(f"status of {status} " for status in deliberate)

        def hear(kind: str, text: str) -> None:
            if kind in ("error", "warning") and not any(words in text for words in allowed):
                complaints.append(text)

        page.on("console", lambda message: hear(message.type, message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))

    def open(deliberate: tuple[int, ...] = (), **options: object) -> Page:
        wanted = {"base_url": site.base, "viewport": LAPTOP, "color_scheme": "light", **options}
        context = chromium.new_context(**wanted)
        context.set_default_timeout(60_000)
        contexts.append(context)
        page = context.new_page()
        listen(page, deliberate)
        return page

    yield open
    for number, context in enumerate(contexts):
        for page in context.pages:
            ARTEFACTS.mkdir(exist_ok=True)
            name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
            page.screenshot(path=ARTEFACTS / f"{name[:80]}{f'-{number}' if number else ''}.png")
        context.close()
    assert complaints == []


@pytest.fixture
def tab(open_tab: Open) -> Page:
    """A tab of a laptop's size, in the light theme."""
    return open_tab()
