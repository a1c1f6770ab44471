"""The textbook transformer: against PyTorch's own modules, against its equations, and recorded and replayed."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from provenance.catalogue import Intermediate, Kind
from provenance.digest import digest
from provenance.edits import parse_edit
from provenance.errors import AmbiguousName, InvalidInput, UnknownModel
from provenance.families import FAMILIES
from provenance.lookup import find
from provenance.model import ModelInfo
from provenance.names import Address
from provenance.order import computation_order
from provenance.parity import Origin, parity
from provenance.prompt import Drawn, Prompt, Token
from provenance.recorder import Replayer, plan, record, replay
from provenance.store import TraceStore
from provenance.textbook.config import Config, named
from provenance.textbook.equations import EQUATIONS
from provenance.textbook.model import Textbook
from provenance.textbook.shelf import Textbooks
from provenance.textbook.weights import shapes, untrained
from provenance.trace import Trace

NUMBERS = (0, 5, 2, 5, 411, 1)
BATCH, THREADS = 3, 1
SHELF = Textbooks()

KINDS = [
    Config(n_layer=2, n_head=4, n_embd=32, norm=norm, causal=causal, positions=positions)  # type: ignore[arg-type]
    for norm in ("post", "pre")
    for causal in (False, True)
    for positions in ("sinusoidal", "learned", "none")
]
SCORED = [
    Config(n_layer=2, n_head=1, n_embd=16, temperature=0.25),
    Config(n_layer=1, n_head=2, n_embd=24, norm="pre", causal=True, scaled=False),
    Config(n_layer=1, n_head=2, n_embd=24, temperature=3.0, scaled=False),
]
every_kind = pytest.mark.parametrize("config", KINDS, ids=lambda config: config.name)
every_model = pytest.mark.parametrize("config", [*KINDS, *SCORED], ids=lambda config: config.name)


def shaken(config: Config, seed: int = 1) -> Textbook:
    """A model whose gains and biases are random too, and whose attention is far from uniform."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for place, shape in shapes(config).items():
        drawn = torch.randn(shape, generator=generator)
        weights[place] = 1 + 0.2 * drawn if place.endswith(".g") else 0.25 * drawn
    info = ModelInfo(config.name, "textbook", config.as_json(), digest(weights), "a test", False, "float32")
    return Textbook(config, weights, info)


def given_vectors(model: Textbook, numbers: tuple[int, ...] = NUMBERS, batch: int = BATCH) -> Tensor:
    return model.begin(torch.tensor([numbers]), Drawn(batch, 7))["x"]


def tapped(model: Textbook, x: Tensor) -> dict[str, Tensor]:
    """Every tensor of one pass, by place."""
    tensors: dict[str, Tensor] = {}

    def tap(place: str, tensor: Tensor) -> Tensor:
        tensors[place] = tensor
        return tensor

    tensors["result"] = model.forward(x, tap)
    return tensors


def recorded(model: Textbook, directory: Path, *edits: str) -> Trace:
    """A trace of the model, written to a store and read back."""
    prompt = Prompt(None, tuple(Token(number, b"") for number in NUMBERS))
    changes = [parse_edit(model.catalogue, model.layers, 0, text, lambda id: id) for text in edits]
    recipe = plan(model, prompt, threads=THREADS, edits=changes, drawn=Drawn(BATCH, 7))
    chosen, tensors = record(model, recipe)
    assert chosen == ()
    return TraceStore(directory).save(recipe, (), tensors)


# --- against PyTorch's own modules ---


class Block(nn.Module):
    """A transformer block of PyTorch's own parts, with its norms after the sums or before the branches."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.n_embd
        self.before, self.causal = config.norm == "pre", config.causal
        self.attn = nn.MultiheadAttention(width, config.n_head, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The block's output, and the attention's weights (B, H, T, S)."""
        later = torch.ones(x.shape[1], x.shape[1]).triu(1).bool() if self.causal else None
        read = self.norm1(x) if self.before else x
        a, weights = self.attn(read, read, read, attn_mask=later, average_attn_weights=False)
        if self.before:
            x = x + a
            return x + self.mlp(self.norm2(x)), weights
        x = self.norm1(x + a)
        return self.norm2(x + self.mlp(x)), weights


PYTORCH = {
    "norm1.g": "norm1.weight", "norm1.b": "norm1.bias", "norm2.g": "norm2.weight", "norm2.b": "norm2.bias",
    "attn.in_proj.w": "attn.in_proj_weight", "attn.in_proj.b": "attn.in_proj_bias",
    "attn.out_proj.w": "attn.out_proj.weight", "attn.out_proj.b": "attn.out_proj.bias",
    "mlp.fc.w": "mlp.0.weight", "mlp.fc.b": "mlp.0.bias", "mlp.proj.w": "mlp.2.weight", "mlp.proj.b": "mlp.2.bias",
}  # fmt: skip


@every_kind
@torch.no_grad()
def test_it_agrees_with_pytorch_s_own_modules(config: Config) -> None:
    model = shaken(config)
    x = given_vectors(model)
    ours = tapped(model, x)
    if config.positions == "sinusoidal":
        x = x + listing(config.n_embd)[: x.shape[1]]
    elif config.positions == "learned":
        x = x + model.weights["pe.learned"][: x.shape[1]]
    for layer in range(config.n_layer):
        block = Block(config)
        block.load_state_dict({key: model.weights[f"h.{layer}.{place}"] for place, key in PYTORCH.items()})
        x, weights = block(x)
        torch.testing.assert_close(ours[f"h.{layer}.attn.weight"], weights, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(ours[Address(config.stream_out, layer).place], x, atol=1e-5, rtol=1e-5)
    if config.norm == "pre":
        x = nn.functional.layer_norm(x, (config.n_embd,), model.weights["norm_f.g"], model.weights["norm_f.b"])
    torch.testing.assert_close(ours["result"], x, atol=1e-5, rtol=1e-5)


def listing(width: int, length: int = 512) -> Tensor:
    """The sinusoidal table, one number at a time."""
    rows = []
    for position in range(length):
        angles = [position / 10_000 ** (2 * (channel // 2) / width) for channel in range(width)]
        rows.append([math.cos(a) if channel % 2 else math.sin(a) for channel, a in enumerate(angles)])
    return torch.tensor(rows)


def test_sinusoidal_positions_worked_out_by_hand() -> None:
    pe = tapped(shaken(Config(n_layer=1, n_head=1, n_embd=8)), torch.zeros(1, 2, 8))["pe"]
    assert pe[0].tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
    # frequencies 1, 0.1, 0.01 and 0.001: angles 3, 0.3, 0.03 and 0.003
    by_hand = [0.141120, -0.989992, 0.295520, 0.955336, 0.029996, 0.999550, 0.003000, 0.999996]
    torch.testing.assert_close(pe[3], torch.tensor(by_hand), atol=1e-6, rtol=0)
    torch.testing.assert_close(pe, listing(8), atol=5e-5, rtol=0)


def test_without_a_mask_and_positions_a_shuffled_input_gives_a_shuffled_result() -> None:
    model, order = shaken(KINDS[2]), [3, 0, 5, 1, 4, 2]
    x = given_vectors(model)
    torch.testing.assert_close(model.forward(x[:, order]), model.forward(x)[:, order], atol=1e-5, rtol=1e-5)
    placed = shaken(KINDS[0])
    assert (placed.forward(x[:, order]) - placed.forward(x)[:, order]).abs().max() > 0.1


def test_a_causal_model_does_not_see_a_later_vector_and_another_does() -> None:
    for config in KINDS[:6]:
        model = shaken(config)
        one = model.forward(given_vectors(model))
        other = model.forward(given_vectors(model, (*NUMBERS[:4], 9, 9)))
        assert torch.equal(one[:, :4], other[:, :4]) is config.causal
        assert not torch.equal(one[:, 4:], other[:, 4:])


# --- the equations ---


@every_model
def test_every_computed_tensor_is_what_its_equation_says(config: Config) -> None:
    model, family = shaken(config), FAMILIES["textbook"]
    tensors = tapped(model, given_vectors(model))
    for address in computation_order(model.catalogue, model.layers, 0):
        inputs: dict[str, tuple[np.ndarray, ...]] = {}
        for source in model.catalogue.inputs_of(address, model.layers):
            inputs[source.site] = (*inputs.get(source.site, ()), tensors[source.place].double().numpy())
        expected = family.equation(model, address.site, inputs)
        computed = model.catalogue.row(address.site).kind is Kind.TENSOR
        assert (expected is not None) is computed, str(address)
        if expected is not None:
            visible = tensors[address.place.replace("score_masked", "mask")] if "masked" in address.site else None
            found = parity(address, tensors[address.place], torch.from_numpy(expected), visible, Origin("equation"))
            assert found.holds, f"{address}: {found.largest_difference} {found.note}"


def test_every_equation_is_of_a_row_that_is_computed() -> None:
    computed = {row.site for row in FAMILIES["textbook"].catalogue if row.kind is Kind.TENSOR}
    assert EQUATIONS.keys() == computed


def test_masked_scores_are_minus_infinity_and_their_weights_zero() -> None:
    model = shaken(Config(n_layer=1, n_head=2, n_embd=16, causal=True))
    tensors = tapped(model, given_vectors(model))
    hidden = ~torch.tensor([[key <= query for key in range(6)] for query in range(6)])
    assert (tensors["h.0.attn.score_masked"][..., hidden] == -math.inf).all()
    assert (tensors["h.0.attn.weight"][..., hidden] == 0).all()
    torch.testing.assert_close(tensors["h.0.attn.weight"].sum(-1), torch.ones(BATCH, 2, 6))


# --- recording ---


@every_model
def test_every_tensor_is_given_back_bit_for_bit_and_in_its_row_s_shape(config: Config, tmp_path: Path) -> None:
    model = shaken(config)
    torch.set_num_threads(THREADS)
    tensors = tapped(model, given_vectors(model))
    trace, replayer = recorded(model, tmp_path), Replayer()
    sizes = {**config.constants, "B": BATCH, "T": len(NUMBERS), "S": len(NUMBERS)}
    places = computation_order(model.catalogue, model.layers, 0)
    assert {address.place for address in places} == tensors.keys() - {"result"}
    for address in places:
        found, row = replayer.tensor(model, trace, address), model.catalogue.row(address.site)
        assert torch.equal(found, tensors[address.place]), str(address)
        assert tuple(found.shape) == tuple(sizes[axis] for axis in row.shape), str(address)
        assert row.discrete is (not found.is_floating_point()), str(address)
    assert all(replay(model, trace, segment, 0).check.bit_for_bit for segment in model.segments)


def test_a_trace_keeps_the_input_and_the_stream_between_the_segments(tmp_path: Path) -> None:
    kept = {
        "textbook-l2": {"x", "embed.h", "h.0.post.norm2.out", "h.1.post.norm2.out"},
        "textbook-nopos-l2": {"x", "h.0.post.norm2.out", "h.1.post.norm2.out"},
        "textbook-pre-l2": {"x", "embed.h", "h.0.resid_post", "h.1.resid_post", "norm_f.out"},
    }
    for name, places in kept.items():
        model = SHELF.load(name)
        trace = recorded(model, tmp_path)
        assert set(trace.kept(0)) == places
        assert places - set(model.residuals) <= {"x", "norm_f.out"}
        assert trace.generated == ()


def test_a_changed_run_is_given_back_bit_for_bit(tmp_path: Path) -> None:
    model = shaken(KINDS[0])
    plain, changed = recorded(model, tmp_path), recorded(model, tmp_path, "h.0.attn.weight[head=1] = 0", "pe *= 2")
    assert plain.id != changed.id
    assert all(replay(model, changed, segment, 0).check.bit_for_bit for segment in model.segments)
    context = Replayer().tensor(model, changed, Address("h.attn.context", 0))
    assert (context[:, 1] == 0).all() and (context[:, 0] != 0).any()


def test_what_the_model_is_given_cannot_be_changed_on_its_way() -> None:
    model = shaken(KINDS[0])
    with pytest.raises(InvalidInput, match="x is what the model is given") as refused:
        parse_edit(model.catalogue, model.layers, 0, "x[batch=0] *= 2", str)
    assert refused.value.hint == "Record another input, or change what is computed from it."


def test_a_model_that_predicts_nothing_says_so() -> None:
    model = SHELF.load("textbook-pre")
    assert not model.predicts
    for asked in (lambda: model.unembed(torch.zeros(64)), lambda: model.readout(0, 0, lambda place: torch.zeros(1))):
        with pytest.raises(InvalidInput, match="'textbook-pre' has no logits"):
            asked()


# --- the seeded numbers ---


def test_a_position_s_vector_is_its_number_s_whatever_the_batch_and_the_place() -> None:
    model = SHELF.load("textbook")
    one = given_vectors(model, (4, 9, 4), batch=1)
    many = given_vectors(model, (9, 4), batch=5)
    assert (one.shape, many.shape) == ((1, 3, 64), (5, 2, 64))
    assert torch.equal(one[:, 0], one[:, 2])
    assert torch.equal(one[0, [1, 0]], many[0])
    assert len({tuple(row.tolist()) for row in many.flatten(0, 1)}) == 10
    other = model.begin(torch.tensor([[9, 4]]), Drawn(5, 8))["x"]
    assert not torch.equal(many, other)


def test_vectors_are_normal_with_mean_0_and_deviation_1() -> None:
    x = given_vectors(SHELF.load("textbook"), tuple(range(512)), batch=2).double()  # 65,536 values
    assert float(x.mean()) == pytest.approx(0, abs=0.02)
    assert float(x.std()) == pytest.approx(1, abs=0.02)
    assert float((x.abs() < 1).double().mean()) == pytest.approx(0.6827, abs=0.01)


def test_a_run_without_a_seed_for_its_vectors_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'textbook' reads vectors that are drawn from a seed"):
        SHELF.load("textbook").begin(torch.tensor([[0]]), None)


def test_weights_are_spread_as_pytorch_s_modules_spread_theirs() -> None:
    torch.manual_seed(0)
    config = Config(n_layer=1, norm="pre", positions="learned")
    ours, theirs = untrained(config), Block(config).state_dict()
    for place, key in PYTORCH.items():
        mine, other = ours[f"h.0.{place}"], theirs[key]
        assert mine.shape == other.shape
        assert float(mine.abs().max()) == pytest.approx(float(other.abs().max()), rel=0.05), place
        assert float(mine.std()) == pytest.approx(float(other.std()), rel=0.2, abs=1e-9), place
    assert float(ours["pe.learned"].std()) == pytest.approx(0.02, rel=0.02)


def test_models_that_differ_in_one_option_share_the_weights_that_both_have() -> None:
    usual = untrained(Config())
    for config in (Config(norm="pre"), Config(positions="learned"), Config(causal=True), Config(n_layer=2)):
        other = untrained(config)
        shared = usual.keys() & other.keys()
        assert len(shared) == config.n_layer * len(PYTORCH)
        assert all(torch.equal(usual[place], other[place]) for place in shared)
    assert not torch.equal(usual["h.0.mlp.fc.w"], usual["h.1.mlp.fc.w"])
    assert digest(usual) == digest(untrained(Config(causal=True))) != digest(untrained(Config(), seed=1))


# --- options and names ---

configs = st.builds(
    lambda heads, width, **rest: Config(n_head=heads, n_embd=2 * heads * width, **rest),
    st.integers(1, 16),
    st.integers(4, 8),
    n_layer=st.integers(1, 12),
    norm=st.sampled_from(["post", "pre"]),
    causal=st.booleans(),
    positions=st.sampled_from(["sinusoidal", "learned", "none"]),
    temperature=st.floats(0.001, 100) | st.just(1.0),
    scaled=st.booleans(),
)


@given(configs)
def test_a_name_gives_back_its_options(config: Config) -> None:
    assert named(config.name) == config
    assert SHELF.knows(config.name)
    assert Config.from_json(config.as_json()) == config


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (Config(), "textbook"),
        (Config(norm="pre", causal=True), "textbook-pre-causal"),
        (Config(positions="none", n_embd=32, n_head=4, n_layer=2), "textbook-nopos-d32-h4-l2"),
        (Config(positions="learned", scaled=False, temperature=0.5), "textbook-learned-unscaled-t0.5"),
        (Config(temperature=100), "textbook-t100"),
    ],
)
def test_a_name_says_what_differs_from_the_lesson_s_listing(config: Config, name: str) -> None:
    assert config.name == name


@pytest.mark.parametrize(
    "name",
    [
        "", "gpt2", "textbook-", "textbook-post", "textbook-causal-pre", "textbook-pre-pre", "textbook-d64",
        "textbook-d032", "textbook-d1_6", "textbook-d٣٢", "textbook-d", "textbook-t0.50", "textbook-t1e1",
        "textbook-tnan", "textbook-l0", "textbook-l13", "textbook-d30", "textbook-learned-nopos", "Textbook",
    ],
)  # fmt: skip
def test_a_name_that_no_options_print_is_unknown(name: str) -> None:
    assert SHELF.knows(name) is name.startswith("textbook")
    for ask in (SHELF.load, SHELF.inspect, SHELF.tokenizer):
        with pytest.raises(UnknownModel, match="There is no model"):
            ask(name)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"n_layer": 0}, "n_layer must be a whole number from 1 to 12, not 0"),
        ({"n_layer": 13}, "n_layer must"),
        ({"n_layer": True}, "n_layer must"),
        ({"n_head": 17, "n_embd": 34}, "n_head must be a whole number from 1 to 16"),
        ({"n_embd": 6}, "n_embd must be a whole number from 8 to 256"),
        ({"n_embd": 258}, "n_embd must"),
        ({"n_embd": 64.0}, "n_embd must"),
        ({"n_embd": 15, "n_head": 3}, "n_embd must be even"),
        ({"n_embd": 62}, "n_embd 62 cannot be split into n_head 8"),
        ({"norm": "both"}, "norm must be one of post, pre"),
        ({"positions": "rotary"}, "positions must be one of sinusoidal, learned, none"),
        ({"causal": 1}, "causal must be true or false"),
        ({"temperature": 0.0}, "temperature must lie between 0.001 and 100"),
        ({"temperature": 100.5}, "temperature must"),
        ({"temperature": math.nan}, "temperature must"),
    ],
    ids=str,
)
def test_an_option_out_of_range_is_refused_by_its_name(options: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        replace(Config(), **options)


@pytest.mark.parametrize("change", [{"max_len": 64}, {"epsilon": 0.1}, {"depth": 2}, {"norm": 3}], ids=str)
def test_a_stored_config_that_is_none_is_refused(change: dict[str, int | float | str]) -> None:
    with pytest.raises(InvalidInput):
        Config.from_json(Config().as_json() | change)


# --- the shelf ---


def test_two_models_are_offered_and_described() -> None:
    sources = SHELF.sources()
    assert [source.name for source in sources] == ["textbook", "textbook-pre-causal"]
    assert all(source.available and source.family == "textbook" and source.description for source in sources)
    inspected = SHELF.inspect("textbook-pre-causal")
    assert inspected.source == sources[1]
    # 12 d² + 13 d in each of six blocks, and the last norm
    assert inspected.parameters == 6 * (12 * 64**2 + 13 * 64) + 2 * 64
    assert Config.from_json(inspected.config or {}) == Config(norm="pre", causal=True)
    assert SHELF.inspect("textbook-d32").source.name == "textbook-d32"
    assert SHELF.tokenizer("textbook") is None


def test_a_loaded_model_has_the_parameters_that_were_announced() -> None:
    model = SHELF.load("textbook-learned")
    assert sum(weight.numel() for weight in model.weights.values()) == SHELF.inspect("textbook-learned").parameters
    assert model.info.weights_sha256 == digest(untrained(Config(positions="learned")))
    assert (model.context, model.vocabulary, model.info.trained) == (512, 512, False)


def test_a_bfloat16_model_runs_and_another_dtype_is_refused() -> None:
    model = SHELF.load("textbook-l1", "bfloat16")
    assert model.forward(given_vectors(model)).dtype == torch.bfloat16
    with pytest.raises(InvalidInput, match="does not compute in 'float16'"):
        SHELF.load("textbook", "float16")


# --- finding ---


def test_a_tensor_is_found_by_the_lesson_s_expression() -> None:
    catalogue = SHELF.load("textbook").catalogue

    def found(expression: str) -> Intermediate:
        return find(catalogue, expression)[0]

    assert found("weight @ v").site == "h.attn.context"
    assert found("self.norm1(x+a)").site == "h.post.norm1.out"
    assert found("x + self.pe[: x.size(1)]").site == "embed.h"


def test_candidates_of_an_expression_without_cited_lines_have_no_empty_brackets() -> None:
    with pytest.raises(AmbiguousName) as refused:
        find(SHELF.load("textbook-pre").catalogue, "x.mean(-1, keepdim=True)")
    assert refused.value.candidates[0] == "h.pre.norm1.mean  LayerNorm 1 (pre-norm) mean"
    assert len(refused.value.candidates) == 3
