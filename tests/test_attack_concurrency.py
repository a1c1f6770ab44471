"""Recordings of different prompts at once, with readers meanwhile: each gives the tensors of it alone,
bit for bit."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from api_client import Api, running

from provenance.syntax import parse_expression, parse_module

pytestmark = pytest.mark.slow

ROUNDS = 3
PROMPTS = (
    "The quick brown fox", "jumps over the lazy dog", "Hello world", "a", "Paris is the capital of",
    "one two three four",
)  # fmt: skip
PLACES = (
    "embed.tokens", "h.0.ln_1.out", "h.0.attn.pattern", "h.1.attn.scores_masked", "h.1.mlp.h2", "h.1.resid_post",
    "h.0.attn.present@1", "h.1.attn.pattern@2", "logits", "logits@2",
)  # fmt: skip
STEPS = 2


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], bytes]:
    """Each tensor as a recording gives it to which nothing else happens: the file's bytes, by prompt and place."""
    found = {}
    for number, prompt in enumerate(PROMPTS):
        with running(tmp_path_factory.mktemp(f"alone{number}")) as api:
            address = api.record(prompt=prompt, steps=STEPS)
            for place in PLACES:
                found[prompt, place] = api.ask("GET", f"{address}/tensors/{place}.npy").raise_for_status().content
    return found


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    # A cache this small drops what was replayed while others still ask for it.
    limits = {"client_traces_waiting": 0, "client_traces_per_hour": 0}
    with running(tmp_path, replay_cache_mib=0, queue_length=64, **limits) as api:
        yield api


@pytest.mark.parametrize("number", range(ROUNDS))
def test_recordings_at_once_are_those_alone(api: Api, alone: dict[tuple[str, str], bytes], number: int) -> None:
    draw = Random(number)
    asked = [("POST", "/api/traces", {"json": {"prompt": prompt, "steps": STEPS}}) for prompt in PROMPTS]
    asked += draw.sample(asked, 3)  # some are asked for twice
    draw.shuffle(asked)
    addresses = {}
    for answer in api.ask_at_once(*asked):
        assert answer.status_code in (201, 202)
        addresses[answer.json()["prompt"]] = answer.headers["Location"]
    assert set(addresses) == set(PROMPTS)
    # Readers ask while recordings still run; those of a trace that is not there yet are told so.
    wanted = [(prompt, place) for prompt in PROMPTS for place in PLACES]
    while True:
        draw.shuffle(wanted)
        answers = api.ask_at_once(*(("GET", f"{addresses[p]}/tensors/{place}.npy", {}) for p, place in wanted))
        for key, answer in zip(wanted, answers, strict=True):
            assert answer.status_code in (200, 404), answer.text
            if answer.status_code == 200:
                assert answer.content == alone[key], key
        if all(answer.status_code == 200 for answer in answers):
            break
    for address in addresses.values():
        assert api.json(address)["state"] == "done"


class _Garbage:
    """Lets other threads run while it is collected."""

    def __init__(self) -> None:
        self.own = self

    def __del__(self) -> None:
        for _ in range(50):
            pass


def test_python_is_read_in_several_threads_at_once() -> None:
    source = Path(parse_module.__code__.co_filename).read_bytes() * 8
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            read = [pool.submit(parse_module, source) for _ in range(120)]
            read += [pool.submit(parse_expression, "f(x, 'ln_1')[0] + " * 40 + "1") for _ in range(120)]
            for _ in range(20_000):
                _Garbage()
            assert all(each.result().body for each in read)
    finally:
        sys.setswitchinterval(before)


def test_what_the_bytes_hold_differs_between_prompts(alone: dict[tuple[str, str], bytes]) -> None:
    """The comparison above is worth something."""
    for place in PLACES:
        assert len({alone[prompt, place] for prompt in PROMPTS}) == len(PROMPTS), place
