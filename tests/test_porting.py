"""The worked example of a port: each planted fault is named at the tensor where it enters, and only there."""

import ast
import json
import runpy
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from checkpoint_files import state_of
from safetensors.numpy import save_file

from app.cli import main
from app.explorer import EXAMPLE, Explorer
from app.settings import load_settings
from provenance.compare import Comparison, Status, compare_named
from provenance.difference import RELATIVE
from provenance.gpt2.model import GPT2
from provenance.prompt import Tokenizer
from provenance.tensor_files import read_tensors
from provenance.trace import Trace

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "porting"
DEMO = ROOT / "provenance" / "gpt2" / "demo"
IDS = (464, 2068, 7586, 21831, 18045, 625, 262, 16931, 3290)
ENTERS = {
    "gelu": "h.0.mlp.h",
    "mask": "h.0.attn.mask.m",
    "epsilon": "h.0.ln_1.normalized",
    "swap": "h.0.attn.q",
    "scale": "h.0.attn.scores",
}
MODELS = ("tiny-untrained", "demo", pytest.param("gpt2-untrained", marks=pytest.mark.slow))


gpt2_numpy = SimpleNamespace(**runpy.run_path(str(FOLDER / "gpt2_numpy.py")))


@dataclass(frozen=True)
class Bench:
    """A data directory with one trace of the ids for each model that was asked for."""

    explorer: Explorer
    data: Path
    traces: dict[str, Trace]

    def trace(self, model: str) -> Trace:
        if model not in self.traces:
            self.traces[model] = self.explorer.record(self.explorer.plan(ids=IDS, model=model))
        return self.traces[model]

    def port(self, model: str, fault: str | None = None) -> Any:
        """A port of the model that has run."""
        if model == "demo":
            port = gpt2_numpy.load(DEMO, fault)
        else:
            ours = self.explorer.models.get(model)
            assert isinstance(ours, GPT2)
            weights = {key: tensor.numpy() for key, tensor in state_of(ours, "").items()}
            port = gpt2_numpy.Port(weights, ours.config.n_head, ours.config.epsilon, fault)
        port.prefill(list(IDS))
        return port

    def compare(self, model: str, file: Path) -> Comparison:
        """A file against the trace of a model."""
        return compare_named(self.explorer.recorded(self.trace(model)), read_tensors(file))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    data = tmp_path_factory.mktemp("bench")
    explorer = Explorer(load_settings(data_directory=data, cache_directory=data / "cache", network=False))
    yield Bench(explorer, data, {})
    explorer.close()


@pytest.fixture(scope="module")
def files(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What the port of the demo writes: `right`, and one file for each fault."""
    directory = tmp_path_factory.mktemp("files")
    found = {}
    for fault in (None, *gpt2_numpy.FAULTS):
        found[fault or "right"] = directory / f"{fault or 'right'}.safetensors"
        save_file(bench.port("demo", fault).kept, found[fault or "right"])
    return found


@pytest.fixture
def command_line(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line looks into the bench."""
    monkeypatch.setenv("TENSOR_PROVENANCE_DATA_DIRECTORY", str(bench.data))
    monkeypatch.setenv("TENSOR_PROVENANCE_CACHE_DIRECTORY", str(bench.data / "cache"))
    monkeypatch.setenv("TENSOR_PROVENANCE_NETWORK", "no")


def ran(*arguments: str) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


def first(comparison: Comparison) -> str:
    """The address of the first divergence."""
    found = comparison.first_divergence
    return str(found.address) if found else ""


# --- what the port is ---


def test_the_port_has_sixty_lines_besides_its_imports_and_needs_numpy_alone() -> None:
    text = (FOLDER / "gpt2_numpy.py").read_text()
    tree = ast.parse(text)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    documented = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    docstrings = [node.body[0] for node in documented if ast.get_docstring(node)]
    left_out = {line for node in (*imports, *docstrings) for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    code = [
        line
        for number, line in enumerate(text.splitlines(), 1)
        if number not in left_out and line.strip() and not line.lstrip().startswith("#")
    ]
    assert len(code) == 60
    names = {n.module or "" if isinstance(n, ast.ImportFrom) else n.names[0].name for n in imports}
    packages = {name.partition(".")[0] for name in names} - sys.stdlib_module_names
    assert packages == {"numpy", "safetensors"}


@pytest.mark.parametrize("model", MODELS[:2])
def test_the_port_computes_in_float32_throughout(bench: Bench, model: str) -> None:
    kinds = {value.dtype.name for name, value in bench.port(model).kept.items() if not name.endswith("mask.m")}
    assert kinds == {"float32"}


@pytest.mark.parametrize("fault", ENTERS)
def test_no_fault_changes_a_tensors_type_or_shape(bench: Bench, fault: str) -> None:
    right, faulty = bench.port("demo").kept, bench.port("demo", fault).kept
    assert [(n, v.shape, v.dtype) for n, v in faulty.items()] == [(n, v.shape, v.dtype) for n, v in right.items()]


def test_a_fault_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="'gulu' is none of gelu, mask, epsilon, swap, scale"):
        gpt2_numpy.load(DEMO, "gulu")


# --- the comparison finds what was planted ---


@pytest.mark.slow
def test_without_a_fault_every_tensor_agrees(bench: Bench, files: dict[str, Path]) -> None:
    found = bench.compare("demo", files["right"])
    assert found.agrees and found.unknown == () and found.unfit == ()
    assert found.compared == 104
    assert first(found) == ""


@pytest.mark.parametrize(("fault", "enters"), ENTERS.items())
def test_a_fault_is_the_first_divergence_where_it_enters(
    bench: Bench, files: dict[str, Path], fault: str, enters: str
) -> None:
    found = bench.compare("demo", files[fault])
    assert first(found) == enters
    assert not found.agrees and found.unknown == () and found.unfit == ()


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_each_fault_is_found_on_every_model(bench: Bench, tmp_path: Path, model: str) -> None:
    for fault, enters in ENTERS.items():
        save_file(bench.port(model, fault).kept, tmp_path / "port.safetensors")
        assert first(bench.compare(model, tmp_path / "port.safetensors")) == enters, fault


@pytest.mark.parametrize(("fault", "enters"), ENTERS.items())
def test_npz_will_do_as_well(bench: Bench, tmp_path: Path, fault: str, enters: str) -> None:
    np.savez(tmp_path / "port.npz", **bench.port("tiny-untrained", fault).kept)
    assert first(bench.compare("tiny-untrained", tmp_path / "port.npz")) == enters


@pytest.mark.parametrize(
    ("lost", "found_at"), [((), "mask.m"), (("mask.m",), "scores_masked"), (("mask.m", "attn_scores"), "pattern")]
)
def test_the_fewer_tensors_a_port_keeps_the_later_the_mask_is_found(
    bench: Bench, tmp_path: Path, lost: tuple[str, ...], found_at: str
) -> None:
    kept = {name: value for name, value in bench.port("demo", "mask").kept.items() if not name.endswith(lost or "-")}
    save_file(kept, tmp_path / "port.safetensors")
    found = bench.compare("demo", tmp_path / "port.safetensors").first_divergence
    assert found is not None and str(found.address) == f"h.0.attn.{found_at}"
    assert ("32 cells are masked on one side only" in found.note) == (found_at == "scores_masked")
    assert found.first == {"mask.m": (0, 1), "scores_masked": (0, 0, 0, 1), "pattern": (0, 0, 0, 0)}[found_at]


def test_what_is_computed_before_the_fault_agrees(bench: Bench, files: dict[str, Path]) -> None:
    row = {str(row.address): row.status for row in bench.compare("demo", files["epsilon"]).rows}
    assert row["h.0.ln_1.u"] is not Status.DIFFERS and row["h.0.ln_1.s"] is not Status.DIFFERS
    row = {str(row.address): row.status for row in bench.compare("demo", files["swap"]).rows}
    assert row["h.0.attn.c_attn.c"] is Status.WITHIN
    assert (row["h.0.attn.q"], row["h.0.attn.k"], row["h.0.attn.v"]) == ("differs", "differs", "within")


# --- the command line ---


@pytest.mark.slow
@pytest.mark.usefixtures("command_line")
@pytest.mark.parametrize("fault", ["right", *ENTERS])
def test_compare_exits_with_0_or_1_and_names_the_place(
    bench: Bench, files: dict[str, Path], capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    code = ran("compare", bench.trace("demo").id, str(files[fault]), "--json")
    out = json.loads(capsys.readouterr().out)
    if fault == "right":
        assert (code, out["first_divergence"]) == (0, None)
    else:
        assert (code, out["first_divergence"]["address"]) == (1, ENTERS[fault])


@pytest.mark.slow
@pytest.mark.usefixtures("command_line")
@pytest.mark.parametrize("names", ["site", "openai", "transformers", "transformerlens"])
@pytest.mark.parametrize("fault", ["right", "scale"])
def test_a_golden_file_stands_for_the_trace(
    bench: Bench, files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], names: str, fault: str
) -> None:
    golden = tmp_path / "golden.safetensors"
    assert ran("golden", bench.trace("demo").id, "--out", str(golden), "--names", names) == 0
    capsys.readouterr()
    assert ran("compare", bench.trace("demo").id, str(golden)) == 0
    capsys.readouterr()
    code = ran("compare", str(golden), str(files[fault]), "--json")
    out = json.loads(capsys.readouterr().out)
    closest = {"site": "h.0.attn.scores", "transformerlens": "h.0.attn.scores_masked"}
    place = closest.get(names, "h.0.attn.out")
    assert (code, (out["first_divergence"] or {}).get("address")) == ((0, None) if fault == "right" else (1, place))


@pytest.mark.slow
@pytest.mark.usefixtures("command_line")
def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("TENSOR_PROVENANCE_DATA_DIRECTORY", str(tmp_path / "data"))
    commands = [line.strip() for line in page().splitlines() if line.startswith("    ")]
    ids = commands.pop(0).removeprefix("IDS=")
    codes = []
    for command in commands:
        words = shlex.split(command.replace("$IDS", ids))
        words = [str(tmp_path / word) if word.endswith(".safetensors") else word for word in words]
        if words[0] == "python":
            monkeypatch.setattr(sys, "argv", words[1:])
            runpy.run_path(words[1], run_name="__main__")
        else:
            assert words[0] == "tensor-provenance"
            codes.append(ran(*words[1:]))
    assert codes == [0, 0, 0, 1]
    assert ids == ",".join(map(str, IDS)) == ",".join(map(str, Tokenizer.load().encode(EXAMPLE).ids))


# --- the page's figures ---


def page() -> str:
    return (FOLDER / "README.md").read_text()


def cells(start: str) -> list[str]:
    """The cells of the page's table row that begins with a word in code."""
    (row,) = [line for line in page().splitlines() if line.startswith(f"| `{start}` |")]
    return [cell.strip() for cell in row.strip("|").split("|")]


@pytest.mark.parametrize("fault", ENTERS)
def test_the_page_shows_what_the_report_says_of_each_fault(bench: Bench, files: dict[str, Path], fault: str) -> None:
    comparison = bench.compare("demo", files[fault])
    found = comparison.first_divergence
    assert found is not None
    before = comparison.rows[: comparison.rows.index(found)]
    assert all(row.agrees for row in before)
    shown = [f"`{found.address}`", f"{found.largest:.1e}", f"{found.relative:.1e}", str(len(before))]
    assert cells(fault)[2:] == shown


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.slow
def test_the_tolerance_lies_between_rounding_and_the_smallest_faults(
    bench: Bench, tmp_path: Path, model: str
) -> None:
    relative = {}
    for fault in (None, "gelu", "epsilon"):
        save_file(bench.port(model, fault).kept, tmp_path / "port.safetensors")
        found = bench.compare(model, tmp_path / "port.safetensors")
        relative[fault] = {str(row.address): row.relative for row in found.rows}
    rounding = max(relative[None].values())
    smallest = [relative[fault][ENTERS[fault]] for fault in ("gelu", "epsilon")]
    assert 3 * rounding < RELATIVE < min(smallest) / 2
    _, most, *shown = cells(model)
    assert rounding < float(most) < 20 * rounding
    assert shown == [f"{share:.1e}" for share in smallest]


def test_a_wrong_epsilon_is_seen_at_small_variances_only(bench: Bench) -> None:
    smallest = {name: float(s.min()) for name, s in bench.port("demo").kept.items() if name.endswith(".s")}
    seen = [name for name, s in smallest.items() if (1e-5 - 1e-6) / (2 * s) > RELATIVE]
    assert seen == ["h.0.ln_1.s"] and len(smallest) == 9
    limit = (1e-5 - 1e-6) / (2 * RELATIVE)
    assert limit == pytest.approx(0.225)
    assert "under 0.22." in page()


def test_the_two_forms_of_gelu_are_as_far_apart_as_the_page_says() -> None:
    x = np.linspace(-6, 6, 24_001)
    tanh, exact = (gpt2_numpy.Port({}, 1, fault=fault).gelu("h", x) for fault in (None, "gelu"))
    apart = float(np.abs(tanh - exact).max())
    assert 4.7e-4 < apart < 4.8e-4
    assert 23 < apart / RELATIVE < 24
