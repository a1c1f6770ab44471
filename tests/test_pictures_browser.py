"""The heatmap's read-out in a real browser: by pointer and by keys, equal to the API's value."""

import re
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import httpx
import pytest
import uvicorn
from api_client import FOX
from playwright.sync_api import Browser, Page, sync_playwright

from app.main import create_app
from app.settings import Settings

pytestmark = pytest.mark.browser

_CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
_OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


@dataclass(frozen=True)
class Site:
    """A running server and the path of a trace on it."""

    base: str
    trace: str


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory: Path = tmp_path_factory.mktemp("browser")
    settings = Settings(
        data_directory=directory / "data", cache_directory=directory / "cache", model="tiny-untrained",
        example=False, network=False,
    )  # fmt: skip
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(create_app(settings), host="127.0.0.1", port=port, log_level="error"))
    thread = Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    base = f"http://127.0.0.1:{port}"
    made = httpx.post(f"{base}/api/traces", json={"prompt": FOX, "steps": 1}).headers["location"]
    while httpx.get(base + made).json()["state"] != "done":
        time.sleep(0.02)
    yield Site(base, made.removeprefix("/api"))
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=_CHROMIUM or None, args=_OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on which any error of the console fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    yield page
    context.close()
    assert not wrong


def value(site: Site, address: str, index: str) -> float:
    answer = httpx.get(f"{site.base}/api{site.trace}/tensors/{address}/slice", params={"index": index})
    found: float = answer.raise_for_status().json()["values"][0]
    return found


def read_out(page: Page, says: str) -> str:
    """The read-out once it says something."""
    line = page.locator("#readout")
    line.filter(has_text=says).wait_for()
    return " ".join(line.inner_text().split())


def hover(page: Page, row: int, col: int, rows: int, cols: int) -> None:
    image = page.locator("#heatmap-image")
    image.scroll_into_view_if_needed()
    box = image.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * (col + 0.5) / cols, box["y"] + box["height"] * (row + 0.5) / rows)


def test_the_pointer_reads_the_value_of_the_api(page: Page, site: Site) -> None:
    page.goto(f"{site.base}{site.trace}/h.1.attn.pattern?head=2")
    hover(page, 6, 3, 9, 9)
    said = read_out(page, "key 3")
    assert said.startswith("query 6 “ the” · key 3 “ fox” · head 2: ")
    assert float(said.split(": ")[1]) == value(site, "h.1.attn.pattern", "0,2,6,3")
    hover(page, 3, 6, 9, 9)
    assert "(masked)" in read_out(page, "key 6")


def test_arrow_keys_move_the_cursor(page: Page, site: Site) -> None:
    page.goto(f"{site.base}{site.trace}/h.0.ln_1.out")
    frame = page.locator(".heatmap .frame")
    frame.focus()
    page.keyboard.press("ArrowRight")
    assert read_out(page, "channel 0").startswith("token 0 “The” · channel 0: ")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("ArrowLeft")
    said = read_out(page, "channel 9")
    assert said.startswith("token 1 “ quick” · channel 9: ")
    assert float(said.split(": ")[1]) == value(site, "h.0.ln_1.out", "0,1,9")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert read_out(page, "token 0").startswith("token 0 “The” · channel 9: ")
    assert page.locator("#readout").get_attribute("aria-live") == "polite"


def test_a_turned_picture_and_joined_cells_are_read_right(page: Page, site: Site) -> None:
    page.goto(f"{site.base}{site.trace}/h.0.attn.k?rows=hd&cols=T")
    hover(page, 5, 7, 8, 9)
    said = read_out(page, "token 7")
    assert float(said.split(": ")[1]) == value(site, "h.0.attn.k", "0,0,7,5")
    page.goto(f"{site.base}{site.trace}/logits")
    hover(page, 2, 1, 9, 256)
    said = read_out(page, "entry 197–393")
    cells = httpx.get(f"{site.base}/api{site.trace}/tensors/logits/slice?index=0,2,197:394").json()["values"]
    found = re.search(r"furthest from zero (\S+) at 2, (\d+)", said)
    assert found is not None
    assert float(found[1]) == max(cells, key=abs) == cells[int(found[2]) - 197]


def test_the_read_out_works_after_a_swap_too(page: Page, site: Site) -> None:
    page.goto(f"{site.base}{site.trace}/h.0.attn.pattern")
    page.locator("#head-3").click()
    page.locator("#heatmap[data-fixed='head 3']").wait_for()
    page.locator(".heatmap .frame").focus()
    page.keyboard.press("ArrowDown")
    said = read_out(page, "head 3:")
    assert float(said.split(": ")[1]) == value(site, "h.0.attn.pattern", "0,3,0,0")


def test_without_scripts_links_and_table_are_there(browser: Browser, site: Site) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site.base}{site.trace}/h.0.attn.pattern")
    page.locator("#thumb-2").click()
    assert page.url.endswith("?head=2")
    page.locator("summary", has_text="Choose what the picture shows").click()
    page.locator("select[name=rows]").select_option("H")
    page.locator(".controls button").click()
    assert "rows=H" in page.url
    assert "head 0" in (page.locator("#heatmap-image").get_attribute("alt") or "") + page.content()
    assert page.locator("table.values").is_visible()
    context.close()
