"""The hooked GPT-2 against transformers' own, against formulas in NumPy, and against its catalogue."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TINY, tapped_run, tiny_model_of
from numpy.typing import NDArray
from transformers import GPT2Config, GPT2LMHeadModel

from provenance.catalogue import Kind
from provenance.gpt2.arithmetic import FRESH, IN_PLACE
from provenance.gpt2.catalogue import CATALOGUE as WITH_VARIANTS
from provenance.gpt2.config import Config
from provenance.gpt2.model import GPT2
from provenance.names import Address, is_layered
from provenance.naming import KEY, MODULE
from provenance.variants import catalogue_of

Array = NDArray[Any]

TWELVE_HEADS = Config(n_layer=2, n_head=12, n_embd=48, n_ctx=24, n_vocab=61, n_inner=192)
ONE_HEAD = Config(n_layer=1, n_head=1, n_embd=20, n_ctx=24, n_vocab=61, n_inner=7, epsilon=1e-3)
CONFIGS = {"three-heads": TINY, "twelve-heads": TWELVE_HEADS, "one-head": ONE_HEAD}


def transformers_twin(model: GPT2) -> GPT2LMHeadModel:
    """Transformers' eager model with the same weights; the keys are written out by hand."""
    c = model.config
    config = GPT2Config(
        vocab_size=c.n_vocab, n_positions=c.n_ctx, n_embd=c.n_embd, n_layer=c.n_layer, n_head=c.n_head,
        n_inner=c.n_inner, layer_norm_epsilon=c.epsilon, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    config._attn_implementation = "eager"
    twin: GPT2LMHeadModel = GPT2LMHeadModel(config)  # type: ignore[no-untyped-call]
    twin.train(False)
    state = {"transformer.wte.weight": model.weights["wte"], "transformer.wpe.weight": model.weights["wpe"]}
    state["lm_head.weight"] = model.weights["wte"]
    norms = ["ln_f", *(f"h.{layer}.{name}" for layer in range(c.n_layer) for name in ("ln_1", "ln_2"))]
    for at in norms:
        state[f"transformer.{at}.weight"] = model.weights[f"{at}.g"]
        state[f"transformer.{at}.bias"] = model.weights[f"{at}.b"]
    for layer in range(c.n_layer):
        for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"):
            at = f"h.{layer}.{name}"
            state[f"transformer.{at}.weight"] = model.weights[f"{at}.w"][0]
            state[f"transformer.{at}.bias"] = model.weights[f"{at}.b"]
    twin.load_state_dict(state, strict=True)
    return twin


def assert_close(ours: torch.Tensor, theirs: torch.Tensor, what: str) -> float:
    """Design's tolerance: 5e-5 times the largest reference value, or 1; returns the difference."""
    assert ours.shape == theirs.shape, what
    difference = float((ours.double() - theirs.double()).abs().max())
    assert difference <= 5e-5 * max(1.0, float(theirs.double().abs().max())), f"{what}: {difference:.2e}"
    return difference


def feed(batch: int, length: int, vocabulary: int, seed: int = 3) -> torch.Tensor:
    return torch.randint(vocabulary, (batch, length), generator=torch.Generator().manual_seed(seed))


def grown(past: list[torch.Tensor] | None, presents: list[torch.Tensor]) -> list[torch.Tensor]:
    return presents if past is None else [torch.cat(pair, dim=-2) for pair in zip(past, presents, strict=True)]


def steps_of(
    model: GPT2, tokens: list[torch.Tensor], tap: Callable[[str, torch.Tensor], torch.Tensor] | None = None
) -> Iterator[torch.Tensor]:
    """Logits of each step, with the cache carried on."""
    past: list[torch.Tensor] | None = None
    for ids in tokens:
        logits, presents = model.forward(ids, past, tap)
        past = grown(past, presents)
        yield logits


# --- against transformers ---


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("batch", [1, 2])
def test_logits_equal_transformers_in_the_prefill_and_three_decode_steps(config: Config, batch: int) -> None:
    model = tiny_model_of(config)
    twin = transformers_twin(model)
    tokens = [feed(batch, 7, config.n_vocab), *(feed(batch, 1, config.n_vocab, seed) for seed in (5, 6, 7))]
    cache = None
    for step, (ids, ours) in enumerate(zip(tokens, steps_of(model, tokens), strict=True)):
        with torch.inference_mode():
            output = twin(ids, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        assert_close(ours, output.logits, f"step {step}")


def test_decoding_with_the_cache_gives_the_logits_of_one_long_prefill(tiny_model: GPT2) -> None:
    ids = feed(1, 9, TINY.n_vocab)
    whole, _ = tiny_model.forward(ids)
    pieces = [ids[:, :4], ids[:, 4:7], ids[:, 7:8], ids[:, 8:]]
    assert_close(torch.cat(list(steps_of(tiny_model, pieces)), dim=1), whole, "pieces")


CATALOGUE = catalogue_of(WITH_VARIANTS, frozenset())
MODULES = [(row.site, alias.pattern) for row in CATALOGUE for alias in row.aliases if alias.scheme == MODULE]


@pytest.fixture(scope="module")
def hooked(tiny_model: GPT2) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The outputs of every module of transformers, and our tapped tensors, in a decode step with a cache."""
    twin = transformers_twin(tiny_model)
    first, second = feed(2, 5, TINY.n_vocab), feed(2, 1, TINY.n_vocab, 8)
    outputs: dict[str, torch.Tensor] = {}
    with torch.inference_mode():
        cache = twin(first, use_cache=True).past_key_values
        for name, module in twin.named_modules():

            def keep(_: Any, __: Any, output: Any, name: str = name) -> None:
                found = output[0] if isinstance(output, tuple) else output
                if isinstance(found, torch.Tensor):
                    outputs[name] = found

            module.register_forward_hook(keep)
        twin(second, past_key_values=cache, use_cache=True)
    ours: dict[str, torch.Tensor] = {}
    _, presents = tiny_model.forward(first)

    def tap(place: str, tensor: torch.Tensor) -> torch.Tensor:
        ours[place] = tensor
        return tensor

    tiny_model.forward(second, presents, tap)
    return outputs, ours


@pytest.mark.parametrize(("site", "pattern"), MODULES)
def test_a_module_s_name_means_the_value_that_the_module_puts_out(
    site: str, pattern: str, hooked: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]
) -> None:
    outputs, ours = hooked
    for layer in range(TINY.n_layer) if is_layered(site) else (None,):
        module = pattern.replace("{layer}", str(layer))
        # transformers looks positions up once for the whole batch
        theirs = outputs[module].expand(2, -1, -1) if site == "embed.positions" else outputs[module]
        assert_close(ours[Address(site, layer).place], theirs, module)


def test_a_checkpoint_s_key_means_the_parameter_of_that_key(tiny_model: GPT2) -> None:
    state = transformers_twin(tiny_model).state_dict()
    compared = 0
    for row in CATALOGUE:
        for alias in row.aliases:
            for layer in range(TINY.n_layer) if is_layered(row.site) else (None,):
                key = alias.pattern.replace("{layer}", str(layer))
                if alias.scheme == KEY and key in state:
                    ours = tiny_model.weights[Address(row.site, layer).place]
                    assert torch.equal(ours[0] if row.site.endswith(".w") else ours, state[key])
                    compared += 1
    assert compared == len(state) - 1, "all but lm_head.weight, which is wte again"


# --- what is tapped ---


@pytest.mark.parametrize("past", [0, 4])
def test_every_site_is_tapped_once_a_layer_in_the_order_of_the_catalogue(tiny_model: GPT2, past: int) -> None:
    expected = [
        Address(row.site, layer).place
        for inside in (("embed", None), *(("h", layer) for layer in range(TINY.n_layer)), ("output", None))
        for layer in [inside[1]]
        for row in CATALOGUE
        if row.steps.cover(past) and segment(tiny_model, row.site) == inside[0]
    ]
    tapped = places(tiny_model, past)
    assert Counter(tapped) == Counter(expected)
    assert tapped == expected


def segment(model: GPT2, site: str) -> str:
    return model.segment_of(Address(site, 0 if is_layered(site) else None)).removesuffix(".0")


def places(model: GPT2, past: int) -> list[str]:
    tapped: list[str] = []

    def tap(place: str, tensor: torch.Tensor) -> torch.Tensor:
        tapped.append(place)
        return tensor

    _, presents = model.forward(feed(1, max(past, 1), TINY.n_vocab))
    model.forward(feed(1, 1 if past else 3, TINY.n_vocab), presents if past else None, tap)
    return tapped


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(("past", "length"), [(0, 5), (0, 1), (5, 1), (3, 2)])
def test_shapes_and_dtypes_are_those_of_the_catalogue(tiny_model: GPT2, batch: int, past: int, length: int) -> None:
    sizes = {**TINY.constants, "B": batch, "T": length, "P": past, "S": past + length, "B·T": batch * length}
    presents = tiny_model.forward(feed(batch, past, TINY.n_vocab))[1] if past else None
    integers = {"tokens", "positions", "h.attn.mask.i", "h.attn.mask.j"}

    def tap(place: str, tensor: torch.Tensor) -> torch.Tensor:
        row = CATALOGUE.row(Address.parse(place).site)
        assert tuple(tensor.shape) == tuple(sizes[symbol] for symbol in row.shape), place
        expected = torch.int64 if row.site in integers else torch.float32
        assert tensor.dtype == (torch.bool if row.site == "h.attn.mask.m" else expected), place
        return tensor

    tiny_model.forward(feed(batch, length, TINY.n_vocab), presents, tap)


def test_a_forward_without_tap_gives_the_same_bits(tiny_model: GPT2) -> None:
    tokens = [feed(2, 6, TINY.n_vocab), feed(2, 1, TINY.n_vocab, 4)]
    plain = list(steps_of(tiny_model, tokens))
    tapped = list(steps_of(tiny_model, tokens, lambda _, tensor: tensor))
    assert all(torch.equal(a, b) for a, b in zip(plain, tapped, strict=True))


def test_two_entries_of_a_batch_do_not_see_each_other(tiny_model: GPT2) -> None:
    both = feed(2, 6, TINY.n_vocab)
    together, _ = tiny_model.forward(both)
    for entry in range(2):
        assert_close(together[entry : entry + 1], tiny_model.forward(both[entry : entry + 1])[0], f"{entry}")


# Only the shape of these is read, so that a change of values does not reach the reader.
SHAPE_ONLY = {("h.attn.scores", "h.attn.mask.i"), ("h.attn.scores", "h.attn.mask.j"), ("tokens", "positions")}


@pytest.mark.parametrize("site", [row.site for row in CATALOGUE])
@pytest.mark.slow
def test_a_replaced_tensor_changes_its_readers_and_nothing_that_does_not_depend_on_it(
    tiny_model: GPT2, site: str
) -> None:
    address = Address(site, 1 if is_layered(site) else None)
    first, second = feed(1, 5, TINY.n_vocab), feed(1, 2, TINY.n_vocab, 8)
    _, presents = tiny_model.forward(first)
    runs: list[dict[str, torch.Tensor]] = []
    for replaces in (False, True):
        seen: dict[str, torch.Tensor] = {}

        def tap(
            place: str, tensor: torch.Tensor, seen: dict[str, torch.Tensor] = seen, on: bool = replaces
        ) -> torch.Tensor:
            if on and place == address.place:
                tensor = other(tensor)
            seen[place] = tensor
            return tensor

        tiny_model.forward(second, presents, tap)
        runs.append(seen)
    changed = {place for place, tensor in runs[0].items() if not torch.equal(tensor, runs[1][place])}
    direct = {
        reader.place
        for reader in CATALOGUE.readers_of(Address(site, address.layer, 1), TINY.n_layer, 1)
        if (site, reader.site) not in SHAPE_ONLY
    }
    assert address.place in changed
    assert direct <= changed
    assert changed <= {address.place} | downstream(address)


def test_a_replaced_token_table_is_the_one_that_the_output_reads_too(tiny_model: GPT2) -> None:
    seen: dict[str, torch.Tensor] = {}
    replaced = other(tiny_model.weights["wte"])

    def tap(place: str, tensor: torch.Tensor) -> torch.Tensor:
        seen[place] = tensor
        return replaced if place == "wte" else tensor

    tiny_model.forward(feed(1, 4, TINY.n_vocab), tap=tap)
    assert_close(seen["logits_flat"], seen["h_flat"] @ replaced.T, "logits")


def other(tensor: torch.Tensor) -> torch.Tensor:
    """Another value of the same shape, dtype and range."""
    if tensor.dtype == torch.bool:
        return ~tensor
    if tensor.dtype == torch.int64:
        return tensor + 1
    noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(9))
    return tensor + noise.abs()


def downstream(address: Address) -> set[str]:
    found: set[str] = set()
    todo = [Address(address.site, address.layer, 1)]
    while todo:
        for reader in CATALOGUE.readers_of(todo.pop(), TINY.n_layer, 1):
            if reader.place not in found:
                found.add(reader.place)
                todo.append(reader)
    return found


# --- against the formulas, in float64 ---


def layer_norm(at: str, x: Array, w: dict[str, Array], epsilon: float, out: dict[str, Array]) -> Array:
    out[f"{at}.g"], out[f"{at}.b"] = w[f"{at}.g"], w[f"{at}.b"]
    out[f"{at}.u"] = x.sum(-1, keepdims=True) / x.shape[-1]
    out[f"{at}.s"] = ((x - out[f"{at}.u"]) ** 2).sum(-1, keepdims=True) / x.shape[-1]
    out[f"{at}.normalized"] = (x - out[f"{at}.u"]) / np.sqrt(out[f"{at}.s"] + epsilon)
    out[f"{at}.out"] = out[f"{at}.normalized"] * w[f"{at}.g"] + w[f"{at}.b"]
    return out[f"{at}.out"]


def linear(at: str, x: Array, w: dict[str, Array], out: dict[str, Array]) -> Array:
    out[f"{at}.w"], out[f"{at}.b"] = w[f"{at}.w"], w[f"{at}.b"]
    product: Array = np.einsum("...i,io->...o", x, w[f"{at}.w"][0])
    return product + w[f"{at}.b"]


def numpy_block(
    at: str, x: Array, w: dict[str, Array], config: Config, past: Array | None, out: dict[str, Array]
) -> Array:
    batch, length, width = x.shape
    c = linear(f"{at}.attn.c_attn", layer_norm(f"{at}.ln_1", x, w, config.epsilon, out), w, out)
    out[f"{at}.attn.c_attn.c"] = c
    hd = width // config.n_head
    heads = {}
    for number, name in enumerate("qkv"):
        field = c[:, :, number * width : (number + 1) * width].reshape(batch, length, config.n_head, hd)
        heads[name] = out[f"{at}.attn.{name}"] = np.moveaxis(field, 1, 2)
    out[f"{at}.attn.present"] = np.stack([heads["k"], heads["v"]], axis=1)
    if past is not None:
        out[f"{at}.past"] = past
        for number, name in enumerate("kv"):
            out[f"{at}.attn.p{name}"] = past[:, number]
            heads[name] = np.concatenate([past[:, number], heads[name]], axis=2)
            out[f"{at}.attn.{name}_all"] = heads[name]
    keys = heads["k"].shape[2]
    raw = np.einsum("bhqc,bhkc->bhqk", heads["q"], heads["k"])
    out[f"{at}.attn.scores_raw"], out[f"{at}.attn.scores"] = raw, raw / np.sqrt(hd)
    out[f"{at}.attn.mask.i"] = np.arange(length).reshape(length, 1)
    out[f"{at}.attn.mask.j"] = np.arange(keys)
    seen = np.array([[key <= query + keys - length for key in range(keys)] for query in range(length)])
    out[f"{at}.attn.mask.m"], out[f"{at}.attn.mask.b"] = seen, seen.astype(float)
    out[f"{at}.attn.mask.broadcast"] = seen.astype(float)[None, None]
    masked = out[f"{at}.attn.scores_masked"] = np.where(seen, raw / np.sqrt(hd), -1e10)
    below = out[f"{at}.attn.softmax.x"] = masked - masked.max(-1, keepdims=True)
    ex = out[f"{at}.attn.softmax.ex"] = np.exp(below)
    pattern = out[f"{at}.attn.pattern"] = ex / ex.sum(-1, keepdims=True)
    context = out[f"{at}.attn.context"] = np.einsum("bhqk,bhkc->bhqc", pattern, heads["v"])
    out[f"{at}.attn.merged"] = np.moveaxis(context, 1, 2).reshape(batch, length, width)
    out[f"{at}.attn.out"] = linear(f"{at}.attn.c_proj", out[f"{at}.attn.merged"], w, out)
    x = out[f"{at}.resid_mid"] = x + out[f"{at}.attn.out"]
    c = linear(f"{at}.mlp.c_fc", layer_norm(f"{at}.ln_2", x, w, config.epsilon, out), w, out)
    out[f"{at}.mlp.c_fc.c"] = c
    out[f"{at}.mlp.h"] = c / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (c + 0.044715 * c**3)))
    out[f"{at}.mlp.h2"] = linear(f"{at}.mlp.c_proj", out[f"{at}.mlp.h"], w, out)
    out[f"{at}.resid_post"] = x + out[f"{at}.mlp.h2"]
    return out[f"{at}.resid_post"]


def numpy_forward(model: GPT2, tokens: Array, past: list[Array] | None) -> dict[str, Array]:
    """Every site by its formula, in float64."""
    config, w = model.config, {place: tensor.double().numpy() for place, tensor in model.weights.items()}
    start = past[0].shape[3] if past else 0
    out: dict[str, Array] = {"tokens": tokens, "wte": w["wte"], "wpe": w["wpe"]}
    out["positions"] = np.stack([np.arange(start, start + tokens.shape[1])] * tokens.shape[0])
    out["embed.tokens"], out["embed.positions"] = w["wte"][tokens], w["wpe"][out["positions"]]
    x = out["embed.h"] = out["embed.tokens"] + out["embed.positions"]
    for layer in range(config.n_layer):
        x = numpy_block(f"h.{layer}", x, w, config, past[layer] if past else None, out)
    out["presents"] = np.stack([out[f"h.{layer}.attn.present"] for layer in range(config.n_layer)], axis=1)
    h = layer_norm("ln_f", x, w, config.epsilon, out)
    out["h_flat"] = h.reshape(-1, config.n_embd)
    out["logits_flat"] = np.einsum("td,vd->tv", out["h_flat"], w["wte"])
    out["logits"] = out["logits_flat"].reshape(*tokens.shape, config.n_vocab)
    return out


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_every_tensor_of_a_prefill_and_a_decode_step_follows_its_formula(config: Config) -> None:
    model = tiny_model_of(config)
    tokens = [feed(2, 5, config.n_vocab), feed(2, 1, config.n_vocab, 8)]
    past: list[torch.Tensor] | None = None
    exact: list[Array] | None = None
    for ids in tokens:
        ours: dict[str, torch.Tensor] = {}

        def tap(place: str, tensor: torch.Tensor, ours: dict[str, torch.Tensor] = ours) -> torch.Tensor:
            ours[place] = tensor
            return tensor

        _, presents = model.forward(ids, past, tap)
        theirs = numpy_forward(model, ids.numpy(), exact)
        assert ours.keys() == theirs.keys()
        for place, tensor in ours.items():
            visible = np.isfinite(theirs[place]) & (theirs[place] > -1e9)
            assert_close(tensor[torch.from_numpy(visible)], torch.from_numpy(theirs[place][visible].copy()), place)
            hidden = tensor[torch.from_numpy(~visible)]
            assert torch.all(hidden < -9.9e9), place
        past = grown(past, presents)
        exact = [theirs[f"h.{layer}.attn.present"] for layer in range(config.n_layer)]


def test_a_pattern_s_rows_sum_to_one_and_later_keys_get_exactly_nothing(tiny_model: GPT2) -> None:
    tensors = tapped_run(tiny_model).tensors
    for place, tensor in tensors.items():
        if place.split("@")[0].endswith(".pattern"):
            torch.testing.assert_close(tensor.sum(-1), torch.ones(tensor.shape[:-1]))
            seen = tensors[place.replace("pattern", "mask.m")]
            assert torch.all(tensor[..., ~seen] == 0), place
            assert torch.all(tensor[..., seen] > 0), place


# --- other dtypes ---


def test_bfloat16_runs_and_stays_near_the_float32_run() -> None:
    ids = feed(1, 6, TINY.n_vocab)
    exact, _ = tiny_model_of().forward(ids)
    model = tiny_model_of(dtype="bfloat16")
    floats: set[torch.dtype] = set()

    def tap(place: str, tensor: torch.Tensor) -> torch.Tensor:
        if CATALOGUE.row(Address.parse(place).site).kind is not Kind.INPUT and tensor.is_floating_point():
            floats.add(tensor.dtype)
        assert torch.isfinite(tensor).all(), place
        return tensor

    rough, _ = model.forward(ids, tap=tap)
    assert floats == {torch.bfloat16}
    assert float((rough.float() - exact).abs().max()) < 0.05 * float(exact.abs().max())


@pytest.mark.parametrize("length", [1, 2, 9, 24])
def test_working_in_place_gives_the_bits_of_the_tapped_run(tiny_model: GPT2, length: int) -> None:
    tokens = torch.arange(length).unsqueeze(0) * 3 % 97
    kept: dict[str, torch.Tensor] = {}

    def tap(place: str, tensor: torch.Tensor) -> torch.Tensor:
        kept[place] = tensor
        return tensor

    plain, presents = tiny_model.forward(tokens)
    tapped, others = tiny_model.forward(tokens, None, tap)
    assert torch.equal(plain, tapped)
    assert all(torch.equal(one, other) for one, other in zip(presents, others, strict=True))
    assert len({tensor.data_ptr() for tensor in (kept["h.0.attn.scores_raw"], kept["h.0.attn.scores"])}) == 2
    if length < 24:
        after, _ = tiny_model.forward(tokens[:, :1], presents)
        after_tapped, _ = tiny_model.forward(tokens[:, :1], others, tap)
        assert torch.equal(after, after_tapped)


def test_a_residual_stream_that_is_kept_is_never_overwritten(tiny_model: GPT2) -> None:
    step = {"tokens": torch.tensor([[5, 9, 11]])}
    for segment in tiny_model.segments:
        before = {place: tensor.clone() for place, tensor in step.items()}
        handed_on = tiny_model.run(segment, step, [])
        assert all(torch.equal(step[place], tensor) for place, tensor in before.items()), segment
        step |= handed_on


def test_exponentials_are_torch_s_bit_for_bit_at_both_ends() -> None:
    x = torch.cat(
        (torch.linspace(-110, -80, 30_001), torch.linspace(-80, 3, 10_001), torch.tensor([-1e10, -math.inf]))
    )
    visible = (x > -120).float()
    expected = torch.exp(x)
    assert 0 < int((expected == 0).sum()) < 10_000
    for arithmetic in (FRESH, IN_PLACE):
        found = arithmetic.exp(x.clamp_min(-1e10).clone(), visible)
        assert torch.equal(found, expected)
    assert FRESH.exp(torch.tensor([math.nan, math.inf]), visible).isnan().tolist() == [True, False]
