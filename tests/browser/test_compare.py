"""Comparing in the browser: two traces chosen in the form, one tensor after the other, and a file handed in."""

import io
from urllib.parse import parse_qs, urlsplit

import httpx
import numpy as np
import pytest
from api_client import FOX
from playwright.sync_api import Page
from safetensors.numpy import save

from .conftest import Open, Site

pytestmark = pytest.mark.browser


def ids(site: Site) -> tuple[str, str]:
    return site.trace.removeprefix("/traces/"), site.other.removeprefix("/traces/")


def asked(tab: Page) -> dict[str, str]:
    """The parameters of the address."""
    return {name: values[0] for name, values in parse_qs(urlsplit(tab.url).query).items()}


def ported(site: Site, factor: float) -> bytes:
    """A file with one layer's scores, all too large by a factor."""
    found = httpx.get(f"{site.base}/api{site.trace}/tensors/h.2.attn.scores.npy").raise_for_status().content
    return save({"h.2.attn.scores": np.load(io.BytesIO(found)) * np.float32(factor)})


def test_two_traces_are_chosen_and_the_first_divergence_is_named(tab: Page, site: Site) -> None:
    a, b = ids(site)
    tab.goto(site.trace)
    tab.click("main >> text=Compare with another run")
    assert tab.locator("#a").input_value() == a
    tab.select_option("#b", b)
    tab.click("button:has-text('Compare')")
    tab.wait_for_selector("#focus")
    assert asked(tab) == {"a": a, "b": b}
    assert tab.locator("h1").inner_text() == "They first differ at X"
    assert tab.locator("#focus h2").first.inner_text() == "Token ids"
    assert "token 3 “ fox”" in tab.locator("#focus .first").inner_text()
    assert FOX in tab.locator("#side-a").inner_text()


def test_a_row_puts_its_tensor_in_the_place_of_the_first_divergence(tab: Page, site: Site) -> None:
    a, b = ids(site)
    tab.goto(f"/compare?a={a}&b={b}")
    tab.locator("summary", has_text="Transformer block 4").click()
    tab.locator("#part-transformer-block-4").get_by_role("link", name="Attention pattern").click()
    tab.wait_for_url("**at=h.4.attn.pattern")
    tab.locator("#focus h2", has_text="Attention pattern").wait_for()
    assert tab.locator("#part-transformer-block-4").get_attribute("open") is not None, "the reader's place is kept"
    assert tab.locator("#heatmap-image").evaluate("image => image.complete && image.naturalWidth") > 0
    tab.click("#head-7")
    tab.wait_for_selector("#head-7[aria-current]")
    assert asked(tab)["head"] == "7"
    tab.locator("#heatmap-image").hover()
    readout = tab.locator("#readout b")
    readout.wait_for()
    assert float(readout.inner_text()) >= 0
    tab.keyboard.press("j")
    tab.wait_for_url("**at=h.4.attn.context")
    tab.go_back()
    tab.wait_for_selector("#head-7[aria-current]")
    tab.locator("#focus").get_by_role("link", name="the first divergence").click()
    tab.wait_for_url(f"**/compare?a={a}&b={b}")
    assert tab.locator("#focus h2").first.inner_text() == "Token ids"


def test_a_file_is_handed_in_and_compared(tab: Page, site: Site) -> None:
    a, _ = ids(site)
    tab.goto(f"/compare?a={a}")
    file = {"name": "my port & <b>.safetensors", "mimeType": "application/octet-stream", "buffer": ported(site, 1.01)}
    tab.set_input_files("#file", file)  # type: ignore[arg-type]
    tab.click("button:has-text('Compare')")
    tab.wait_for_selector("#focus")
    assert asked(tab)["b"].startswith("file:")
    assert tab.locator("#side-b").inner_text().endswith("my port & <b>.safetensors")
    assert tab.locator("h1").inner_text().endswith(", layer 2")
    assert "rsqrt" in tab.locator("#focus .label-openai .excerpt").inner_text()


def test_a_file_that_is_refused_leaves_the_form_as_it_was(open_tab: Open, site: Site) -> None:
    tab = open_tab(deliberate=(422,), java_script_enabled=False)
    a, b = ids(site)
    tab.goto(f"/compare?a={a}")
    tab.select_option("#b", b)
    tab.fill("#tolerance", "1e-4")
    tab.set_input_files("#file", {"name": "x.npz", "mimeType": "application/zip", "buffer": b"no file of tensors"})
    tab.click("button:has-text('Compare')")
    assert "x.npz" in tab.locator("#wrong-file").inner_text()
    assert (tab.locator("#a").input_value(), tab.locator("#b").input_value()) == (a, b)
    assert tab.locator("#tolerance").input_value() == "1e-4"
