"""A checkpoint's showcase: read, recorded at the first start, and linked from the home page."""

import json
import time
from pathlib import Path

from api_client import FOX, running
from checkpoint_files import config_of, state_of, write
from conftest import tiny_model_of

from provenance.gpt2.checkpoints import DEMO_DIRECTORY
from provenance.gpt2.config import Config
from provenance.showcase import FILE, Showcase, read_showcase

SHOWN = {
    "prompt": "one two one two",
    "steps": 1,
    "highlights": [
        {"title": "See it", "sentence": "Look here.", "address": "h.1.attn.pattern@1", "head": 2},
        {"title": "See that", "sentence": "And here.", "address": "logits"},
    ],
}


def test_a_folder_without_a_showcase_or_with_a_broken_one_has_none(tmp_path: Path) -> None:
    assert read_showcase(None) is None
    assert read_showcase(tmp_path) is None
    for broken in ("{", "{}", json.dumps(SHOWN | {"highlights": [{"title": "", "sentence": "", "address": "h.x"}]})):
        (tmp_path / FILE).write_text(broken)
        assert read_showcase(tmp_path) is None


def test_a_showcase_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps(SHOWN))
    showcase = read_showcase(tmp_path)
    assert isinstance(showcase, Showcase)
    assert (showcase.prompt, showcase.steps) == ("one two one two", 1)
    assert [(seen.address, seen.head) for seen in showcase.highlights] == [
        ("h.1.attn.pattern@1", 2),
        ("logits", None),
    ]


def test_the_first_start_records_the_showcase_and_the_home_page_links_to_what_it_names(tmp_path: Path) -> None:
    config = Config(n_layer=2, n_head=4, n_embd=32, n_ctx=64, n_inner=128)
    model = tiny_model_of(config)
    folder = write(tmp_path / "shown", config_of(config), state_of(model))
    (folder / FILE).write_text(json.dumps(SHOWN))
    with running(tmp_path, model="shown", model_directories=(folder,), example=True) as api:
        end = time.monotonic() + 200
        while len(done := [t for t in api.json("/api/traces") if t["state"] == "done"]) < 2:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert {trace["prompt"] for trace in done} == {FOX, "one two one two"}
        id = next(trace["id"] for trace in done if trace["prompt"] == "one two one two")
        home = api.ask("GET", "/").text
        for address in (f"/traces/{id}/h.1.attn.pattern?step=1&amp;head=2", f"/traces/{id}/logits"):
            assert f'href="{address}"' in home
            assert api.ask("GET", address.replace("&amp;", "&")).status_code == 200


def test_the_demo_s_heads_do_in_its_trace_what_the_showcase_says(tmp_path: Path) -> None:
    showcase = read_showcase(DEMO_DIRECTORY)
    assert showcase is not None
    induction, previous = showcase.highlights
    with running(tmp_path, model="demo", example=False) as api:
        address = api.record(prompt=showcase.prompt, steps=showcase.steps)
        tokens = [token["id"] for token in api.json(address)["tokens"]]
        last = len(tokens) - 1
        behind_the_earlier_one = tokens.index(tokens[last]) + 1
        pattern = api.values(f"{address}/tensors/{induction.address}.npy")[0, induction.head]
        assert pattern[last].argmax() == behind_the_earlier_one
        assert pattern[last, behind_the_earlier_one] > 0.5
        pattern = api.values(f"{address}/tensors/{previous.address}.npy")[0, previous.head]
        assert all(pattern[query].argmax() == query - 1 for query in range(1, last + 1))
        assert api.json(address)["generated"][0]["text"] == " lazy"
