"""Golden files: written from a trace in every scheme and both formats, read back, and equal bit for bit."""

import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from conftest import PROMPT_IDS, STEPS, recorded, tapped_run, tiny_model_of
from typer.testing import CliRunner

from app.cli import commands
from app.cli_golden import steps_of
from provenance.catalogue import Kind
from provenance.errors import InvalidInput, OutOfRange
from provenance.golden import Manifest, chosen, manifest_path, write_golden
from provenance.gpt2.model import GPT2
from provenance.names import Address
from provenance.recorder import Replayer
from provenance.schemes import Fitted, Resolved, Scheme, fitted, resolve
from provenance.store import TraceStore
from provenance.tensor_files import raw_bytes, read_tensors
from provenance.trace import Trace

ENDINGS = ("safetensors", "npz")


@dataclass(frozen=True)
class Reader:
    """Reads a trace as the application does."""

    model: GPT2
    trace: Trace
    replayer: Replayer = field(default_factory=lambda: Replayer(1 << 26))

    def tensor(self, address: Address) -> torch.Tensor:
        return self.replayer.tensor(self.model, self.trace, address)

    def masked(self, address: Address) -> torch.Tensor | None:
        by = self.model.catalogue.row(address.site).masked_by
        return None if by is None else ~self.tensor(Address(by, address.layer, address.step))

    def write(self, path: Path, scheme: Scheme = Scheme.SITE, **options: Any) -> Manifest:
        catalogue = self.model.catalogue
        return write_golden(path, self.trace, catalogue, scheme, read=self.tensor, masked=self.masked, **options)


@pytest.fixture(scope="module")
def reader(tiny_model: GPT2, tiny_trace: Trace) -> Reader:
    return Reader(tiny_model, tiny_trace)


Written = tuple[Path, Manifest]


@pytest.fixture(scope="module")
def written(reader: Reader, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Scheme, str], Written]:
    """The golden file of a scheme and a format, with parameters; each is written once."""
    made: dict[tuple[Scheme, str], Written] = {}

    def write(scheme: Scheme, ending: str) -> Written:
        if (scheme, ending) not in made:
            path = tmp_path_factory.mktemp("golden") / f"{scheme.value}.{ending}"
            made[scheme, ending] = path, reader.write(path, scheme, parameters=True, steps=(0, 2))
        return made[scheme, ending]

    return write


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("scheme", Scheme)
def test_a_golden_file_comes_back_bit_for_bit(
    scheme: Scheme, ending: str, written: Callable[[Scheme, str], Written], tiny_model: GPT2, reader: Reader
) -> None:
    path, _ = written(scheme, ending)
    run = tapped_run(tiny_model).tensors
    steps = set()
    for name, tensor in read_tensors(path).items():
        found = resolve(tiny_model.catalogue, name)
        assert isinstance(found, Resolved), found
        ours = run[str(found.address)] if str(found.address) in run else reader.tensor(found.address)
        fit = fitted(tensor, found.row, found.alias, tuple(ours.shape))
        assert isinstance(fit, Fitted), fit
        assert fit.how == ""
        assert fit.tensor.dtype == ours.dtype
        if found.alias is not None and found.alias.hides:
            hidden = reader.masked(found.address)
            assert hidden is not None
            hidden = hidden.expand(ours.shape)
            assert bool((fit.tensor[hidden] == -torch.inf).all())
            assert bytes(raw_bytes(fit.tensor[~hidden])) == bytes(raw_bytes(ours[~hidden]))
        else:
            assert bytes(raw_bytes(fit.tensor)) == bytes(raw_bytes(ours))
        steps.add(found.address.step)
    assert steps == {0, 2}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("scheme", Scheme)
def test_the_manifest_says_what_the_file_holds(
    scheme: Scheme, ending: str, written: Callable[[Scheme, str], Written], tiny_trace: Trace
) -> None:
    path, manifest = written(scheme, ending)
    said = json.loads(manifest_path(path).read_text())
    assert said == json.loads(manifest.model_dump_json())
    assert (said["trace"], said["scheme"], said["file"]) == (tiny_trace.id, scheme.value, path.name)
    assert said["weights_sha256"] == tiny_trace.recipe.model.weights_sha256
    assert said["tokens"] == list(PROMPT_IDS)
    assert len(said["generated"]) == STEPS + 1
    assert said["steps"] == [0, 2]
    # Read by the libraries themselves, and hashed here.
    stored = dict(np.load(path)) if ending == "npz" else safetensors.numpy.load_file(path)
    assert {tensor["name"] for tensor in said["tensors"]} == stored.keys()
    for tensor in said["tensors"]:
        array = stored[tensor["name"]]
        assert hashlib.sha256(array.tobytes()).hexdigest() == tensor["sha256"]
        assert (list(array.shape), str(array.dtype)) == (tensor["shape"], tensor["dtype"])
        assert Address.parse(tensor["address"]).site == tensor["site"]


def test_a_safetensors_file_carries_its_manifest(written: Callable[[Scheme, str], Written]) -> None:
    path, manifest = written(Scheme.OPENAI, "safetensors")
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])
    assert Manifest.model_validate_json(header["__metadata__"]["manifest"]) == manifest


def test_layouts_other_than_ours_are_said(written: Callable[[Scheme, str], Written]) -> None:
    _, manifest = written(Scheme.TRANSFORMERLENS, "npz")
    layouts = {tensor.name: tensor.layout for tensor in manifest.tensors}
    assert layouts["blocks.0.attn.hook_q"] == "laid out [B, T, H, head_dim]"
    assert layouts["blocks.2.attn.hook_attn_scores@2"] == "−∞ at masked cells; equal at all others"
    assert layouts["blocks.0.attn.hook_pattern"] == ""


def test_our_own_scheme_names_every_tensor_of_the_trace(tiny_model: GPT2, tiny_trace: Trace) -> None:
    names = {piece.name for piece in chosen(tiny_trace, tiny_model.catalogue, Scheme.SITE, parameters=True)}
    taken = tapped_run(tiny_model).tensors
    learned = {row.site for row in tiny_model.catalogue if row.kind is Kind.PARAMETER}
    once = {name for name in taken if not (Address.parse(name).step and Address.parse(name).site in learned)}
    assert names >= once
    assert {str(name) for name in names - once} <= set(tiny_trace.tensors)


def test_parameters_are_left_out_unless_they_are_asked_for(tiny_model: GPT2, tiny_trace: Trace) -> None:
    catalogue = tiny_model.catalogue
    bare = chosen(tiny_trace, catalogue, Scheme.TRANSFORMERS)
    whole = chosen(tiny_trace, catalogue, Scheme.TRANSFORMERS, parameters=True, steps=(1,))
    assert not [piece.name for piece in bare if piece.row.kind is Kind.PARAMETER]
    learned = {piece.name for piece in whole if piece.row.kind is Kind.PARAMETER}
    assert "transformer.h.2.attn.c_attn.weight" in learned
    assert len(learned) == 12 * 3 + 4
    assert {piece.address.step for piece in whole if piece.name not in learned} == {1}


def test_a_step_that_the_trace_lacks_is_refused_and_nothing_is_left_behind(reader: Reader, tmp_path: Path) -> None:
    with pytest.raises(OutOfRange):
        reader.write(tmp_path / "x.npz", steps=(0, 9))
    with pytest.raises(InvalidInput, match="kind of file"):
        reader.write(tmp_path / "x.pt")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_the_earlier_file_as_it_was(reader: Reader, tmp_path: Path, tiny_trace: Trace) -> None:
    path = tmp_path / "x.safetensors"
    path.write_text("earlier")

    def fail(address: Address) -> torch.Tensor:
        if address.site == "logits":
            raise RuntimeError("gone")
        return reader.tensor(address)

    with pytest.raises(RuntimeError):
        write_golden(path, tiny_trace, reader.model.catalogue, Scheme.SITE, read=fail, masked=reader.masked)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("x.safetensors", "earlier")]


@pytest.mark.parametrize(("ending", "dtype"), [("safetensors", "bfloat16"), ("npz", "float32")])
def test_bfloat16_is_kept_or_said_to_be_wider(ending: str, dtype: str, tmp_path: Path) -> None:
    model = tiny_model_of(dtype="bfloat16")
    reader = Reader(model, recorded(model, TraceStore(tmp_path / "traces"), steps=0))
    manifest = reader.write(tmp_path / f"x.{ending}")
    tensors = read_tensors(tmp_path / f"x.{ending}")
    (out,) = [tensor for tensor in manifest.tensors if tensor.name == "logits"]
    assert (out.dtype, out.layout) == (dtype, "" if ending == "safetensors" else "bfloat16 written as float32")
    assert torch.equal(tensors["logits"].float(), reader.tensor(Address("logits")).float())


# --- the command ---


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with one recorded trace."""
    home = tmp_path_factory.mktemp("home")
    environment = {
        f"TENSOR_PROVENANCE_{key}": value
        for key, value in {
            "DATA_DIRECTORY": str(home / "data"), "CACHE_DIRECTORY": str(home / "cache"), "MODEL": "tiny-untrained",
        }.items()
    }  # fmt: skip
    assert CliRunner().invoke(commands, ["record", "Hello", "--steps", "1"], env=environment).exit_code == 0
    return environment


def test_the_command_writes_the_file_and_says_what_it_wrote(stored: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "golden.npz"
    arguments = ["golden", "latest", "--out", str(out), "--names", "transformerlens", "--steps", "0-1"]
    done = CliRunner().invoke(commands, arguments, env=stored)
    assert done.exit_code == 0, done.output
    manifest = Manifest.model_validate_json(manifest_path(out).read_text())
    assert f"{len(manifest.tensors)} tensors of trace {manifest.trace[:12]}" in done.output.replace("\n", " ")
    assert {path.name for path in tmp_path.iterdir()} == {"golden.npz", "golden.npz.manifest.json"}
    assert "blocks.0.hook_resid_post@1" in read_tensors(out)
    as_json = CliRunner().invoke(commands, [*arguments, "--json"], env=stored)
    assert Manifest.model_validate_json(as_json.stdout) == manifest


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["latest", "--out", "{tmp}/absent/x.npz"], InvalidInput),
        (["latest", "--out", "{tmp}"], InvalidInput),
        (["latest", "--out", "{tmp}/x.bin"], InvalidInput),
        (["latest", "--out", "{tmp}/x.npz", "--steps", "7"], OutOfRange),
        (["latest", "--out", "{tmp}/x.npz", "--steps", "one"], InvalidInput),
    ],
)
def test_what_cannot_be_written_is_refused(
    options: list[str], error: type[Exception], stored: dict[str, str], tmp_path: Path
) -> None:
    done = CliRunner().invoke(commands, ["golden", *(o.replace("{tmp}", str(tmp_path)) for o in options)], env=stored)
    assert isinstance(done.exception, error)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("text", "steps"), [("0", (0,)), ("0,2-4", (0, 2, 3, 4)), (" 3 , 1,3", (3, 1))])
def test_steps_are_read_as_they_are_written(text: str, steps: tuple[int, ...]) -> None:
    assert steps_of(text) == steps


@pytest.mark.parametrize("text", ["", "-", "1-", "-1", "2-1", "1,,2", "a", "1-2-3", "9999999", "²"])
def test_steps_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="--steps"):
        steps_of(text)
