"""What a replay gives back is what the run had, bit for bit: all sites, layers and steps."""

import hashlib
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from conftest import PROMPT_IDS, STEPS, THREADS, TINY, Tapped, prompt_of, recorded, tapped_run, tiny_model_of
from safetensors.torch import save_file

from provenance.errors import InvalidInput, InvalidPrompt, OutOfRange, PromptTooLong, UnknownSite
from provenance.gpt2.catalogue import CATALOGUE
from provenance.gpt2.model import GPT2
from provenance.names import Address, is_layered
from provenance.prompt import Prompt
from provenance.recorder import Replayer, _choose, plan, record, replay
from provenance.store import TraceStore
from provenance.trace import Recipe, Trace
from provenance.variants import catalogue_of


@pytest.fixture(scope="module")
def tapped(tiny_model: GPT2) -> Tapped:
    torch.set_num_threads(THREADS)
    return tapped_run(tiny_model)


def addresses(steps: int = STEPS) -> list[Address]:
    """Every tensor of a trace of the tiny model."""
    return [
        Address(row.site, layer, step)
        for row in catalogue_of(CATALOGUE, TINY.variants)
        for layer in (range(TINY.n_layer) if is_layered(row.site) else (None,))
        for step in range(steps + 1)
        if row.steps.cover(step)
    ]


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    return one.contiguous().numpy().tobytes() == other.contiguous().numpy().tobytes()


def in_thread(work: Callable[[], object]) -> None:
    """Run something in a fresh thread; what it raises is raised here."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


# --- replays ---


def test_the_addresses_are_all_tapped_tensors(tapped: Tapped) -> None:
    assert {str(address) for address in addresses()} == tapped.tensors.keys()
    assert len(addresses()) == (7 + 10 + TINY.n_layer * 44) * (STEPS + 1) + TINY.n_layer * 5 * STEPS


def test_every_tensor_is_given_back_bit_for_bit(tiny_model: GPT2, tiny_trace: Trace, tapped: Tapped) -> None:
    replayer = Replayer()
    for address in addresses():
        assert same_bits(replayer.tensor(tiny_model, tiny_trace, address), tapped.tensors[str(address)]), str(address)
    assert tuple(token.id for token in tiny_trace.generated) == tapped.chosen


def test_every_tensor_is_given_back_in_a_fresh_thread(
    tiny_model: GPT2, tiny_store: TraceStore, tiny_trace: Trace, tapped: Tapped
) -> None:
    def compare() -> None:
        trace = TraceStore(tiny_store.directory).open(tiny_trace.id)
        replayer = Replayer()
        for address in addresses():
            found = replayer.tensor(tiny_model, trace, address)
            assert same_bits(found, tapped.tensors[str(address)]), str(address)

    torch.set_num_threads(1)  # another count in this thread must not matter to the other
    in_thread(compare)


OTHER_PROCESS = """
import hashlib, json, sys
from pathlib import Path
from safetensors.torch import load_file
from provenance.gpt2.config import Config
from provenance.gpt2.model import GPT2
from provenance.model import ModelInfo
from provenance.names import Address
from provenance.recorder import Replayer
from provenance.store import TraceStore

given = json.load(sys.stdin)
model = GPT2(Config(**given["info"]["config"]), load_file(given["weights"]), ModelInfo(**given["info"]))
trace = TraceStore(Path(given["store"])).open(given["trace"])
replayer = Replayer()
for address in given["addresses"]:
    tensor = replayer.tensor(model, trace, Address.parse(address))
    print(hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest(), tensor.dtype, list(tensor.shape))
"""


@pytest.mark.slow
def test_every_tensor_is_given_back_in_another_process(
    tiny_model: GPT2, tiny_store: TraceStore, tiny_trace: Trace, tapped: Tapped, tmp_path: Path, repository: Path
) -> None:
    save_file(dict(tiny_model.weights), tmp_path / "weights.safetensors")
    names = [str(address) for address in addresses()]
    given = {
        "info": asdict(tiny_model.info), "weights": str(tmp_path / "weights.safetensors"),
        "store": str(tiny_store.directory), "trace": tiny_trace.id, "addresses": names,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS],
        input=json.dumps(given), text=True, capture_output=True, check=True, cwd=repository,
    )  # fmt: skip
    for name, line in zip(names, done.stdout.splitlines(), strict=True):
        tensor = tapped.tensors[name]
        digest = hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()
        assert line == f"{digest} {tensor.dtype} {list(tensor.shape)}", name


def test_replays_confirm_what_the_trace_kept(tiny_model: GPT2, tiny_trace: Trace) -> None:
    for step in range(STEPS + 1):
        checks = [replay(tiny_model, tiny_trace, segment, step).check for segment in tiny_model.segments]
        assert [check.compared for check in checks] == [1, 2, 2, 2, 0]
        assert all(check.bit_for_bit and check.largest_difference == 0 for check in checks)


def test_a_replay_that_differs_says_so_and_by_how_much(tiny_model: GPT2, tiny_trace: Trace) -> None:
    other = dict(tiny_trace.tensors)
    other["h.1.resid_post"] = other["h.1.resid_post"].clone()
    other["h.1.resid_post"][0, 2, 3] += 0.25
    check = replay(tiny_model, Trace(tiny_trace.record, other), "h.1", 0).check
    assert (check.compared, check.bit_for_bit) == (2, False)
    assert check.largest_difference == pytest.approx(0.25, abs=1e-6)


def test_a_trace_keeps_only_what_enters_and_leaves_the_segments(tiny_trace: Trace) -> None:
    kept = {"tokens", "embed.h"}
    kept |= {f"h.{layer}.{name}" for layer in range(TINY.n_layer) for name in ("attn.present", "resid_post")}
    for step in range(STEPS + 1):
        assert set(tiny_trace.kept(step)) == kept
    assert len(tiny_trace.tensors) == len(kept) * (STEPS + 1)
    assert tiny_trace.kept(2)["tokens"].tolist() == [[tiny_trace.generated[1].id]]


def test_a_decode_step_has_the_shapes_of_one_token(tiny_model: GPT2, tiny_trace: Trace) -> None:
    replayer = Replayer()

    def shape(address: str) -> list[int]:
        return list(replayer.tensor(tiny_model, tiny_trace, Address.parse(address)).shape)

    assert shape("h.0.ln_1.out") == [1, 6, 48]
    assert shape("h.0.ln_1.out@1") == [1, 1, 48]
    assert shape("h.0.attn.k_all@3") == [1, 3, 9, 16]
    assert shape("h.2.attn.present@3") == [1, 2, 3, 1, 16]


# --- identity ---


def recipe_of(model: GPT2, prompt: Prompt | None = None, **choices: int | float) -> Recipe:
    options = {"steps": STEPS, "threads": THREADS, **choices}
    return plan(model, prompt or prompt_of(), **options)  # type: ignore[arg-type]


def test_the_same_input_has_the_same_id(tiny_model: GPT2) -> None:
    assert recipe_of(tiny_model).id == recipe_of(tiny_model_of()).id
    assert recipe_of(tiny_model, seed=5).id == recipe_of(tiny_model, seed=6).id, "greedy uses no seed"
    text = Prompt("a text", prompt_of().tokens)
    assert recipe_of(tiny_model, text).id == recipe_of(tiny_model).id, "the tokens decide"
    assert Recipe.model_validate_json(recipe_of(tiny_model).model_dump_json()).id == recipe_of(tiny_model).id


def test_everything_that_can_change_a_bit_changes_the_id(tiny_model: GPT2) -> None:
    base = recipe_of(tiny_model)
    assert base.model_copy(update={"threads": THREADS}).id == base.id
    others = [
        recipe_of(tiny_model, steps=2),
        recipe_of(tiny_model, threads=1),
        recipe_of(tiny_model, temperature=1.0),
        recipe_of(tiny_model, temperature=1.0, seed=1),
        recipe_of(tiny_model, temperature=0.5),
        recipe_of(tiny_model, prompt_of(PROMPT_IDS[::-1])),
        recipe_of(tiny_model, prompt_of(PROMPT_IDS[:-1])),
        recipe_of(tiny_model_of(seed=2)),
        recipe_of(tiny_model_of(dtype="bfloat16")),
        recipe_of(tiny_model_of(replace(TINY, epsilon=1e-5))),
        recipe_of(tiny_model_of(name="another")),
        base.model_copy(update={"torch": "2.0.0"}),
        base.model_copy(update={"device": "cuda"}),
    ]
    assert len({recipe.id for recipe in [base, *others]}) == len(others) + 1


def test_greedy_decoding_takes_the_largest_logit_and_ignores_the_seed(tiny_model: GPT2, tapped: Tapped) -> None:
    for seed in (0, 1):
        chosen, _ = record(tiny_model, recipe_of(tiny_model, seed=seed))
        assert chosen == tapped.chosen


def test_sampled_decoding_is_reproduced_by_its_seed(tiny_model: GPT2) -> None:
    def sample(seed: int, temperature: float = 2.0) -> tuple[int, ...]:
        return record(tiny_model, recipe_of(tiny_model, steps=8, temperature=temperature, seed=seed))[0]

    assert sample(1) == sample(1)
    assert len({sample(seed) for seed in range(5)}) > 1
    greedy = record(tiny_model, recipe_of(tiny_model, steps=8))[0]
    assert sample(3, temperature=1e-310) == sample(3, temperature=1e-4) == greedy


def test_sampling_follows_the_softmax_of_the_logits_over_the_temperature() -> None:
    logits, generator = torch.tensor([0.0, 1.0, 2.0, 5.0]), torch.Generator().manual_seed(0)
    drawn = Counter(_choose(logits, 2.0, generator) for _ in range(4000))
    # e^0, e^0.5, e^1, e^2.5, over their sum of 17.55
    for id, share in enumerate((0.0570, 0.0939, 0.1549, 0.6942)):
        assert drawn[id] / 4000 == pytest.approx(share, abs=0.03)


# --- refusals ---


def test_a_prompt_that_does_not_fit_is_refused_with_the_counts(tiny_model: GPT2) -> None:
    with pytest.raises(PromptTooLong) as refused:
        recipe_of(tiny_model, prompt_of(PROMPT_IDS * 4), steps=1)
    error = refused.value
    assert (error.tokens, error.steps, error.context) == (24, 1, 24)
    assert str(error) == (
        "The prompt has 24 tokens; with 1 decode steps that makes 25, and this model's context holds 24. "
        "Shorten the prompt or ask for at most 0 steps."
    )


def test_a_prompt_that_fills_the_context_exactly_runs_to_the_last_position(tiny_model: GPT2) -> None:
    chosen, tensors = record(tiny_model, recipe_of(tiny_model, prompt_of(PROMPT_IDS * 3), steps=6))
    assert len(chosen) == 7
    assert tensors["embed.h@6"].shape == (1, 1, 48)
    recipe_of(tiny_model, prompt_of(PROMPT_IDS * 4), steps=0)


@pytest.mark.parametrize("id", [97, 50256, -1])
def test_an_id_outside_the_vocabulary_is_refused(tiny_model: GPT2, id: int) -> None:
    with pytest.raises(InvalidPrompt, match=f"Token id {id} lies outside this model's vocabulary of 97."):
        recipe_of(tiny_model, prompt_of((1, id)))


def test_an_empty_prompt_is_refused(tiny_model: GPT2) -> None:
    with pytest.raises(InvalidPrompt, match="The prompt is empty"):
        recipe_of(tiny_model, prompt_of(()))


@pytest.mark.parametrize(
    "choice",
    [
        {"steps": -1}, {"temperature": -0.5}, {"temperature": float("nan")}, {"temperature": float("inf")},
        {"seed": -1}, {"seed": 2**63}, {"threads": -1},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_out_of_range_is_refused_before_the_run(tiny_model: GPT2, choice: dict[str, int | float]) -> None:
    with pytest.raises(InvalidInput, match=f"This cannot be recorded: {next(iter(choice))}"):
        recipe_of(tiny_model, None, **choice)


@pytest.mark.parametrize(
    ("address", "error", "said"),
    [
        ("h.0.attn.k_all", OutOfRange, "h.0.attn.k_all does not exist in step 0: it exists in decode steps only. "
                                       "Ask for step 1."),
        ("h.3.attn.q", OutOfRange, "has no layer 3. Its model has layers 0 to 2."),
        ("logits@4", OutOfRange, "has no step 4. It has steps 0 (prefill) to 3."),
        ("h.0.attn.nothing", UnknownSite, "There is no tensor named 'h.attn.nothing'"),
    ],
)  # fmt: skip
def test_what_a_trace_does_not_have_is_refused_with_what_it_has(
    tiny_model: GPT2, tiny_trace: Trace, address: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as refused:
        Replayer().tensor(tiny_model, tiny_trace, Address.parse(address))
    assert said in str(refused.value)


def test_a_trace_without_decode_steps_says_how_to_get_one(tiny_model: GPT2, tmp_path: Path) -> None:
    trace = recorded(tiny_model, TraceStore(tmp_path), steps=0)
    with pytest.raises(OutOfRange, match="Record the prompt with at least one decode step"):
        Replayer().tensor(tiny_model, trace, Address.parse("h.0.past"))
    with pytest.raises(OutOfRange, match=r"It has step 0 \(prefill\) only"):
        Replayer().tensor(tiny_model, trace, Address.parse("logits@1"))


# --- the cache of replays, and threads ---


class Counted:
    """A model that counts the segments it runs."""

    def __init__(self, model: GPT2) -> None:
        self.model = model
        self.runs = 0

    def __getattr__(self, name: str) -> object:
        if name == "run":
            self.runs += 1
        return getattr(self.model, name)


def test_a_segment_is_replayed_once_while_it_is_in_the_cache(tiny_model: GPT2, tiny_trace: Trace) -> None:
    counted, replayer = Counted(tiny_model), Replayer()
    for site in ("h.1.attn.q", "h.1.attn.k", "h.1.mlp.h"):
        replayer.tensor(counted, tiny_trace, Address.parse(site))  # type: ignore[arg-type]
    assert counted.runs == 1
    replayer.tensor(counted, tiny_trace, Address.parse("h.1.attn.q@1"))  # type: ignore[arg-type]
    assert counted.runs == 2
    replayer.tensor(counted, tiny_trace, Address.parse("h.1.resid_post"))  # type: ignore[arg-type]
    assert counted.runs == 2, "a kept tensor needs no replay"


def test_the_cache_stays_within_its_budget_and_drops_what_was_used_longest_ago(
    tiny_model: GPT2, tiny_trace: Trace
) -> None:
    sizes = [replay(tiny_model, tiny_trace, f"h.{layer}", 0).bytes for layer in range(3)]
    counted, replayer = Counted(tiny_model), Replayer(budget_bytes=sum(sizes[:2]))
    for layer in (0, 1, 0, 2):  # 1 is now the one used longest ago
        replayer.tensor(counted, tiny_trace, Address("h.attn.q", layer))  # type: ignore[arg-type]
    assert counted.runs == 3
    held = sum(replayed.bytes for replayed in replayer._cache.values())
    assert held <= replayer.budget_bytes
    replayer.tensor(counted, tiny_trace, Address("h.attn.q", 0))  # type: ignore[arg-type]
    assert counted.runs == 3
    replayer.tensor(counted, tiny_trace, Address("h.attn.q", 1))  # type: ignore[arg-type]
    assert counted.runs == 4


@pytest.mark.slow
def test_many_traces_do_not_grow_the_cache(tiny_model: GPT2, tmp_path: Path) -> None:
    store, replayer = TraceStore(tmp_path), Replayer(budget_bytes=100_000)
    for first in range(12):
        trace = recorded(tiny_model, store, (first, 1, 2), steps=1)
        for segment_site in ("embed.tokens", "h.0.attn.q", "h.2.attn.q@1", "logits"):
            replayer.tensor(tiny_model, trace, Address.parse(segment_site))
        assert sum(replayed.bytes for replayed in replayer._cache.values()) <= 100_000


def test_what_is_counted_is_the_size_of_the_tensors_without_the_parameters(
    tiny_model: GPT2, tiny_trace: Trace
) -> None:
    replayed = replay(tiny_model, tiny_trace, "embed", 0)
    # tokens and positions (6 of int64 each), three of 6 x 48 float32; neither table
    assert replayed.bytes == 2 * 6 * 8 + 3 * 6 * 48 * 4


def test_two_threads_that_record_at_once_get_what_each_gets_alone(tiny_model: GPT2) -> None:
    prompts = [prompt_of(), prompt_of((50, 51, 52)), prompt_of((3,) * 11), prompt_of((96, 1))]
    recipes = [recipe_of(tiny_model, prompt, steps=5, temperature=1.0, seed=7) for prompt in prompts]
    alone = [record(tiny_model, recipe) for recipe in recipes]
    together: dict[int, tuple[tuple[int, ...], dict[str, torch.Tensor]]] = {}
    barrier = threading.Barrier(len(recipes))

    def run(number: int) -> None:
        barrier.wait()
        for _ in range(3):
            together[number] = record(tiny_model, recipes[number])

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(recipes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, (chosen, tensors) in enumerate(alone):
        assert together[number][0] == chosen
        assert together[number][1].keys() == tensors.keys()
        assert all(same_bits(together[number][1][name], tensor) for name, tensor in tensors.items())


@pytest.mark.slow
def test_two_threads_that_replay_different_traces_get_their_own_tensors(tiny_model: GPT2, tmp_path: Path) -> None:
    store, replayer = TraceStore(tmp_path), Replayer(budget_bytes=50_000)
    prompts = [PROMPT_IDS, PROMPT_IDS[::-1]]
    traces = [recorded(tiny_model, store, ids, steps=1) for ids in prompts]
    expected = [tapped_run(tiny_model, ids, steps=1).tensors for ids in prompts]
    wrong: list[str] = []
    barrier = threading.Barrier(2)

    def run(number: int) -> None:
        barrier.wait()
        for address in addresses(steps=1):
            found = replayer.tensor(tiny_model, traces[number], address)
            if not same_bits(found, expected[number][str(address)]):
                wrong.append(str(address))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_progress_counts_every_segment(tiny_model: GPT2) -> None:
    seen: list[tuple[int, int]] = []
    record(tiny_model, recipe_of(tiny_model, steps=1), lambda done, total: seen.append((done, total)))
    assert seen == [(done, 10) for done in range(1, 11)]


def test_a_run_that_fails_leaves_nothing_behind(tiny_model: GPT2) -> None:
    def stop(done: int, _: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(tiny_model, recipe_of(tiny_model), stop)
    assert not torch.is_inference_mode_enabled()
    assert record(tiny_model, recipe_of(tiny_model))[0] == tapped_run(tiny_model).chosen


def test_a_bfloat16_model_is_replayed_bit_for_bit(tmp_path: Path) -> None:
    model = tiny_model_of(dtype="bfloat16")
    trace = recorded(model, TraceStore(tmp_path), steps=1)
    expected = tapped_run(model, steps=1).tensors
    replayer = Replayer()
    for address in addresses(steps=1):
        found = replayer.tensor(model, trace, address)
        assert found.dtype == expected[str(address)].dtype
        assert torch.equal(found, expected[str(address)]), str(address)
