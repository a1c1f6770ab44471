"""The worked example of a port in the browser: the file is handed in, and the page names where the fault enters."""

import re
import runpy
from pathlib import Path

import pytest
from playwright.sync_api import Page
from safetensors.numpy import save_file

from app.explorer import EXAMPLE

from .conftest import Open, Site

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "provenance" / "gpt2" / "demo"
ENTERS = {
    "gelu": ("h.0.mlp.h", 118),
    "mask": ("h.0.attn.mask.m", 65),
    "epsilon": ("h.0.ln_1.normalized", 36),
    "swap": ("h.0.attn.q", 103),
    "scale": ("h.0.attn.scores", 94),
}
"""The tensor where each fault enters, and a line of OpenAI's file that says what it has to be."""


def handed_in(tab: Page, site: Site, directory: Path, fault: str | None) -> None:
    """Run the port on the example, and compare its file with the trace through the form."""
    trace = site.served.record(EXAMPLE, model="demo").removeprefix("/traces/")
    tokens = site.served.json(f"/traces/{trace}")["tokens"]
    port = runpy.run_path(str(ROOT / "docs" / "porting" / "gpt2_numpy.py"))["load"](DEMO, fault)
    port.prefill([token["id"] for token in tokens])
    save_file(port.kept, directory / "port.safetensors")
    tab.goto("/compare")
    tab.select_option("#a", trace)
    tab.set_input_files("#file", directory / "port.safetensors")
    tab.get_by_role("button", name="Compare", exact=True).click()
    tab.wait_for_url("**/compare?a=*")


def cited(tab: Page) -> set[int]:
    """The lines of OpenAI's file that the page shows beside the first divergence."""
    cites = tab.locator("#focus .evidence .cite").filter(has_text="src/model.py").all_inner_texts()
    spans = [re.findall(r"(\d+)(?:–(\d+))?", cite.partition("· lines ")[2]) for cite in cites]
    return {line for found in spans for start, end in found for line in range(int(start), int(end or start) + 1)}


@pytest.mark.parametrize("fault", ENTERS)
def test_the_page_names_where_a_planted_fault_enters(tab: Page, site: Site, tmp_path: Path, fault: str) -> None:
    enters, line = ENTERS[fault]
    handed_in(tab, site, tmp_path, fault)
    assert tab.locator("h1").inner_text().startswith("They first differ at")
    assert tab.locator("#focus .role").first.inner_text().lower().startswith("the first divergence")
    assert tab.locator("#focus .address").inner_text() == enters
    signs = tab.locator("#focus .upstream li .badge").all_inner_texts()
    assert signs and not [sign for sign in signs if "differ" in sign]
    assert line in cited(tab)


def test_the_page_says_that_a_port_without_a_fault_agrees(open_tab: Open, site: Site, tmp_path: Path) -> None:
    tab = open_tab(java_script_enabled=False)
    handed_in(tab, site, tmp_path, None)
    assert "104" in tab.locator("main").inner_text()
    assert tab.locator("#focus").count() == 0
    assert "agree" in tab.locator("h1").inner_text()
