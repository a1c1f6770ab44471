"""OpenAI's file on real TensorFlow: how a graph is read, and, where TensorFlow is installed, what it says."""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from conftest import recorded, tiny_model_of
from torch.nn.functional import gelu

from app.cli import main
from provenance.errors import Unavailable, UnsupportedCheckpoint
from provenance.families import FAMILIES
from provenance.gpt2 import model as model_module
from provenance.gpt2.catalogue import CATALOGUE
from provenance.gpt2.config import Config
from provenance.gpt2.model import GPT2
from provenance.gpt2.pins import OPENAI
from provenance.gpt2.witness_tensorflow import OpenAITensorFlowWitness, readings
from provenance.gpt2.witnesses import OpenAIWitness
from provenance.names import Address, is_layered
from provenance.sources import PackageCarrier, Sources, default_sources
from provenance.store import TraceStore
from provenance.verdict import TOLERANCE, Report
from provenance.verification import verify
from provenance.witness.tensorflow_real import Extent, Program, extents, require
from provenance.witness.testimony import Witness
from provenance.witness.tracer import Observation

CONFIG = Config(n_layer=2, n_head=3, n_embd=48, n_ctx=24, n_vocab=97, n_inner=192)
FAMILY = FAMILIES["gpt2"]
FILE = "the cited file"
HINT = "pip install 'tensor-provenance[tensorflow]'"

Line = tuple[str, int]


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    return default_sources(tmp_path / "sources", network=False)


# --- where it is not installed ---


@pytest.fixture
def no_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tensorflow" else find(name))


@pytest.mark.usefixtures("no_tensorflow")
def test_without_tensorflow_the_error_says_how_to_install_it() -> None:
    with pytest.raises(Unavailable, match="TensorFlow is not installed") as raised:
        require()
    assert HINT in raised.value.hint


@pytest.mark.usefixtures("no_tensorflow")
def test_without_tensorflow_the_command_refuses_before_it_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TENSOR_PROVENANCE_DATA_DIRECTORY", str(tmp_path / "data"))
    with pytest.raises(SystemExit) as stopped:
        main(["verify", "--model", "tiny-untrained", "--ids", "5,6", "--tensorflow"])
    out, err = capsys.readouterr()
    assert (stopped.value.code, out) == (1, "")  # it can be had, but not here
    assert "TensorFlow is not installed" in err
    assert HINT in err
    assert not (tmp_path / "data").exists()


@pytest.mark.usefixtures("no_tensorflow")
def test_without_tensorflow_the_other_witnesses_are_heard_and_the_lack_is_said(
    sources: Sources, tmp_path: Path
) -> None:
    model = tiny_model_of(CONFIG)
    trace = recorded(model, TraceStore(tmp_path), steps=0)
    report = verify(FAMILY, model, trace, sources, extra=FAMILY.on_tensorflow)
    assert report.holds
    assert [coverage.source for coverage in report.coverage] == ["openai", "transformers"]
    (reason,) = report.departures["tensorflow"]
    assert HINT in reason
    assert "tensorflow" not in report.versions


# --- how a graph is read ---


@dataclass(frozen=True)
class Frame:
    filename: str
    lineno: int
    name: str


@dataclass(frozen=True)
class Made:
    """An operation as TensorFlow notes it, with frames of other files around the cited one's."""

    type: str
    trail: tuple[Line, ...]
    outputs: tuple[str, ...]

    @property
    def traceback(self) -> Iterator[Frame]:
        yield Frame("the caller", 164, "model")
        yield from (Frame(FILE, line, name) for name, line in self.trail)
        yield Frame("tensorflow", 36, "norm")


def op(kind: str, *trail: Line, label: str = "", outputs: int = 1) -> Made:
    return Made(kind, trail, tuple(f"{label or kind}:{number}" for number in range(outputs)))


def of(found: list[Extent], *trail: Line) -> list[list[str]]:
    return [[made.type for made in extent.operations] for extent in found if extent.trail == trail]


def read(*operations: Made) -> dict[str, str]:
    """The read tensors by address, as the witness's own claims name them."""
    witness = OpenAITensorFlowWitness()
    found = {}
    for reading in readings(extents(operations, FILE)):
        claim = witness.claim(0, reading.observation(torch.zeros(1)), CONFIG.n_layer)
        assert claim is not None
        found[str(claim.address)] = reading.tensor
    return found


def test_a_line_made_what_was_made_while_it_ran_called_functions_included() -> None:
    found = extents(
        [op("Placeholder"), op("Range", ("f", 1)), op("Tile", ("f", 1), ("g", 9)), op("Add", ("f", 1)), op("Exp")],
        FILE,
    )
    assert of(found, ("f", 1)) == [["Range", "Tile", "Add"]]
    assert of(found, ("f", 1), ("g", 9)) == [["Tile"]]
    assert len(found) == 2  # nothing of other files


def test_a_line_that_runs_again_is_numbered() -> None:
    loop = [made for _ in range(3) for made in (op("Mean", ("f", 1), ("g", 2)), op("Sub", ("f", 1), ("g", 3)))]
    found = extents(loop, FILE)
    assert of(found, ("f", 1), ("g", 2)) == [["Mean"]] * 3
    assert [extent.occurrence for extent in found if extent.trail[-1] == ("g", 2)] == [0, 1, 2]


BLOCK = (("model", 164), ("block", 126))


def test_the_last_operation_of_a_line_is_its_value_and_the_caller_tells_norms_apart() -> None:
    first = (*BLOCK, ("norm", 36))
    final = ("model", 167)
    assert read(
        op("Sub", *first), op("Rsqrt", *first), op("Mul", *first, label="a"),
        op("Sub", final, ("norm", 36)), op("Mul", final, ("norm", 36), label="b"), op("AddV2", final, ("norm", 37)),
    ) == {"h.0.ln_1.normalized": "a:0", "ln_f.normalized": "b:0", "ln_f.out": "AddV2:0"}  # fmt: skip


def test_queries_keys_and_values_are_the_three_transposes_of_their_line() -> None:
    line = (*BLOCK, ("attn", 103))
    parts = []
    for label in "qkv":
        parts += [op("Reshape", *line, ("split_heads", 77), ("split_states", 43))]
        parts += [op("Transpose", *line, ("split_heads", 77), label=label)]
    layer = [op("Split", *line, outputs=3), *parts, op("Pack", *BLOCK, ("attn", 104))]
    found = read(*layer)
    assert found == {"h.0.attn.q": "q:0", "h.0.attn.k": "k:0", "h.0.attn.v": "v:0", "h.0.attn.present": "Pack:0"}


def test_the_two_lookups_of_one_line_are_told_apart_by_their_order() -> None:
    line = ("model", 157)
    found = read(
        op("GatherV2", line, label="tokens"),
        op("Tile", line, ("positions_for", 144), ("expand_tile", 139)),
        op("GatherV2", line, label="places"),
        op("AddV2", line),
    )
    assert found == {
        "embed.tokens": "tokens:0", "positions": "Tile:0", "embed.positions": "places:0", "embed.h": "AddV2:0",
    }  # fmt: skip


def test_the_cache_of_each_layer_is_one_output() -> None:
    found = read(
        op("Unpack", ("model", 161), label="past", outputs=2),
        op("Unpack", *BLOCK, ("attn", 106), label="pk, pv", outputs=2),
    )
    assert found == {
        "h.0.past": "past:0", "h.1.past": "past:1", "h.0.attn.pk": "pk, pv:0", "h.0.attn.pv": "pk, pv:1",
    }  # fmt: skip


def test_a_line_that_hands_a_result_on_unnamed_is_read_too() -> None:
    line = (("model", 164), ("block", 128), ("mlp", 118))
    found = list(readings(extents([op("Reshape", *line, ("conv1d", 55)), op("Mul", *line, ("gelu", 26))], FILE)))
    lines = [(reading.point.line, reading.point.kind, reading.tensor) for reading in found]
    assert (55, "assign", "Reshape:0") in lines
    assert (118, "argument", "Reshape:0") in lines


# --- where it is installed ---

# TensorFlow's own modules warn when they are imported.
on_tensorflow = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def installed() -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is an optional extra", exc_type=ImportError)


def proven(model: GPT2, sources: Sources, directory: Path) -> Report:
    trace = recorded(model, TraceStore(directory), steps=2)
    return verify(FAMILY, model, trace, sources, extra=FAMILY.on_tensorflow)


@on_tensorflow
@pytest.mark.usefixtures("installed")
def test_every_computed_tensor_is_what_tensorflow_computes(sources: Sources, tmp_path: Path) -> None:
    report = proven(tiny_model_of(CONFIG), sources, tmp_path)
    assert report.holds
    assert report.departures == {}
    assert report.versions["tensorflow"].startswith("2.")
    variants = {row.site for row in CATALOGUE if row.variant}
    expected = {
        str(Address(row.site, layer, step))
        for step in range(3)
        for row in CATALOGUE
        if row.steps.cover(step) and row.site != "tokens" and row.site not in variants
        # A decode step uses the variables that the prefill has read.
        if step == 0 or row.kind != "parameter"
        for layer in (range(CONFIG.n_layer) if is_layered(row.site) else (None,))
    }
    assert {parity.address for parity in report.parities if parity.source == "tensorflow"} == expected


def heard(witness: Witness, model: GPT2) -> dict[str, torch.Tensor]:
    """What a witness holds of a prefill and a decode step, by address."""
    delivery = PackageCarrier().read(OPENAI)
    assert delivery is not None
    found = {}

    def observe(step: int, observation: Observation) -> None:
        claim = witness.claim(step, observation, model.layers)
        if claim is not None:
            found[str(claim.address)] = observation.value.clone().double()

    witness.testify(model, [torch.tensor([[11, 7, 96, 0]]), torch.tensor([[42]])], delivery.data, observe, set())
    return found


@on_tensorflow
@pytest.mark.usefixtures("installed")
def test_the_stand_in_computes_what_tensorflow_computes() -> None:
    model = tiny_model_of(CONFIG)
    theirs, ours = heard(OpenAITensorFlowWitness(), model), heard(OpenAIWitness(), model)
    assert {"logits", "logits@1", "presents", "h.1.attn.pattern@1"} <= theirs.keys()
    for address, value in theirs.items():
        stand_in = ours[address]
        assert value.shape == stand_in.shape, address
        # OpenAI's fill of masked cells, -1e10, is the same number in both.
        largest = float(stand_in.abs().max())
        assert float((value - stand_in).abs().max()) <= TOLERANCE * max(1.0, largest), address
        if not address.startswith(("h.0.attn.scores_masked", "h.1.attn.scores_masked")):
            torch.testing.assert_close(value, stand_in, atol=1e-4, rtol=1e-5)


@on_tensorflow
@pytest.mark.usefixtures("installed")
def test_a_fault_of_the_model_is_caught_by_tensorflow_too(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FRESH", "IN_PLACE"):
        monkeypatch.setattr(model_module, name, replace(getattr(model_module, name), gelu=gelu))
    report = proven(tiny_model_of(CONFIG), sources, tmp_path)
    failing = {p.address for p in report.parities if p.source == "tensorflow" and not p.holds}
    assert "h.0.mlp.h" in failing
    assert "h.0.mlp.c_fc.c" not in failing


@on_tensorflow
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("weights", [{}, {"w": torch.zeros(3)}], ids=["missing", "of another shape"])
def test_a_weight_that_the_code_asks_for_must_be_there(weights: dict[str, torch.Tensor]) -> None:
    source = b"import tensorflow as tf\ndef make():\n    return tf.get_variable('w', [2])\n"
    with Program(source, FILE) as program:
        program.build(program.functions["make"], set())  # type: ignore[arg-type]
        with pytest.raises(UnsupportedCheckpoint, match=r"'w' of the shape \[2\]"):
            program.assign(weights)


@on_tensorflow
@pytest.mark.usefixtures("installed")
def test_a_program_says_which_line_made_what_and_computes_it() -> None:
    source = b"import tensorflow as tf\ndef double(x):\n    y = x + x\n    return tf.exp(y)\n"
    with Program(source, FILE) as program:
        x, lines = program.placeholder("float32", [None]), set[int]()
        _, found = program.build(lambda: program.functions["double"](x), lines)  # type: ignore[operator]
        assert [extent.trail for extent in found] == [(("double", 3),), (("double", 4),)]
        assert lines == {3, 4}
        wanted = [extent.operations[-1].outputs[0] for extent in found]
        doubled, powers = program.values(wanted, {x: torch.tensor([0.0, 1.0])})
    assert doubled.tolist() == [0.0, 2.0]
    assert powers.tolist() == pytest.approx([1.0, 7.38905609893])
