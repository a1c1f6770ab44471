"""The two cited files as witnesses, on a tiny GPT-2 with random weights, prefill and one decode step."""

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import cast

import numpy
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.models.gpt2 import modeling_gpt2

from provenance.errors import InvalidInput, UnsupportedCheckpoint
from provenance.witness.execute import installed, load
from provenance.witness.tensorflow_standin import CODE_FILENAME, HParams, TensorFlow, unwrap, wrap
from provenance.witness.tracer import Observation, watch

LAYERS, HEADS, WIDTH, VOCABULARY, CONTEXT, TOKENS = 2, 4, 32, 97, 32, 9
SIZES = {
    "n_vocab": VOCABULARY, "n_ctx": CONTEXT, "n_embd": WIDTH, "n_head": HEADS, "n_layer": LAYERS,
}  # fmt: skip
NAME = "openai/gpt-2/src/model.py"
BLOCK = (("model", 164),)

Place = tuple[str, int, str, str]


@dataclass(frozen=True)
class Witnessed:
    """One run: what was seen, and the logits."""

    seen: list[Observation]
    logits: torch.Tensor

    def at(self, function: str, line: int, kind: str, expression: str) -> list[torch.Tensor]:
        place = (function, line, kind, expression)
        return [o.value for o in self.seen if (o.function, o.line, o.kind, o.expression) == place]

    def places(self) -> set[Place]:
        return {(o.function, o.line, o.kind, o.expression) for o in self.seen}

    def shapes(self, function: str, line: int, expression: str, kind: str = "assign") -> list[list[int]]:
        return [list(value.size()) for value in self.at(function, line, kind, expression)]


@pytest.fixture(scope="module")
def reference() -> GPT2LMHeadModel:
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=CONTEXT, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    config._attn_implementation = "eager"
    model: GPT2LMHeadModel = GPT2LMHeadModel(config)  # type: ignore[no-untyped-call]
    model.train(False)
    generator = torch.Generator().manual_seed(20)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model


@pytest.fixture(scope="module")
def tokens() -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (1, TOKENS + 1), generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def source() -> bytes:
    path = distribution("gpt-2-simple").locate_file("gpt_2_simple/src/model.py")
    content = Path(str(path)).read_bytes()
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    assert blob == "230b83cc2ac7582b4a22e9db3c2d8916dfe2ea9a"
    return content


def openai_weights(model: GPT2LMHeadModel) -> dict[str, torch.Tensor]:
    """The reference's weights under the names and in the shapes of OpenAI's checkpoint."""
    weights: dict[str, torch.Tensor] = {}
    for name, value in model.transformer.named_parameters():
        *path, kind = name.split(".")
        tensor: torch.Tensor = value
        norm = path[-1].startswith("ln_")
        path = [f"h{path[1]}", *path[2:]] if path[0] == "h" else path
        if path in (["wte"], ["wpe"]):
            weights[f"model/{path[0]}"] = tensor
        elif kind == "bias":
            weights["/".join(["model", *path, "b"])] = tensor
        else:
            weights["/".join(["model", *path, "g" if norm else "w"])] = tensor if norm else tensor[None]
    return weights


def run_openai(
    source: bytes, weights: Mapping[str, torch.Tensor], tokens: torch.Tensor, past: torch.Tensor | None = None
) -> Witnessed:
    tensorflow = TensorFlow(weights)
    namespace = load(source, NAME, {"numpy": numpy, "tensorflow": tensorflow})
    model = cast("Callable[..., dict[str, torch.Tensor]]", namespace["model"])
    seen: list[Observation] = []
    with torch.no_grad():
        results = watch(
            lambda: model(HParams(**SIZES), wrap(tokens), past=None if past is None else wrap(past)),
            NAME,
            source,
            seen.append,
            calls={CODE_FILENAME},
        )
    return Witnessed(seen, unwrap(results["logits"]))


@pytest.fixture(scope="module")
def prefill(source: bytes, reference: GPT2LMHeadModel, tokens: torch.Tensor) -> Witnessed:
    return run_openai(source, openai_weights(reference), tokens[:, :TOKENS])


@pytest.fixture(scope="module")
def decode(source: bytes, reference: GPT2LMHeadModel, tokens: torch.Tensor, prefill: Witnessed) -> Witnessed:
    (past,) = prefill.at("model", 166, "assign", "results['present']")
    return run_openai(source, openai_weights(reference), tokens[:, TOKENS:], past)


@pytest.fixture(scope="module")
def transformers(reference: GPT2LMHeadModel, tokens: torch.Tensor) -> tuple[Witnessed, Witnessed]:
    """Prefill and decode by the installed modeling file."""
    filename, code = installed(modeling_gpt2)
    steps = []
    cache = None
    for part in (tokens[:, :TOKENS], tokens[:, TOKENS:]):
        seen: list[Observation] = []
        with torch.no_grad():
            ask = lambda ids=part, past=cache: reference(ids, past_key_values=past, use_cache=True)  # noqa: E731
            output = watch(ask, filename, code, seen.append)
        cache = output.past_key_values
        steps.append(Witnessed(seen, output.logits))
    return steps[0], steps[1]


def assert_close(ours: torch.Tensor, reference: torch.Tensor) -> None:
    """Design's tolerance for fp32 on a CPU."""
    assert ours.size() == reference.size()
    largest = max(1.0, reference.abs().max().item())
    assert (ours - reference).abs().max().item() <= 5e-5 * largest


def assert_all_close(ours: list[torch.Tensor], reference: list[torch.Tensor]) -> None:
    assert len(ours) == len(reference) == LAYERS
    for one, other in zip(ours, reference, strict=True):
        assert_close(one, other)


def test_openais_file_gives_the_logits_of_transformers(
    reference: GPT2LMHeadModel, tokens: torch.Tensor, prefill: Witnessed, decode: Witnessed
) -> None:
    with torch.no_grad():
        logits = reference(tokens).logits
    assert logits.abs().max() > 1  # far from the tolerance's floor
    assert_close(prefill.logits, logits[:, :TOKENS])
    assert_close(decode.logits, logits[:, TOKENS:])


def test_prefill_reports_what_the_attention_names(prefill: Witnessed) -> None:
    heads = [[1, HEADS, TOKENS, WIDTH // HEADS]] * LAYERS
    scores = [[1, HEADS, TOKENS, TOKENS]] * LAYERS
    for name in "qkv":
        assert prefill.shapes("attn", 103, name) == heads
    for line in (93, 94, 96, 97):
        assert prefill.shapes("attn.<locals>.multihead_attn", line, "w") == scores
    raw, scaled, masked, pattern = (
        prefill.at("attn.<locals>.multihead_attn", line, "assign", "w")[0] for line in (93, 94, 96, 97)
    )
    torch.testing.assert_close(scaled, raw / (WIDTH / HEADS) ** 0.5)
    visible = torch.ones(TOKENS, TOKENS).tril().bool()
    assert torch.equal(masked[..., visible], scaled[..., visible])
    assert (masked[..., ~visible] == -1e10).all()
    torch.testing.assert_close(pattern, torch.softmax(masked, -1))
    assert prefill.shapes("attn", 102, "c") == [[1, TOKENS, 3 * WIDTH]] * LAYERS
    assert prefill.shapes("attn", 104, "present") == [[1, 2, HEADS, TOKENS, WIDTH // HEADS]] * LAYERS
    assert prefill.shapes("attn.<locals>.multihead_attn", 98, "a") == heads
    assert prefill.shapes("attn", 109, "a") == heads
    assert prefill.shapes("attn", 111, "a") == [[1, TOKENS, WIDTH]] * LAYERS


def test_prefill_reports_both_values_that_layernorm_calls_x(prefill: Witnessed) -> None:
    # Two in each block and the last one, in the order of execution.
    before, after = prefill.at("norm", 36, "assign", "x"), prefill.at("norm", 37, "assign", "x")
    gains, biases = prefill.at("norm", 32, "assign", "g"), prefill.at("norm", 33, "assign", "b")
    assert len(before) == len(after) == len(gains) == 2 * LAYERS + 1
    for x, affine, gain, bias in zip(before, after, gains, biases, strict=True):
        assert not torch.equal(x, affine)
        assert torch.equal(x * gain + bias, affine)
    assert [o.stack for o in prefill.seen if (o.function, o.line, o.kind) == ("norm", 36, "assign")] == [
        *((*BLOCK, ("block", 126)), (*BLOCK, ("block", 128))) * LAYERS,
        (("model", 167),),
    ]


def test_prefill_reports_arguments_without_a_variable_by_their_expression(prefill: Witnessed) -> None:
    for line, expression in ((126, "norm(x, 'ln_1')"), (128, "norm(x, 'ln_2')")):
        assert prefill.shapes("block", line, expression, "argument") == [[1, TOKENS, WIDTH]] * LAYERS
    wide = [[1, TOKENS, 4 * WIDTH]] * LAYERS
    assert prefill.shapes("mlp", 118, "conv1d(x, 'c_fc', n_state)", "argument") == wide
    assert prefill.shapes("mlp", 118, "h") == wide
    inner = prefill.at("mlp", 118, "argument", "conv1d(x, 'c_fc', n_state)")[0]
    outer = prefill.at("mlp", 118, "assign", "h")[0]
    torch.testing.assert_close(torch.nn.functional.gelu(inner, approximate="tanh"), outer)


def test_prefill_reports_the_two_gathers_by_their_calls(
    prefill: Witnessed, reference: GPT2LMHeadModel, tokens: torch.Tensor
) -> None:
    (token_rows,) = prefill.at("model", 157, "call", "tf.gather(wte, X)")
    (position_rows,) = prefill.at("model", 157, "call", "tf.gather(wpe, positions_for(X, past_length))")
    (total,) = prefill.at("model", 157, "assign", "h")
    assert torch.equal(token_rows, reference.transformer.wte.weight[tokens[:, :TOKENS]])
    assert torch.equal(position_rows, reference.transformer.wpe.weight[None, :TOKENS])
    assert torch.equal(token_rows + position_rows, total)


def test_prefill_reports_the_ends_of_the_model(prefill: Witnessed) -> None:
    assert prefill.shapes("model", 166, "results['present']") == [[1, LAYERS, 2, HEADS, TOKENS, WIDTH // HEADS]]
    assert prefill.shapes("model", 170, "h_flat") == [[TOKENS, WIDTH]]
    assert prefill.shapes("model", 171, "logits") == [[TOKENS, VOCABULARY]]
    assert prefill.shapes("model", 172, "logits") == [[1, TOKENS, VOCABULARY]]
    assert torch.equal(prefill.at("model", 172, "assign", "logits")[0], prefill.logits)
    # A `return` inside `with` reports its own line; bound again to the same object is seen too.
    returns = {(o.function, o.line) for o in prefill.seen if o.kind == "return"}
    assert {("norm", 38), ("conv1d", 56), ("attn", 112), ("mlp", 120), ("block", 130)} <= returns
    assert prefill.shapes("expand_tile", 137, "value") == [[TOKENS]]


def test_decode_reports_the_cache_and_what_grew(prefill: Witnessed, decode: Witnessed) -> None:
    extra = {(place[1], place[3]) for place in decode.places() - prefill.places() if place[2] == "assign"}
    assert extra == {(106, "pk"), (106, "pv"), (107, "k"), (108, "v"), (163, "past")}
    one, grown = [1, HEADS, 1, WIDTH // HEADS], [1, HEADS, TOKENS + 1, WIDTH // HEADS]
    assert decode.shapes("attn", 103, "k") == [one] * LAYERS
    for line, name in ((107, "k"), (108, "v")):
        assert decode.shapes("attn", line, name) == [grown] * LAYERS
    for name, cached in (("pk", "k"), ("pv", "v")):
        for now, before in zip(
            decode.at("attn", 106, "assign", name), prefill.at("attn", 103, "assign", cached), strict=True
        ):
            assert torch.equal(now, before)
    assert torch.equal(
        decode.at("attn", 107, "assign", "k")[1],
        torch.cat([decode.at("attn", 106, "assign", "pk")[1], decode.at("attn", 103, "assign", "k")[1]], -2),
    )


def test_a_second_run_reports_the_same_in_the_same_order(
    source: bytes, reference: GPT2LMHeadModel, tokens: torch.Tensor, prefill: Witnessed
) -> None:
    before = set(sys.modules)
    again = run_openai(source, openai_weights(reference), tokens[:, :TOKENS])
    assert not [name for name in set(sys.modules) - before if name.startswith(("tensorflow", "openai"))]
    assert len(again.seen) == len(prefill.seen)
    for one, other in zip(again.seen, prefill.seen, strict=True):
        assert (one.function, one.line, one.kind, one.expression) == (
            other.function, other.line, other.kind, other.expression,
        )  # fmt: skip
        assert (one.stack, one.occurrence) == (other.stack, other.occurrence)
        assert type(one.value) is torch.Tensor
        assert torch.equal(one.value, other.value)


def test_the_installed_transformers_file_reports_its_own_lines(
    transformers: tuple[Witnessed, Witnessed], prefill: Witnessed, decode: Witnessed
) -> None:
    for step, openai, length, known in zip(
        transformers, (prefill, decode), (TOKENS, 1), (TOKENS, TOKENS + 1), strict=True
    ):
        scores, stream = [[1, HEADS, length, known]] * LAYERS, [[1, length, WIDTH]] * LAYERS
        for line in (58, 61, 63, 66, 67):
            assert step.shapes("eager_attention_forward", line, "attn_weights") == scores
        for line, name in ((191, "query_states"), (187, "key_states"), (188, "value_states")):
            assert step.shapes("GPT2Attention.forward", line, name) == [[1, HEADS, length, WIDTH // HEADS]] * LAYERS
        assert step.shapes("GPT2Attention.forward", 196, "key_states") == [[1, HEADS, known, WIDTH // HEADS]] * LAYERS
        assert step.shapes("GPT2MLP.forward", 240, "hidden_states") == [[1, length, 4 * WIDTH]] * LAYERS
        for line, cited in ((282, ("block", 127, "assign", "x")), (307, ("block", 129, "assign", "x"))):
            assert step.shapes("GPT2Block.forward", line, "hidden_states") == stream
            assert_all_close(step.at("GPT2Block.forward", line, "assign", "hidden_states"), openai.at(*cited))
        assert_all_close(
            step.at("GPT2MLP.forward", 240, "assign", "hidden_states"), openai.at("mlp", 118, "assign", "h")
        )
        assert_all_close(
            step.at("eager_attention_forward", 63, "assign", "attn_weights"),
            openai.at("attn.<locals>.multihead_attn", 97, "assign", "w"),
        )


def test_transformers_reports_every_line_of_the_forward_path(
    transformers: tuple[Witnessed, Witnessed],
) -> None:
    lines = {
        "GPT2Model.forward": {549, 569, 573, 574, 576, 577, 583, 604, 609, 620, 622},
        "GPT2Block.forward": {272, 273, 274, 282, 303, 304, 305, 307},
        "GPT2Attention.forward": {185, 187, 188, 191, 196, 211, 222, 223, 224},
        "eager_attention_forward": {58, 61, 63, 66, 67, 69, 70},
        "GPT2MLP.forward": {239, 240, 241, 242},
        "GPT2LMHeadModel.forward": {695, 698},
    }
    for step in transformers:
        seen: dict[str, set[int]] = {}
        for o in step.seen:
            if o.kind == "assign":
                seen.setdefault(o.function, set()).add(o.line)
        assert seen == lines
    block = next(o for o in transformers[0].seen if o.function == "eager_attention_forward")
    assert [function for function, _ in block.stack] == [
        "GPT2LMHeadModel.forward", "GPT2Model.forward", "GPT2Block.forward", "GPT2Attention.forward",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda w: w.pop("model/h1/attn/c_attn/w"), "model/h1/attn/c_attn/w"),
        (lambda w: w.update({"model/h0/mlp/c_fc/b": torch.zeros(3)}), r"model/h0/mlp/c_fc/b.*\[3\].*\[128\]"),
    ],
)
def test_a_missing_or_misshapen_weight_is_named(
    source: bytes,
    reference: GPT2LMHeadModel,
    tokens: torch.Tensor,
    change: Callable[[dict[str, torch.Tensor]], None],
    problem: str,
) -> None:
    weights = openai_weights(reference)
    change(weights)
    with pytest.raises(UnsupportedCheckpoint, match=problem):
        run_openai(source, weights, tokens)


def test_hyperparameters_are_set_by_name_only_if_the_code_has_them(source: bytes) -> None:
    namespace = load(source, NAME, {"numpy": numpy, "tensorflow": TensorFlow({})})
    hparams = cast("Callable[[], HParams]", namespace["default_hparams"])()
    assert hparams.override_from_dict({"n_layer": 24}).n_layer == 24
    assert hparams.n_embd == 768
    with pytest.raises(InvalidInput, match="n_layers"):
        hparams.override_from_dict({"n_layers": 24})
