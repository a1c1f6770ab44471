"""`import provenance`: its names, and objects that say what they are in text and as HTML."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import provenance
from app.explorer import Explorer
from app.settings import Settings
from provenance import places
from provenance.citing import Format
from provenance.errors import AmbiguousName, InvalidAddress, InvalidInput, OutOfRange, UnknownSite, UnknownTrace
from provenance.gpt2.model import GPT2
from provenance.models import Models
from provenance.notebook.cards import card, code, element, lines_of_code, percent
from provenance.notebook.picture import picture_of
from provenance.notebook.run import Run
from provenance.notebook.trace import Trace
from provenance.notebook.workspace import Workspace
from provenance.recorder import Replayer
from provenance.store import TraceStore
from provenance.summary import summarize
from provenance.trace import Trace as Stored
from tests.conftest import TINY, Tapped, tapped_run
from tests.html_tree import Node, tree

ROOT = Path(__file__).resolve().parents[1]


class OneModel(Models):
    """Gives the tiny model, under whatever name."""

    def __init__(self, model: GPT2) -> None:
        super().__init__()
        self.model = model

    def get(self, name: str, dtype: str = "float32") -> GPT2:
        return self.model

    def _tokenizer(self, name: str) -> None:
        return None


@pytest.fixture(scope="module")
def trace(tiny_model: GPT2, tiny_store: TraceStore, tiny_trace: Stored) -> Trace:
    return Trace(Run(tiny_trace, tiny_store, OneModel(tiny_model), Replayer()))


@pytest.fixture(scope="module")
def tapped(tiny_model: GPT2) -> Tapped:
    return tapped_run(tiny_model)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("data"))


def html_of(thing: object) -> Node:
    """The card of an object: well formed, without a script, a handler or anything from elsewhere."""
    source: str = thing._repr_html_()  # type: ignore[attr-defined]
    found = tree(source)
    assert not found.all("script")
    for node in found.elements:
        assert not [name for name in node.attributes if name.startswith("on")]
        assert node.attributes.get("src", "data:").startswith("data:")
        assert node.attributes.get("href", "http").startswith("http")
    found.one("div", "tp-card")
    return found


def text_of(node: Node) -> str:
    """The text of a card without its style."""
    style = node.one("style").text
    return node.text.replace(style, "", 1)


# --- the names ---


def test_every_public_name_is_documented_in_the_package_and_at_its_object() -> None:
    rows = re.findall(r"^    (\w+(?:, \w+)*)  +\w", provenance.__doc__ or "", re.MULTILINE)
    assert sorted(name for row in rows for name in row.split(", ")) == provenance.__all__
    assert all(getattr(provenance, name).__doc__ for name in provenance.__all__)
    assert set(provenance.__all__) <= set(dir(provenance))


def test_no_public_name_is_that_of_a_module() -> None:
    # Importing such a module would put it in the place of the function.
    modules = {path.stem for path in (ROOT / "provenance").iterdir()}
    assert not modules & set(provenance.__all__)


def test_checkers_see_the_same_names_as_the_interpreter() -> None:
    parsed = ast.parse((ROOT / "provenance" / "__init__.py").read_text())
    (checked, _) = [node for node in parsed.body if isinstance(node, ast.If)]
    seen = {
        alias.name: node.module for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen == provenance._MODULE_OF
    assert sorted(seen) == provenance.__all__
    assert (ROOT / "provenance" / "py.typed").is_file()


@pytest.mark.slow
def test_a_checker_knows_what_a_trace_gives(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import provenance\n"
        "reveal_type(provenance.record('x')['wte'].numpy())\n"
        "reveal_type(provenance.cite(provenance.site('wte')))\n"
        "provenance.record(1)\n"
        "provenance.recrod\n"
    )
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(script)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    assert [line.split(":", 2)[1] for line in said] == ["2", "3", "4", "5"]
    assert "numpy.ndarray" in said[0]
    assert '"provenance.notebook.evidence.Written"' in said[1]
    assert 'expected "str | Iterable[int] | None"' in said[2]
    assert 'no attribute "recrod"' in said[3]


def test_sites_are_read_without_torch_and_numpy() -> None:
    script = (
        "import sys, provenance\n"
        "before = set(sys.modules)\n"
        "provenance.cite(provenance.site('softmax(w)'), 'bibtex')\n"
        "provenance.search('mlp')._repr_html_(), provenance.sites()[0]._repr_html_()\n"
        "print('numpy' in sys.modules, 'torch' in sys.modules, 'pydantic' in before)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False False False\n"


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'recrod'"):
        provenance.recrod  # noqa: B018


# --- sites and citations ---


def test_a_site_is_found_by_any_name_and_says_who_says_so() -> None:
    site = provenance.site("blocks.3.attn.hook_pattern")
    assert site == provenance.site("softmax(w)") == provenance.site("h.attn.pattern")
    assert (site.site, site.name, site.shape) == ("h.attn.pattern", "softmax(w)", "[B batch, 12 head, T, S]")
    assert [found.site for found in site.inputs] == ["h.attn.softmax.ex"]
    assert [found.site for found in site.readers] == ["h.attn.context"]
    first = site.evidence[0]
    assert first.context.produces
    assert first.permalink in site.cite("url").split("\n")
    assert first.text.split("\n")[-1].strip().startswith("w =")
    assert repr(site).startswith("<Site h.attn.pattern [B batch, 12 head, T, S]: Attention pattern>")


def test_the_card_of_a_site_shows_the_cited_lines_and_their_permalink() -> None:
    found = html_of(provenance.site("softmax(w)"))
    evidence = [cited for cited in provenance.site("softmax(w)").evidence if cited.context.produces]
    quotes = found.all("blockquote")
    assert len(quotes) == len(evidence) == 2
    for quote, cited in zip(quotes, evidence, strict=True):
        assert quote.one("a").attributes["href"] == cited.permalink
        numbers = [line.number for run in cited.excerpt.runs for line in run.lines]
        shown = [line.split()[0] for line in quote.one("pre").text.split("\n") if "omitted" not in line]
        assert shown == [str(number) for number in numbers]


def test_wrong_names_of_sites_raise_with_what_would_do() -> None:
    with pytest.raises(UnknownSite) as unknown:
        provenance.site("h.attn.patern")
    assert "h.attn.pattern" in unknown.value.near
    with pytest.raises(AmbiguousName) as ambiguous:
        provenance.site("x")
    assert len(ambiguous.value.candidates) == 9


def test_a_search_finds_the_best_first_and_close_names_otherwise() -> None:
    assert provenance.search("attention pattern")[0].site == "h.attn.pattern"
    assert "h.attn.pattern" in [site.site for site in provenance.search("atention patern")]
    assert [site.site for site in provenance.sites()[:2]] == ["tokens", "wpe"]
    assert len(html_of(provenance.sites()).all("tr")) == 1 + len(provenance.sites())


@pytest.mark.parametrize("format", Format)
def test_everything_can_be_cited_in_each_format(trace: Trace, format: Format) -> None:
    site = provenance.site("softmax(w)")
    assert (
        provenance.cite("softmax(w)", format)
        == site.cite(format)
        == provenance.cite(trace["h.1.attn.pattern"], format)
    )
    if format in (Format.URL, Format.SWHID):
        with pytest.raises(InvalidInput):
            provenance.cite(trace, format)
    else:
        assert trace.id[:12] in provenance.cite(trace, format)


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match=r"no citation format 'apa'.*bibtex"):
        provenance.cite("softmax(w)", "apa")


# --- tensors ---


def test_every_tensor_of_a_step_comes_in_order_with_its_values(trace: Trace, tapped: Tapped) -> None:
    for step, ending in ((0, ""), (2, "@2")):
        found = list(trace.tensors(step))
        expected = [
            name for name in tapped.tensors if name[name.find("@") :] == ending or not (ending or "@" in name)
        ]
        assert sorted(tensor.address for tensor in found) == sorted(expected)
        for tensor in found[::7]:
            assert torch.equal(tensor.torch(), tapped.tensors[tensor.address])


@pytest.mark.parametrize(
    ("name", "layer", "step", "address"),
    [
        ("h.1.attn.pattern", None, None, "h.1.attn.pattern"),
        ("h.1.attn.pattern@2", None, None, "h.1.attn.pattern@2"),
        ("h.1.attn.pattern", None, 2, "h.1.attn.pattern@2"),
        ("softmax(w)", 1, 2, "h.1.attn.pattern@2"),
        ("softmax(w)@2", 1, None, "h.1.attn.pattern@2"),
        ("blocks.1.attn.hook_pattern", None, None, "h.1.attn.pattern"),
        ("blocks.1.attn.hook_pattern@2", None, 2, "h.1.attn.pattern@2"),
        ("transformer.h.2.mlp.c_fc", None, None, "h.2.mlp.c_fc.c"),
        ("h.attn.past", 1, None, None),
        ("wte", None, None, "wte"),
    ],
)
def test_a_tensor_is_had_by_any_of_its_names(
    trace: Trace, name: str, layer: int | None, step: int | None, address: str | None
) -> None:
    if address is None:
        with pytest.raises(UnknownSite):
            trace.tensor(name, layer=layer, step=step)
    else:
        assert trace.tensor(name, layer=layer, step=step).address == address


def test_a_name_without_a_step_means_the_first_in_which_it_exists(trace: Trace) -> None:
    late = next(row.site for row in trace._run.catalogue if not row.steps.cover(0))
    assert trace.tensor(late, layer=0).address.endswith("@1")


@pytest.mark.parametrize(
    ("name", "options", "error", "says"),
    [
        ("c", {"layer": 0}, AmbiguousName, "h.mlp.c_fc.c"),
        ("softmax(w)", {}, InvalidAddress, "layer=0 to layer=2"),
        ("h.1.attn.pattern", {"layer": 2}, InvalidAddress, "says layer 1, and layer= says 2"),
        ("h.1.attn.pattern@1", {"step": 2}, InvalidAddress, "says step 1, and step= says 2"),
        ("h.3.attn.pattern", {}, OutOfRange, "layers 0 to 2"),
        ("h.0.attn.pattern@4", {}, OutOfRange, "steps 0 .prefill. to 3"),
        ("h.0.attn.patern", {}, UnknownSite, "Did you mean h.attn.pattern"),
        ("no@where", {}, UnknownSite, "no@where"),
        ("@2", {}, UnknownSite, "@2"),
    ],
)
def test_a_wrong_name_raises_with_what_would_do(
    trace: Trace, name: str, options: dict[str, int], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        trace.tensor(name, **options)


def test_a_tensor_is_an_array_to_numpy_and_a_copy(trace: Trace, tapped: Tapped) -> None:
    tensor = trace["h.1.attn.pattern"]
    expected = tapped.tensors["h.1.attn.pattern"].numpy()
    assert np.array_equal(np.asarray(tensor), expected)
    assert np.array_equal(np.asarray(tensor, dtype=np.float64), expected.astype(np.float64))
    assert (tensor.shape, tensor.axes, tensor.dtype) == ((1, 3, 6, 6), ("batch", "head", "T", "S"), "float32")
    assert tensor[0, 1, 5, 2] == expected[0, 1, 5, 2]
    assert len(tensor) == 1
    tensor.numpy()[:] = 7.0
    tensor.torch()[:] = 7.0
    assert np.array_equal(tensor.numpy(), expected)
    with pytest.raises(ValueError, match="always copied"):
        np.array(tensor, copy=False)


def test_statistics_are_numpys_over_the_cells_that_are_not_masked(trace: Trace) -> None:
    tensor = trace["h.2.attn.pattern"]
    masked = tensor.masked
    assert masked is not None
    assert np.array_equal(masked[0, 0], ~np.tri(6, dtype=bool))
    cells = tensor.numpy()[~masked].astype(np.float64)
    summary = tensor.summary
    assert summary.count_masked == 3 * 15
    assert summary.mean == pytest.approx(cells.mean(), rel=1e-12)
    assert summary.std == pytest.approx(cells.std(), rel=1e-12)
    assert (summary.minimum, summary.maximum) == (cells.min(), cells.max())
    assert trace["h.2.ln_1.out"].masked is None
    assert repr(tensor) == (
        "<Tensor h.2.attn.pattern [1 batch, 3 head, 6 T, 6 S] float32: Attention pattern>\n"
        f"  min {cells.min():.4g}, max {cells.max():.4g}, mean {cells.mean():.4g}, std {cells.std():.4g}, "
        f"norm {np.sqrt((cells**2).sum()):.4g}, 45 masked"
    )


def test_neighbours_are_tensors_of_the_same_trace(trace: Trace) -> None:
    tensor = trace["h.1.attn.pattern@1"]
    assert [found.address for found in tensor.upstream] == ["h.1.attn.softmax.ex@1"]
    assert [found.address for found in tensor.downstream] == ["h.1.attn.context@1"]
    assert tensor.upstream[0].downstream[-1] == tensor
    assert tensor != trace["h.1.attn.pattern"]


def test_the_card_of_a_tensor_has_shape_statistics_picture_lines_and_link(
    trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{places.PREFIX}PORT", "8123")
    tensor = trace["h.1.attn.pattern@2"]
    found = html_of(tensor)
    text = text_of(found)
    for part in ("softmax(w)", "Attention pattern", "h.1.attn.pattern@2", "[1 batch, 3 head, 1 T, 8 S] float32"):
        assert part in text
    assert f"max {tensor.numpy().max():.4g}" in text
    assert found.one("img").attributes["alt"].startswith("Heatmap: ")
    assert len(found.all("blockquote")) == 2
    page = f"http://127.0.0.1:8123/traces/{trace.id}/h.1.attn.pattern?step=2"
    assert page in [link.attributes["href"] for link in found.all("a")]


def test_a_tensor_whose_model_is_gone_says_so_instead_of_failing(tiny_store: TraceStore, tiny_trace: Stored) -> None:
    orphan = Trace(Run(tiny_trace, tiny_store, Models(), Replayer()))
    assert "cannot be loaded any more" in repr(orphan["h.1.attn.pattern"])
    assert "cannot be loaded any more" in text_of(html_of(orphan["h.1.attn.pattern"]))
    assert "min " in repr(orphan["h.1.resid_post"])


# --- pictures ---


@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 4), (1, 2, 3, 4), (300, 500), (1, 1, 1), (2, 1, 9)])
def test_a_tensor_of_any_shape_has_a_picture_of_its_last_two_axes(shape: tuple[int, ...]) -> None:
    cells = torch.arange(float(np.prod(shape))).reshape(shape)
    drawn = picture_of(cells.numpy(), None, [f"axis {n}" for n in range(len(shape))], summarize(cells))
    assert drawn is not None
    wide, high = (int.from_bytes(drawn.png[at : at + 4], "big") for at in (16, 20))
    assert drawn.png.startswith(b"\x89PNG")
    assert (1 <= wide <= 512) and (1 <= high <= 192)
    if shape == (1, 2, 3, 4):
        assert drawn.says == "axis 2 down, axis 3 across, at axis 1 0; colours from 0 to 22.77"
        assert (wide, high) == (4 * 16, 3 * 16)
    assert ("joined" in drawn.says) == (shape == (300, 500))


def test_a_tensor_without_cells_has_no_picture() -> None:
    empty = torch.zeros(0, 3)
    assert picture_of(empty.numpy(), None, ["a", "b"], summarize(empty)) is None


# --- traces ---


@pytest.mark.slow
def test_a_recording_is_the_one_that_the_explorer_makes(workspace: Workspace, tmp_path: Path) -> None:
    explorer = Explorer(Settings(data_directory=tmp_path, cache_directory=tmp_path / "cache"))
    try:
        before = torch.get_num_threads()
        for options in ({"steps": 1}, {"temperature": 0.5, "seed": 3}, {"edits": ("h.1.attn.pattern[head=2]=0",)}):
            trace = workspace.record("Hello <b>world</b>", **options)  # type: ignore[arg-type]
            recipe = explorer.plan("Hello <b>world</b>", model="demo", **options)  # type: ignore[arg-type]
            assert trace.id == recipe.id
        by_ids = workspace.record([15496, 995])
        assert by_ids == workspace.record("Hello world") == workspace.open_trace(by_ids.id[:8])
        assert torch.get_num_threads() == before
    finally:
        explorer.close()


def test_stored_traces_are_listed_the_newest_first(workspace: Workspace) -> None:
    last = workspace.record("Nothing is newer")
    found = workspace.traces()
    assert found[0] == last
    assert len(found[:1]) == 1
    assert f"{last.id[:12]} demo: 'Nothing is newer'" in repr(found)
    assert "Nothing is newer" in text_of(html_of(found))


def test_the_usual_workspace_lies_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(f"{places.PREFIX}DATA_DIRECTORY", str(tmp_path))
    assert Settings().data_directory == places.data_directory() == tmp_path
    assert len(provenance.traces()) == 0
    with pytest.raises(UnknownTrace):
        provenance.open_trace("0" * 32)


@pytest.mark.slow
def test_what_a_prompt_says_is_no_markup(workspace: Workspace) -> None:
    prompt = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;\u202e"
    trace = workspace.record(prompt)
    for thing in (trace, trace.next_tokens(), trace.lens(), workspace.traces(), trace.cite(), trace["tokens"]):
        html_of(thing)
    shown = "".join(node.text for node in html_of(trace).all("code"))
    assert "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;" in shown
    assert "\u202e" not in shown


def test_a_trace_shows_what_was_run(trace: Trace) -> None:
    assert (
        repr(trace) == f"<Trace {trace.id[:12]} of tiny: '<11> <7> <96> <0> <7> <42>', 6 tokens and 3 decode steps>"
    )
    assert "seeded" in text_of(html_of(trace))
    assert trace.axes["d"] == TINY.n_embd
    assert len(trace.generated) == trace.steps + 1 == 4


def test_predictions_are_the_softmax_of_the_recorded_logits(trace: Trace, tapped: Tapped) -> None:
    for position, row in ((None, tapped.tensors["logits"][0, -1]), (2, tapped.tensors["logits"][0, 2]),
                          (7, tapped.tensors["logits@2"][0, 0])):  # fmt: skip
        expected = torch.softmax(row.double(), dim=-1)
        found = trace.next_tokens(position, top=4)
        assert [prediction.id for prediction in found] == expected.argsort(descending=True)[:4].tolist()
        assert [prediction.probability for prediction in found] == pytest.approx(expected.topk(4).values.tolist())
        assert found.entropy == pytest.approx(float(-(expected * expected.log2()).sum()))
        assert percent(found[0].probability) in text_of(html_of(found))
    with pytest.raises(OutOfRange):
        trace.next_tokens(9)


def test_the_lens_ends_in_the_models_own_prediction(trace: Trace) -> None:
    for position in (None, 7):
        lens = trace.lens(position)
        assert len(lens) == TINY.n_layer + 1
        assert [found.id for found in lens[-1].predictions] == [found.id for found in trace.next_tokens(position, 3)]
        assert len(html_of(lens).all("tr")) == TINY.n_layer + 2
    assert lens[-1].address == "h.2.resid_post@2"


@pytest.mark.slow
def test_a_verification_is_kept_beside_the_trace(workspace: Workspace) -> None:
    trace = workspace.record("To be verified")
    found = provenance.verify(trace)
    assert found.holds
    assert found.report.trace == trace.id
    assert workspace.store.attached(trace.id, "verdict.json") == found.report.model_dump_json()
    assert repr(found).startswith(f"<Verification of trace {trace.id[:12]}: everything that applies was proven>")
    proven = f"{len(found.report.parities)} of {len(found.report.parities)}"
    assert proven in text_of(html_of(found))
    lacking = found.report.model_copy(
        update={"bytes": (found.report.bytes[0].model_copy(update={"problem": "gone"}),)}
    )
    assert "something was not proven" in repr(type(found)(lacking))


@pytest.mark.slow
def test_a_comparison_names_the_first_tensor_that_differs(workspace: Workspace) -> None:
    trace = workspace.record("Compare me")
    same, other = trace.compare(trace), trace.compare(workspace.record("Compare me", edits=["h.2.mlp.h=0"]))
    assert same.agrees
    assert same.first is None
    assert "All of them agree" in repr(same)
    assert not other.agrees
    assert other.first == trace["h.2.mlp.h"]
    assert repr(workspace.traces()[0]).endswith("and 0 decode steps, 1 edit>")
    found = html_of(other)
    assert found.all("tr")[1].text.startswith("h.2.mlp.h")
    assert found.all("blockquote")[0].one("pre").text.split()[0] == str(
        other.first.evidence[0].excerpt.spans[0].first
    )


# --- the cards themselves ---


def test_only_what_is_html_already_enters_as_it_stands() -> None:
    assert element("p", "<b>", code("a<b"), title='"><i>') == (
        '<p title="&quot;&gt;&lt;i&gt;">&lt;b&gt;<code>a&lt;b</code></p>'
    )
    assert element("p", code("x") + "<i>") == "<p>&lt;code&gt;x&lt;/code&gt;&lt;i&gt;</p>"
    assert lines_of_code(["a < b", "\tc"]) == "<pre>a &lt; b\n\tc</pre>"
    assert tree(card("&")).one("div", "tp-card").text.endswith("&")


def test_a_certain_token_is_told_from_an_almost_certain_one() -> None:
    assert [percent(value) for value in (1.0, 0.99999, 0.25, 0.00012345, 0.0)] == [
        "100 %", "> 99.9 %", "25 %", "0.0123 %", "0 %",
    ]  # fmt: skip
