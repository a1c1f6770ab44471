"""Tensors as files: what they hold is what the trace holds, bit for bit, and they are made piece by piece."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from api_client import FOX, Api, running
from conftest import TINY, recorded, tapped_run, tiny_model_of
from safetensors.torch import load, load_file

from app.cli import main
from provenance.errors import InvalidInput, OutOfRange, UnknownSite
from provenance.export import (
    chosen,
    csv_pieces,
    npy_bytes,
    npz_pieces,
    plan_of,
    safetensors_pieces,
    shape_of,
    split_names,
    the_one,
    write_whole,
)
from provenance.gpt2.catalogue import CATALOGUE
from provenance.gpt2.model import GPT2
from provenance.names import Address
from provenance.recorder import Replayer
from provenance.store import TraceStore
from provenance.trace import Trace


class Reader:
    """Reads tensors of a trace, and remembers the order."""

    def __init__(self, model: GPT2, trace: Trace) -> None:
        self.replayer, self.model, self.trace = Replayer(), model, trace
        self.asked: list[Address] = []

    def __call__(self, address: Address) -> torch.Tensor:
        self.asked.append(address)
        return self.replayer.tensor(self.model, self.trace, address)


@pytest.fixture
def read(tiny_model: GPT2, tiny_trace: Trace) -> Reader:
    return Reader(tiny_model, tiny_trace)


@pytest.fixture
def everything(tiny_model: GPT2, tiny_trace: Trace) -> tuple[Address, ...]:
    return chosen(tiny_model.catalogue, tiny_trace, parameters=True)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)


# --- which tensors ---


def test_all_tensors_are_chosen_in_order_of_computation_and_parameters_once(
    tiny_model: GPT2, tiny_trace: Trace
) -> None:
    tapped = tapped_run(tiny_model).tensors
    learned = {name for name in tapped if CATALOGUE.row(Address.parse(name).site).kind.value == "parameter"}
    addresses = [str(at) for at in chosen(tiny_model.catalogue, tiny_trace)]
    assert set(addresses) == set(tapped) - learned
    assert addresses[:2] == ["tokens", "embed.tokens"]
    assert addresses.index("h.0.attn.out") < addresses.index("h.1.ln_1.u") < addresses.index("logits")
    assert addresses.index("logits") < addresses.index("tokens@1")
    with_learned = [str(at) for at in chosen(tiny_model.catalogue, tiny_trace, parameters=True)]
    assert set(with_learned) - set(addresses) == {name for name in learned if "@" not in name}


def test_any_name_chooses_and_what_it_leaves_open_means_all(tiny_model: GPT2, tiny_trace: Trace) -> None:
    def names(*wanted: str) -> list[str]:
        return [str(at) for at in chosen(tiny_model.catalogue, tiny_trace, wanted)]

    assert names("logits@0") == ["logits"]
    assert names("logits") == ["logits", "logits@1", "logits@2", "logits@3"]
    assert names("h.attn.pattern@2") == ["h.0.attn.pattern@2", "h.1.attn.pattern@2", "h.2.attn.pattern@2"]
    assert names("blocks.1.attn.hook_pattern@3") == ["h.1.attn.pattern@3"]
    assert names("norm(x, 'ln_1')@0", "tokens@0") == ["tokens", "h.0.ln_1.out", "h.1.ln_1.out", "h.2.ln_1.out"]
    assert names("h.0.attn.pk") == ["h.0.attn.pk@1", "h.0.attn.pk@2", "h.0.attn.pk@3"]
    assert names("wte") == ["wte"]


@pytest.mark.parametrize(
    ("name", "error"), [("h.9.attn.q", OutOfRange), ("logits@7", OutOfRange), ("h.0.attn.pk@0", OutOfRange),
                        ("nothing.such", UnknownSite), ("", InvalidInput), ("@1", InvalidInput)],
)  # fmt: skip
def test_what_is_not_there_is_refused(tiny_model: GPT2, tiny_trace: Trace, name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        chosen(tiny_model.catalogue, tiny_trace, [name])


def test_names_are_apart_by_commas_outside_of_brackets_and_quotes() -> None:
    assert split_names("a, b ,norm(x, 'ln_1'), f(\"x,)\", [1, 2]),,") == (
        "a", "b", "norm(x, 'ln_1')", 'f("x,)", [1, 2])',
    )  # fmt: skip
    assert split_names(" , ") == ()


def test_a_file_of_one_tensor_takes_the_first_step_and_refuses_several_layers(
    tiny_model: GPT2, tiny_trace: Trace
) -> None:
    catalogue = tiny_model.catalogue
    assert str(the_one(catalogue, tiny_trace, ["h.1.attn.pattern"])) == "h.1.attn.pattern"
    assert str(the_one(catalogue, tiny_trace, ["h.1.attn.pk"])) == "h.1.attn.pk@1"
    for names in ([], ["h.attn.pattern"], ["logits", "tokens"]):
        with pytest.raises(InvalidInput, match="one"):
            the_one(catalogue, tiny_trace, names)


# --- many tensors ---


def test_shapes_known_beforehand_are_those_of_the_tensors(
    tiny_model: GPT2, tiny_trace: Trace, everything: tuple[Address, ...], read: Reader
) -> None:
    known = {str(at): shape_of(tiny_model.catalogue, TINY.constants, tiny_trace, at) for at in everything}
    assert known == {str(at): tuple(read(at).shape) for at in everything}
    assert known["h.0.attn.k_all@2"] == (1, 3, 8, 16)  # six tokens of the prompt, and two after


def test_a_safetensors_file_gives_back_every_tensor(
    tiny_model: GPT2, tiny_trace: Trace, everything: tuple[Address, ...], read: Reader
) -> None:
    plan = plan_of(tiny_model.catalogue, TINY.constants, tiny_trace, everything, read)
    content = b"".join(safetensors_pieces(plan, read, tiny_trace))
    back = load(content)
    assert back.keys() == {str(at) for at in everything}
    assert all(same(back[str(at)], read(at)) for at in everything)
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert header.pop("__metadata__")["trace"] == tiny_trace.id
    widths = {"I64": 8, "F32": 4, "BOOL": 1}
    assert {entry["dtype"] for entry in header.values()} == set(widths)
    assert all(entry["data_offsets"][0] % widths[entry["dtype"]] == 0 for entry in header.values())
    assert len(content) == 8 + length + plan.bytes


def test_an_npz_file_gives_back_every_tensor(everything: tuple[Address, ...], read: Reader) -> None:
    with np.load(io.BytesIO(b"".join(npz_pieces(everything, read))), allow_pickle=False) as back:
        assert set(back.files) == {str(at) for at in everything}
        for at in everything:
            assert same(torch.from_numpy(back[str(at)]), read(at)), at


def test_each_tensor_is_read_once_and_handed_on_before_the_next(
    tiny_model: GPT2, tiny_trace: Trace, everything: tuple[Address, ...], read: Reader
) -> None:
    plan = plan_of(tiny_model.catalogue, TINY.constants, tiny_trace, everything, read)
    sizes = {spec.name: spec.bytes for spec in plan.specs}
    floats = [at for at in everything if str(at) not in plan.held]
    assert sum(sizes[name] for name in plan.held) < sum(sizes.values()) / 50
    read.asked.clear()
    sent = 0
    pieces = safetensors_pieces(plan, read, tiny_trace)
    next(pieces)
    for piece in pieces:
        sent += len(piece)
        handed = [at for at in read.asked if str(at) not in plan.held]
        # All but the tensor that was read last has left.
        assert sum(sizes[str(at)] for at in handed[:-1]) <= sent
    assert read.asked == list(everything)
    assert [at for at in read.asked if str(at) not in plan.held] == floats


def test_a_model_in_bfloat16_keeps_its_bits_in_safetensors_and_is_widened_in_the_others(tmp_path: Path) -> None:
    model = tiny_model_of(dtype="bfloat16")
    trace = recorded(model, TraceStore(tmp_path), steps=1)
    read, addresses = Reader(model, trace), chosen(model.catalogue, trace)
    plan = plan_of(model.catalogue, TINY.constants, trace, addresses, read)
    back = load(b"".join(safetensors_pieces(plan, read, trace)))
    assert all(same(back[str(at)], read(at)) for at in addresses)
    assert back["h.1.ln_1.out"].dtype == torch.bfloat16
    at = Address.parse("h.1.ln_1.out")
    widened = np.load(io.BytesIO(npy_bytes(read(at))), allow_pickle=False)
    assert same(torch.from_numpy(widened), read(at).float())
    with np.load(io.BytesIO(b"".join(npz_pieces([at], read))), allow_pickle=False) as archive:
        assert same(torch.from_numpy(archive[str(at)]), read(at).float())


# --- one tensor ---


def rows_of(content: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content)))


def test_csv_has_an_index_for_every_axis_and_gives_the_values_back(tiny_model: GPT2, read: Reader) -> None:
    at = Address.parse("h.1.attn.pattern@2")
    tensor = read(at)
    content = b"".join(csv_pieces(tiny_model.catalogue, CATALOGUE.row(at.site), tensor)).decode()
    assert content.splitlines()[0] == "batch,head,token,key,value"
    back = torch.full(tensor.shape, torch.nan)
    for row in rows_of(content):
        place = tuple(int(row[axis]) for axis in ("batch", "head", "token", "key"))
        back[place] = torch.tensor(np.float32(row["value"]))
    assert torch.equal(back, tensor)


def test_csv_spells_each_number_in_the_fewest_digits() -> None:
    row = CATALOGUE.row("h.ln_1.g")
    values = torch.tensor([0.1, -0.0, 1e-45, 3.0, float("nan"), float("-inf"), 16777216.0])
    content = b"".join(csv_pieces(CATALOGUE, row, values)).decode()
    assert content == "channel,value\n0,0.1\n1,-0.0\n2,1e-45\n3,3.0\n4,nan\n5,-inf\n6,1.6777216e+07\n"
    mask = b"".join(csv_pieces(CATALOGUE, row, torch.tensor([True, False]))).decode()
    assert mask.splitlines()[1:] == ["0,true", "1,false"]
    ids = b"".join(csv_pieces(CATALOGUE, row, torch.tensor([50256]))).decode()
    assert ids.splitlines()[1:] == ["0,50256"]


def test_csv_comes_in_pieces_of_bounded_length() -> None:
    values = torch.arange(10_000.0)
    pieces = list(csv_pieces(CATALOGUE, CATALOGUE.row("h.ln_1.g"), values))
    assert len(pieces) == 4
    assert [row["channel"] for row in rows_of(b"".join(pieces).decode())] == [str(n) for n in range(10_000)]


# --- files ---


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "x.npz"
    write_whole(target, [b"old"])

    def broken() -> Iterator[bytes]:
        yield b"half"
        raise OutOfRange("It ends here.")

    with pytest.raises(OutOfRange):
        write_whole(target, broken())
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x.npz", b"old")]
    for wrong in (tmp_path, tmp_path / "no" / "x.npz"):
        with pytest.raises(InvalidInput):
            write_whole(wrong, [b""])


# --- the API ---


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("export")) as started:
        yield started


@pytest.fixture(scope="module")
def trace(api: Api) -> str:
    return api.record(prompt=FOX, steps=1)


def test_the_api_streams_a_trace_as_safetensors_and_npz(api: Api, trace: str) -> None:
    answer = api.ask("GET", f"{trace}/export.safetensors").raise_for_status()
    back = load(answer.content)
    here = api.explorer
    known = here.store.open(trace.removeprefix("/api/traces/"))
    assert back.keys() == {str(at) for at in chosen(here.catalogue(known), known)}
    assert answer.headers["content-disposition"].endswith('.safetensors"')
    some = api.ask("GET", f"{trace}/export.npz", params={"tensors": "h.1.attn.pattern@1,norm(x, 'ln_2')@0"})
    with np.load(io.BytesIO(some.raise_for_status().content), allow_pickle=False) as archive:
        layers = {name for name in back if name.endswith(".ln_2.out")}
        assert set(archive.files) == layers | {"h.1.attn.pattern@1"}
        for name in archive.files:
            assert same(torch.from_numpy(archive[name]), back[name])
    learned = load(api.ask("GET", f"{trace}/export.safetensors", params={"parameters": "true"}).content)
    assert "wte" in learned and "wte" not in back and learned.keys() > back.keys()


def test_the_api_gives_csv_beside_npy(api: Api, trace: str) -> None:
    array: Any = api.values(f"{trace}/tensors/h.1.attn.scores.npy?step=1")
    answer = api.ask("GET", f"{trace}/tensors/h.1.attn.scores.csv?step=1").raise_for_status()
    assert answer.headers["content-type"].startswith("text/csv")
    values = [np.float32(row["value"]) for row in rows_of(answer.text)]
    assert np.array_equal(np.array(values).reshape(array.shape), array)


def test_the_api_says_what_is_wrong_before_it_sends(api: Api, trace: str) -> None:
    assert "h.attn" in api.problem("GET", f"{trace}/export.npz?tensors=h.atn.scores", 404)["detail"]
    api.problem("GET", f"{trace}/export.safetensors?tensors=logits@5", 404)
    api.problem("GET", f"{trace}/export.npz?tensors=,", 422)
    api.problem("GET", f"{trace}/tensors/h.77.ln_1.u.csv", 404)
    api.problem("GET", "/api/traces/0123456789/export.npz", 404)


# --- the command line ---


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


@pytest.fixture
def stored(api: Api, trace: str, monkeypatch: pytest.MonkeyPatch) -> str:
    settings = api.explorer.settings
    monkeypatch.setenv("TENSOR_PROVENANCE_DATA_DIRECTORY", str(settings.data_directory))
    monkeypatch.setenv("TENSOR_PROVENANCE_CACHE_DIRECTORY", str(settings.cache_directory))
    return trace.removeprefix("/api/traces/")


def test_the_command_writes_each_kind_of_file(
    api: Api, trace: str, stored: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many, one = tmp_path / "some.safetensors", tmp_path / "one.csv"
    assert run("export", stored, "--out", str(many), "--tensors", "h.0.attn.q, logits", "--tensors", "tokens@0") == 0
    assert f"5 tensors of trace {stored[:12]}" in capsys.readouterr().out
    back = load_file(many)
    assert set(back) == {"tokens", "h.0.attn.q", "h.0.attn.q@1", "logits", "logits@1"}
    assert np.array_equal(back["logits@1"].numpy(), api.values(f"{trace}/tensors/logits.npy?step=1"))
    assert run("export", stored, "--out", str(one), "--tensors", "h.0.ln_1.u@1") == 0
    assert one.read_text() == api.ask("GET", f"{trace}/tensors/h.0.ln_1.u.csv?step=1").text
    assert run("export", stored, "--out", str(one.with_suffix(".npy")), "--tensors", "logits") == 0
    assert np.array_equal(np.load(one.with_suffix(".npy")), api.values(f"{trace}/tensors/logits.npy"))
    assert run("export", stored, "--out", str(one.with_suffix(".npz")), "--tensors", "h.ln_1.u") == 0


@pytest.mark.parametrize(
    "options",
    [["x.csv"], ["x.csv", "--tensors", "h.attn.q"], ["x.npz", "--values"], ["site", "--tensors", "logits"],
     ["x.npz", "--tensors", "nothing"], ["no/x.npz"], ["site", "--parameters"]],
)  # fmt: skip
def test_the_command_refuses_what_makes_no_sense(stored: str, tmp_path: Path, options: list[str]) -> None:
    assert run("export", stored, "--out", str(tmp_path / options[0]), *options[1:]) == 2
    assert list(tmp_path.iterdir()) == []
