"""The map shows the catalogue's edges and nothing else, lights one tensor, and leads everywhere it points."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urldefrag

import pytest
from test_pages import Client, Html, page

from app.explorer import EXAMPLE, Explorer
from app.main import create_app
from app.map import At, Graph, Item, level_of, neighbourhood
from app.map_layout import layout
from app.map_parts import LEFT, RIGHT, WIDTH, Label
from app.pages.map import map_of_group, map_of_tensor
from app.pages.measures import Measure, by_layer, measure_of, shares
from app.pages.scope import Scope
from app.settings import load_settings
from provenance.catalogue import Across, Group
from provenance.gpt2.catalogue import CATALOGUE
from provenance.names import Address, is_layered
from provenance.trace import Trace

pytestmark = pytest.mark.slow

GROUPS = [None, *(group for top in CATALOGUE.tree for group in top.walk())]
NAMES = [group.slug if group else "model" for group in GROUPS]
BLOCK = CATALOGUE.group("transformer-block")
ALL = {(read.site, row.site, read.across) for row in CATALOGUE for read in row.inputs}


def inside(graph: Graph) -> list[Item]:
    return [item for item in graph.items if item.inside]


def members(group: Group | None) -> list[str]:
    path = group.path if group else ()
    return [row.site for row in CATALOGUE if row.group[: len(path)] == path]


# --- the graph is the catalogue's ---


@pytest.mark.parametrize("group", GROUPS, ids=NAMES)
def test_every_tensor_of_a_group_lies_in_exactly_one_node(group: Group | None) -> None:
    graph = level_of(CATALOGUE, group)
    drawn = [row.site for item in inside(graph) for row in item.rows]
    assert drawn == members(group)
    assert len({item.key for item in graph.items}) == len(graph.items)


@pytest.mark.parametrize("group", GROUPS, ids=NAMES)
def test_the_lines_are_exactly_the_edges_that_touch_the_group(group: Group | None) -> None:
    graph = level_of(CATALOGUE, group)
    own = set(members(group))
    within = {row.site: item.key for item in inside(graph) for row in item.rows}
    touching = {(a, b) for a, b, _ in ALL if {a, b} & own}
    # Edges between tensors of one node are inside it, unless they come round from a layer or step before.
    hidden = {(a, b) for a, b, across in ALL if {a, b} <= own and within[a] == within[b]
              and across not in (Across.PREVIOUS, Across.EARLIER)}  # fmt: skip
    drawn = {edge for flow in graph.flows for edge in flow.edges}
    assert drawn == touching - hidden
    keys = {item.key: item for item in graph.items}
    for flow in graph.flows:
        sources = {row.site for row in keys[flow.source].rows}
        targets = {row.site for row in keys[flow.target].rows}
        assert {a for a, _ in flow.edges} <= sources
        assert {b for _, b in flow.edges} <= targets


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("step", [0, 1, 2])
@pytest.mark.parametrize("site", CATALOGUE.rows)
def test_a_neighbourhood_is_what_the_catalogue_says_of_that_layer_and_step(site: str, layer: int, step: int) -> None:
    row = CATALOGUE.row(site)
    if not row.steps.cover(step):
        return
    address = Address(site, layer if is_layered(site) else None, step)
    graph = neighbourhood(CATALOGUE, row, At(layer, step, layers=3, last_step=2))
    feeding = {flow.source.split("|")[0] for flow in graph.flows if flow.target == site}
    reading = {flow.target.split("|")[0] for flow in graph.flows if flow.source == site}
    assert feeding == {found.site for found in CATALOGUE.inputs_of(address, 3)}
    wanted = {found.site for found in CATALOGUE.readers_of(address, 3, 2)}
    assert reading == wanted


def test_the_model_is_embedding_blocks_and_output() -> None:
    graph = level_of(CATALOGUE, None)
    assert [item.group.path[-1] for item in graph.items if item.group] == ["Embedding", "Transformer block", "Output"]
    names = {item.key: item.group.path[-1] for item in graph.items if item.group}
    assert {(names[flow.source], names[flow.target]) for flow in graph.flows} == {
        ("Embedding", "Transformer block"),
        ("Transformer block", "Transformer block"),
        ("Transformer block", "Output"),
        ("Embedding", "Output"),  # the token table is read again
        ("Output", "Embedding"),  # positions count on from the past
    }


def test_the_residual_stream_is_the_spine_of_the_block() -> None:
    graph = level_of(CATALOGUE, BLOCK, At(1, 0, layers=3, last_step=0))
    spine = [item.rows[0].site for item in graph.items if item.stream]
    assert spine == ["h.resid_post", "h.resid_mid", "h.resid_post"]
    keys = [item.key for item in graph.items if item.stream]
    joined = {(flow.source, flow.target) for flow in graph.flows}
    assert {(keys[0], keys[1]), (keys[1], keys[2])} <= joined
    frames = [item.frame.path[-1] for item in graph.items if item.frame]
    assert list(dict.fromkeys(frames)) == ["Attention", "MLP"]


def test_the_first_block_is_fed_by_the_embeddings_and_the_last_feeds_the_output() -> None:
    def around(layer: int) -> set[str]:
        graph = level_of(CATALOGUE, BLOCK, At(layer, 0, layers=3, last_step=0))
        return {row.site for item in graph.items if not item.inside for row in item.rows}

    assert "embed.h" in around(0)
    assert "h.resid_post" not in around(0)
    assert "embed.h" not in around(1)
    assert not any(site.startswith("ln_f") for site in around(1))
    assert {"ln_f.u", "ln_f.s", "ln_f.normalized"} <= around(2)


# --- the drawing ---


@pytest.mark.parametrize("group", GROUPS, ids=NAMES)
def test_nodes_do_not_overlap_and_lines_go_from_edge_to_edge(group: Group | None) -> None:
    graph = level_of(CATALOGUE, group)
    labels = {item.key: Label(item.rows[0].title, item.rows[0].name) for item in graph.items}
    drawing = layout(graph, labels)
    boxes = {box.key: box for box in drawing.boxes}
    assert list(boxes) == [item.key for item in graph.items]
    for one in drawing.boxes:
        assert one.x >= LEFT
        assert one.x + one.width <= RIGHT + 0.1
        assert one.y + one.height < drawing.height
        for other in drawing.boxes:
            apart = one.x + one.width <= other.x or other.x + other.width <= one.x
            assert one is other or apart or one.y + one.height < other.y or other.y + other.height < one.y
    assert len(drawing.lines) == len(graph.flows)
    for line in drawing.lines:
        numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", line.path)]
        start, end = boxes[line.source], boxes[line.target]
        assert numbers[1] == pytest.approx(start.y + start.height, abs=0.11)
        assert numbers[-1] == pytest.approx(end.y, abs=0.11)
        assert start.x <= numbers[0] <= start.x + start.width
        assert all(0 <= number <= max(WIDTH, drawing.height) for number in numbers)
        if "Q" in line.path:
            assert all(0 <= x <= WIDTH for x in numbers[::2])
            assert all(0 <= y <= drawing.height - 1 for y in numbers[1::2])


def test_a_reader_stands_below_what_it_reads_in_the_same_frame() -> None:
    graph = level_of(CATALOGUE, CATALOGUE.group("transformer-block/attention"))
    drawing = layout(graph, {item.key: Label(item.rows[0].title) for item in graph.items})
    y = {box.key: box.y for box in drawing.boxes}
    assert y["h.ln_1.u"] < y["h.ln_1.s"] < y["h.ln_1.normalized"] < y["h.ln_1.out"] < y["h.attn.c_attn.c"]
    assert y["h.attn.q"] == y["h.attn.k"] == y["h.attn.v"]
    assert y["h.ln_1.g"] == y["h.ln_1.normalized"], "a parameter stands beside what it is used with"


# --- measures ---


def test_a_measure_is_the_root_mean_square_of_the_finite_cells_and_the_fraction_of_nan() -> None:
    import torch

    from provenance.summary import summarize

    plain = measure_of(summarize(torch.tensor([3.0, -4.0, 0.0, 0.0])))
    assert plain == Measure(2.5, 0.0)
    assert plain.text == "RMS 2.5"
    broken = measure_of(summarize(torch.tensor([float("nan"), 3.0, 4.0, float("inf")])))
    assert broken is not None
    assert (broken.rms, broken.nan, broken.text) == (pytest.approx(12.5**0.5), 0.25, "NaN 25 %")
    assert measure_of(summarize(torch.tensor([1, 2]))) is None
    assert shares((Measure(2.0, 0), Measure(None, 1), Measure(4.0, 0))) == (0.5, 0.0, 1.0)


# --- the pages ---


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    directory: Path = tmp_path_factory.mktemp("map")
    app = create_app(
        load_settings(data_directory=directory / "data", cache_directory=directory / "cache",
                      model="tiny-untrained", example=False, network=False)
    )  # fmt: skip
    running = app.router.lifespan_context(app)
    with asyncio.Runner() as runner:
        runner.run(running.__aenter__())
        yield Client(app, runner)
        runner.run(running.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def explorer(client: Client) -> Explorer:
    explorer: Explorer = client.app.state.explorer
    return explorer


@pytest.fixture(scope="module")
def trace(explorer: Explorer) -> Trace:
    return explorer.record(explorer.plan(EXAMPLE, steps=2))


def links(shown: Html) -> list[str]:
    """Addresses of all links inside drawings."""
    start = next(n for n, e in enumerate(shown.elements) if e.tag == "svg")
    return [e.attributes["href"] for e in shown.elements[start:] if e.tag == "a" and "class" in e.attributes
            and e.attributes["class"].split()[0] in ("flow", "node", "frame-title", "layer-bar")]  # fmt: skip


@pytest.mark.parametrize("query", ["", "?trace={id}", "?trace={id}&layer=1&step=1"])
def test_every_link_of_every_map_leads_somewhere(client: Client, trace: Trace, query: str) -> None:
    query = query.replace("{id}", trace.id)
    found: set[str] = set()
    for name in NAMES:
        address = f"/map{'' if name == 'model' else '/' + name}{query}"
        shown = page(client, address)
        found |= {urldefrag(link).url for link in links(shown)}
        assert "style=" not in shown.source
        assert "<style" not in shown.source
    bad = {link: status for link in sorted(found) if (status := client.get(link).status_code) != 200}
    assert not bad
    assert len(found) > 70


def test_a_map_can_light_a_tensor_with_what_feeds_it_and_what_reads_it(client: Client, trace: Trace) -> None:
    shown = page(client, f"/map/transformer-block/attention?trace={trace.id}&layer=1&site=h.attn.scores")
    lit = shown.one("a", class_="lit")
    assert lit.attributes["aria-current"] == "true"
    assert "● here" in lit.text
    assert [
        e.attributes["aria-label"].split(",")[0]
        for e in shown.all("a", class_="feeds")
        if "aria-label" in e.attributes
    ] == ["Raw attention scores"]
    readers = [e for e in shown.all("a", class_="reads") if "node" in e.attributes["class"].split()]
    assert [e.attributes["aria-label"].split(",")[0] for e in readers] == [
        "Query index", "Key index", "Masked attention scores",
    ]  # fmt: skip
    assert all("reads it ↑" in e.text for e in readers)


def test_a_group_is_lit_for_the_tensor_that_it_holds(explorer: Explorer) -> None:
    view = map_of_group(explorer, Scope.of(explorer), BLOCK, "h.ln_2.u")
    assert [node.title for node in view.nodes if node.current] == ["LayerNorm 2"]


def test_each_tensor_page_has_its_neighbourhood(client: Client, explorer: Explorer, trace: Trace) -> None:
    shown = page(client, f"/traces/{trace.id}/h.1.ln_1.u")
    assert shown.one("a", class_="lit").attributes["aria-label"].startswith("LayerNorm 1 mean, this tensor")
    feeding = next(e for e in shown.all("a", class_="node") if "feeds" in e.attributes["class"])
    assert feeding.attributes["href"] == f"/traces/{trace.id}/h.0.resid_post"
    assert "layer 0" in feeding.text
    first = page(client, f"/traces/{trace.id}/h.0.ln_1.u")
    feeding = next(e for e in first.all("a", class_="node") if "feeds" in e.attributes["class"])
    assert feeding.attributes["href"] == f"/traces/{trace.id}/embed.h"
    bare = map_of_tensor(explorer, Scope.of(explorer), CATALOGUE.row("h.ln_1.u"))
    assert {node.url for node in bare.nodes if "feeds" in node.kind} == {"/sites/embed.h", "/sites/h.resid_post"}


def test_bars_and_numbers_are_the_summaries_of_the_layers(client: Client, explorer: Explorer, trace: Trace) -> None:
    tensors = [explorer.tensor(trace, Address("h.resid_post", layer)) for layer in range(trace.layers)]
    wanted = [float(tensor.double().square().mean().sqrt()) for tensor in tensors]
    found = by_layer(explorer, trace, "h.resid_post", 0)
    assert [m.rms for m in found] == pytest.approx(wanted)
    view = map_of_group(explorer, Scope.of(explorer, trace), None)
    bars = next(node.bars for node in view.nodes if node.bars)
    assert [bar.height for bar in bars] == pytest.approx([26 * w / max(wanted) for w in wanted], abs=0.01)
    assert [bar.url for bar in bars][1] == f"/map/transformer-block?trace={trace.id}&layer=1"
    shown = page(client, f"/map/transformer-block?trace={trace.id}&layer=1")
    current = [e for e in shown.all("a", class_="layer-bar") if "aria-current" in e.attributes]
    assert len(current) == 1
    assert current[0].attributes["aria-label"].startswith("layer 1: Residual stream after the block, RMS ")


def test_a_map_replays_nothing(client: Client, explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = explorer.record(explorer.plan("a prompt that nobody looked at"))

    def refuse(*_: object) -> None:
        raise AssertionError("replayed")

    monkeypatch.setattr(explorer.engine.replayer, "tensor", refuse)
    for name in NAMES:
        address = f"/map{'' if name == 'model' else '/' + name}?trace={fresh.id}"
        assert client.get(address).status_code == 200


@pytest.mark.parametrize("address", ["/map/nothing", "/map?site=h.nothing", "/map?trace=00"])
def test_a_map_of_what_is_not_there_is_an_error_page(client: Client, address: str) -> None:
    assert client.get(address).status_code == 404
