"""The catalogue: what it lists, how its edges fit together, and that its places exist in the cited files."""

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path

import pytest

from provenance.catalogue import Catalogue, Intermediate, Kind, Operation, Point, Read
from provenance.catalogues import CATALOGUES, OUTLINES
from provenance.citation import Citation, Pin
from provenance.errors import UnknownSite
from provenance.gpt2.catalogue import AXES, CATALOGUE, GPT2_SMALL
from provenance.gpt2.config import TIED, UNTIED
from provenance.gpt2.config import Config as GPT2Config
from provenance.gpt2.operations import OPERATIONS
from provenance.gpt2.pins import OPENAI, PINS, TRANSFORMERS
from provenance.gpt2.rows_attention import ATTENTION
from provenance.gpt2.rows_mlp import MLP
from provenance.gpt2.rows_model import EMBEDDING, OUTPUT
from provenance.gpt2.rows_qkv import QKV
from provenance.names import Address, is_layered
from provenance.sources import check, git_blob_id
from provenance.textbook.config import Config as TextbookConfig
from provenance.variants import catalogue_of, exists_in

LAYERS, LAST_STEP = 3, 2
POINTS = [(row, point) for row in CATALOGUE for point in row.points]
CITED = [(operation, evidence) for operation in OPERATIONS for evidence in operation.evidence]

TEXTBOOK = CATALOGUES["textbook"]
ROWS = [
    pytest.param(catalogue, row, id=f"{catalogue.family}-{row.site}")
    for catalogue in CATALOGUES.values()
    for row in catalogue
]
TEXTBOOKS = {
    config.name: catalogue_of(TEXTBOOK, config.variants)
    for norm in ("post", "pre")
    for causal in (False, True)
    for positions in ("sinusoidal", "learned", "none")
    for config in [TextbookConfig(norm=norm, causal=causal, positions=positions)]  # type: ignore[arg-type]
}
"""The catalogue of every kind of textbook model."""
MODELS = {**CATALOGUES, **TEXTBOOKS}

every_family = pytest.mark.parametrize("catalogue", CATALOGUES.values(), ids=CATALOGUES)
every_model = pytest.mark.parametrize("catalogue", MODELS.values(), ids=MODELS)

SITES = """
    tokens wpe wte embed.tokens positions embed.positions embed.h
    h.ln_1.g h.ln_1.b h.ln_1.u h.ln_1.s h.ln_1.normalized h.ln_1.out
    h.attn.c_attn.w h.attn.c_attn.b h.attn.c_attn.c h.attn.q h.attn.k h.attn.v
    h.attn.present h.past h.attn.pk h.attn.pv h.attn.k_all h.attn.v_all
    h.attn.scores_raw h.attn.scores
    h.attn.mask.i h.attn.mask.j h.attn.mask.m h.attn.mask.b h.attn.mask.broadcast
    h.attn.scores_masked h.attn.softmax.x h.attn.softmax.ex h.attn.pattern
    h.attn.context h.attn.merged h.attn.c_proj.w h.attn.c_proj.b h.attn.out h.resid_mid
    h.ln_2.g h.ln_2.b h.ln_2.u h.ln_2.s h.ln_2.normalized h.ln_2.out
    h.mlp.c_fc.w h.mlp.c_fc.b h.mlp.c_fc.c h.mlp.h h.mlp.c_proj.w h.mlp.c_proj.b h.mlp.h2 h.resid_post
    presents
    ln_f.g ln_f.b ln_f.u ln_f.s ln_f.normalized ln_f.out
    h_flat lm_head.w logits_flat logits
""".split()  # noqa: SIM905 - a list would take 73 lines

TEXTBOOK_SITES = """
    x pe.pos pe.div pe.angle pe pe.learned embed.positions embed.h
    h.norm1.g h.norm1.b h.pre.norm1.mean h.pre.norm1.var h.pre.norm1.normalized h.pre.norm1.out
    h.attn.in_proj.w h.attn.in_proj.b h.attn.qkv h.attn.q h.attn.k h.attn.v
    h.attn.score_raw h.attn.score h.attn.mask h.attn.score_masked h.attn.weight
    h.attn.context h.attn.merged h.attn.out_proj.w h.attn.out_proj.b h.attn.out h.resid_mid
    h.post.norm1.mean h.post.norm1.var h.post.norm1.normalized h.post.norm1.out
    h.norm2.g h.norm2.b h.pre.norm2.mean h.pre.norm2.var h.pre.norm2.normalized h.pre.norm2.out
    h.mlp.fc.w h.mlp.fc.b h.mlp.hidden h.mlp.gelu h.mlp.proj.w h.mlp.proj.b h.mlp.out h.resid_post
    h.post.norm2.mean h.post.norm2.var h.post.norm2.normalized h.post.norm2.out
    norm_f.g norm_f.b norm_f.mean norm_f.var norm_f.normalized norm_f.out
""".split()  # noqa: SIM905


@lru_cache
def source(pin: Pin) -> bytes:
    """The pinned file from its installed package, with the blob id checked."""
    package = pin.blobs[0].packages[0]
    installed = metadata.distribution(package.distribution)
    assert installed.version == package.version
    content = Path(str(installed.locate_file(package.file))).read_bytes()
    assert git_blob_id(content) == pin.blobs[0].id
    return content


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.lower())


# --- the list ---


def test_these_are_all_sites_in_order_of_computation() -> None:
    assert [row.site for row in CATALOGUE] == SITES
    assert [row.site for row in TEXTBOOK] == TEXTBOOK_SITES


def test_no_row_or_operation_is_listed_twice() -> None:
    rows = (*EMBEDDING, *QKV, *ATTENTION, *MLP, *OUTPUT)
    assert len({row.site for row in rows}) == len(rows)
    assert len({operation.id for operation in OPERATIONS}) == len(OPERATIONS)
    assert len({operation.title for operation in OPERATIONS}) == len(OPERATIONS)
    assert len({axis.symbol for axis in AXES}) == len(AXES)


@every_family
def test_no_two_sites_and_no_two_operations_have_the_same_title(catalogue: Catalogue) -> None:
    for named in (catalogue, catalogue.operations.values()):
        titles = [one.title for one in named]
        assert sorted(set(titles)) == sorted(titles)


@pytest.mark.parametrize(("catalogue", "row"), ROWS)
def test_a_site_has_a_name_title_sentence_group_and_formula(catalogue: Catalogue, row: Intermediate) -> None:
    assert isinstance(ast.parse(row.name, mode="eval"), ast.Expression)
    assert row.title[0].isupper()
    assert not row.title.endswith(".")
    assert row.description[0].isupper()
    assert re.fullmatch(r"[^.]+\.", row.description.replace("ln_1.", "")), "one sentence, one full stop"
    assert len(row.description) <= 120
    assert row.group[0] in ("Model", "Transformer block")
    assert (row.group[0] == "Transformer block") == is_layered(row.site)
    assert row.formula.strip()
    assert catalogue.operation_of(row).formula.strip()


@every_model
def test_every_operation_produces_a_site(catalogue: Catalogue) -> None:
    assert {row.operation for row in catalogue} == catalogue.operations.keys()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
def test_an_operation_has_evidence_in_both_sources(operation: Operation) -> None:
    assert {evidence.citation.pin for evidence in operation.evidence} == set(PINS)
    for evidence in operation.evidence:
        assert evidence.claim[0].isupper() or evidence.claim.startswith(("nn.", "c_", "wte", "wpe", "lm_head"))
        assert evidence.claim.endswith(".")
        assert evidence.label in ("openai", "transformers", "linear-operation")


@every_model
def test_only_parameters_constants_and_the_input_have_no_inputs_in_the_prefill(catalogue: Catalogue) -> None:
    for row in catalogue:
        address = Address(row.site, 1 if is_layered(row.site) else None, 0 if row.steps.cover(0) else 1)
        reads = bool(catalogue.inputs_of(address, LAYERS))
        assert reads == (row.kind is not Kind.PARAMETER and row.site not in ("tokens", "x", "pe.pos", "pe.div"))


@every_model
def test_what_no_row_reads_is_the_result(catalogue: Catalogue) -> None:
    unread = {row.site for row in catalogue if not catalogue.readers(row.site)}
    assert unread <= {"logits", "norm_f.out", "h.post.norm2.out"}


def test_an_unknown_site_is_refused_with_near_matches() -> None:
    with pytest.raises(UnknownSite) as refused:
        CATALOGUE.row("h.attn.scors")
    assert refused.value.near[0] == "h.attn.scores"
    assert str(refused.value).startswith("There is no tensor named 'h.attn.scors'. Did you mean h.attn.scores")
    with pytest.raises(UnknownSite, match="Search for it"):
        CATALOGUE.row("zzzzzzzzzzzz")


@pytest.mark.parametrize("change", ["operation", "shape", "inputs", "masked_by"])
def test_a_catalogue_that_names_something_unknown_cannot_be_built(change: str) -> None:
    wrong: dict[str, object] = {
        "operation": "nothing",
        "shape": ("B", "Ω"),
        "inputs": (Read("nothing"),),
        "masked_by": "nothing",
    }
    rows = [replace(row, **{change: wrong[change]}) if row.site == "wte" else row for row in CATALOGUE]  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="wte names"):
        Catalogue("gpt2", rows, OPERATIONS, AXES)


# --- variants ---


def test_a_model_s_catalogue_has_the_output_matrix_only_where_its_output_is_untied() -> None:
    tied, untied = (catalogue_of(CATALOGUE, frozenset((variant,))) for variant in (TIED, UNTIED))
    assert [row.site for row in untied] == SITES
    assert [row.site for row in tied] == [site for site in SITES if site != "lm_head.w"]
    assert [read.site for read in tied.row("logits_flat").inputs] == ["h_flat", "wte"]
    assert [read.site for read in untied.row("logits_flat").inputs] == ["h_flat", "lm_head.w"]
    assert untied.operations.keys() - tied.operations.keys() == {"head_parameters"}
    assert [row.site for row in untied.readers("wte")] == ["embed.tokens"]
    assert [row.site for row in tied.readers("wte")] == ["embed.tokens", "logits_flat"]


def test_a_row_says_in_which_models_it_exists() -> None:
    assert exists_in(CATALOGUE.row("lm_head.w")) == "every step, in models with an untied output only"
    assert exists_in(CATALOGUE.row("h.past")) == "decode steps only"
    assert exists_in(TEXTBOOK.row("h.attn.mask")) == "every step, in models with a causal mask only"
    assert exists_in(TEXTBOOK.row("pe.learned")) == "every step, in models with learned positions only"
    assert exists_in(TEXTBOOK.row("norm_f.g")) == "every step, in models with pre-norm only"


def test_every_row_and_edge_is_in_the_catalogue_of_some_model() -> None:
    for family, models in (
        (CATALOGUE, [catalogue_of(CATALOGUE, GPT2Config(tied=tied).variants) for tied in (True, False)]),
        (TEXTBOOK, list(TEXTBOOKS.values())),
    ):
        assert {row.site for row in family} == {row.site for model in models for row in model}
        edges = {(row.site, read) for row in family for read in row.inputs}
        assert edges == {(row.site, read) for model in models for row in model for read in row.inputs}


def test_a_textbook_model_s_catalogue_follows_its_options() -> None:
    post, pre = TEXTBOOKS["textbook"], TEXTBOOKS["textbook-pre-causal-nopos"]
    parts = ("mean", "var", "normalized", "out")
    assert [site for site in TEXTBOOK_SITES if site not in post.rows] == [
        "pe.learned", *(f"h.pre.norm1.{part}" for part in parts), "h.attn.mask", "h.attn.score_masked",
        *(f"h.pre.norm2.{part}" for part in parts), *(f"norm_f.{part}" for part in ("g", "b", *parts)),
    ]  # fmt: skip
    assert (post.row("h.attn.weight").masked_by, pre.row("h.attn.weight").masked_by) == (None, "h.attn.mask")
    assert [row.site for row in pre][:2] == ["x", "h.norm1.g"]
    assert "add_positions" not in pre.operations


# --- the reference page's case ---


def test_the_normalized_attention_input_has_the_reference_page_s_five_entries_in_order() -> None:
    row = CATALOGUE.row("h.ln_1.out")
    assert (row.name, row.title) == ("norm(x, 'ln_1')", "Normalized attention input")
    assert row.group[:2] == ("Transformer block", "Attention")
    assert CATALOGUE.shape(row, GPT2_SMALL) == "[B batch, T, 768 d]"
    assert CATALOGUE.shape(row, GPT2_SMALL, decode=True) == "[B batch, 1, 768 d]"
    openai, transformers = "9b63575ef42771a015060c964af2c3da4cf7c8ab", "71c6f699ac9b3f8fc42a6a3e9dc59034c349a678"
    modeling = "src/transformers/models/gpt2/modeling_gpt2.py"
    norm, qkv = "Pre-attention LayerNorm", "Fused Q, K, V projection"
    found = [
        (c.operation.title, c.evidence.label, pin.repository, pin.revision, pin.path, cited.lines, cited.gaps)
        for c in CATALOGUE.context("h.ln_1.out")
        for cited in [c.evidence.citation]
        for pin in [cited.pin]
    ]
    assert found == [
        (norm, "openai", "openai/gpt-2", openai, "src/model.py", "28–38", ()),
        (norm, "transformers", "huggingface/transformers", transformers, modeling, "252–273", ((253, 271),)),
        (qkv, "linear-operation", "openai/gpt-2", openai, "src/model.py", "50–56", ()),
        (qkv, "openai", "openai/gpt-2", openai, "src/model.py", "101–104", ()),
        (qkv, "transformers", "huggingface/transformers", transformers, modeling, "185–191", ()),
    ]
    assert [context.produces for context in CATALOGUE.context("h.ln_1.out")] == [True, True, False, False, False]


# --- the edges ---


def every_address(catalogue: Catalogue) -> Iterator[Address]:
    for row in catalogue:
        for layer in range(LAYERS) if is_layered(row.site) else (None,):
            for step in range(LAST_STEP + 1):
                if row.steps.cover(step):
                    yield Address(row.site, layer, step)


@every_model
def test_inputs_and_readers_are_inverse_to_each_other(catalogue: Catalogue) -> None:
    addresses = list(every_address(catalogue))
    edges = {(read, a) for a in addresses for read in catalogue.inputs_of(a, LAYERS)}
    assert {read for read, _ in edges} <= set(addresses), "an input that does not exist in that step"
    backwards = {(a, reader) for a in addresses for reader in catalogue.readers_of(a, LAYERS, LAST_STEP)}
    assert edges == backwards


@every_model
def test_what_is_read_stands_before_its_reader(catalogue: Catalogue) -> None:
    order = {row.site: number for number, row in enumerate(catalogue)}
    block = min(order[site] for site in order if is_layered(site))

    def when(address: Address) -> tuple[int, int, int]:
        after = -1 if address.layer is None and order[address.site] < block else LAYERS
        return address.step, after if address.layer is None else address.layer, order[address.site]

    for address in every_address(catalogue):
        assert all(when(read) < when(address) for read in catalogue.inputs_of(address, LAYERS)), str(address)


@pytest.mark.parametrize(
    ("address", "inputs"),
    [
        ("h.0.ln_1.u", ["embed.h"]),
        ("h.2.ln_1.u@1", ["h.1.resid_post@1"]),
        ("ln_f.u", ["h.2.resid_post"]),
        ("h.1.attn.scores_raw", ["h.1.attn.q", "h.1.attn.k"]),
        ("h.1.attn.scores_raw@2", ["h.1.attn.q@2", "h.1.attn.k_all@2"]),
        ("presents@1", ["h.0.attn.present@1", "h.1.attn.present@1", "h.2.attn.present@1"]),
        ("h.0.past@2", ["h.0.attn.present", "h.0.attn.present@1"]),
        ("positions", ["tokens"]),
        ("h.1.resid_mid", ["h.0.resid_post", "h.1.attn.out"]),
    ],
)
def test_inputs_worked_out_by_hand(address: str, inputs: list[str]) -> None:
    found = CATALOGUE.inputs_of(Address.parse(address), LAYERS)
    assert [str(read) for read in found if CATALOGUE.row(read.site).kind is not Kind.PARAMETER] == inputs


@pytest.mark.parametrize(
    ("model", "address", "inputs"),
    [
        ("textbook", "h.0.attn.qkv", ["embed.h"]),
        ("textbook", "h.2.attn.qkv", ["h.1.post.norm2.out"]),
        ("textbook-causal-nopos", "h.0.attn.qkv", ["x"]),
        ("textbook-pre", "h.0.attn.qkv", ["h.0.pre.norm1.out"]),
        ("textbook-pre-nopos", "h.0.pre.norm1.var", ["x", "h.0.pre.norm1.mean"]),
        ("textbook-pre", "h.1.pre.norm1.mean", ["h.0.resid_post"]),
        ("textbook", "h.1.resid_mid", ["h.0.post.norm2.out", "h.1.attn.out"]),
        ("textbook-pre", "h.1.resid_mid", ["h.0.resid_post", "h.1.attn.out"]),
        ("textbook", "h.1.mlp.hidden", ["h.1.post.norm1.out"]),
        ("textbook", "h.1.resid_post", ["h.1.post.norm1.out", "h.1.mlp.out"]),
        ("textbook-pre", "h.1.resid_post", ["h.1.resid_mid", "h.1.mlp.out"]),
        ("textbook", "h.0.attn.weight", ["h.0.attn.score"]),
        ("textbook-causal", "h.0.attn.weight", ["h.0.attn.score_masked"]),
        ("textbook-learned", "embed.positions", ["x"]),
        ("textbook", "embed.positions", ["x", "pe"]),
        ("textbook-pre", "norm_f.mean", ["h.2.resid_post"]),
    ],
)
def test_a_textbook_model_s_inputs_worked_out_by_hand(model: str, address: str, inputs: list[str]) -> None:
    catalogue = TEXTBOOKS[model]
    found = catalogue.inputs_of(Address.parse(address), LAYERS)
    assert [str(read) for read in found if catalogue.row(read.site).kind is not Kind.PARAMETER] == inputs


def test_readers_worked_out_by_hand() -> None:
    readers = CATALOGUE.readers_of(Address.parse("h.0.resid_post"), LAYERS, LAST_STEP)
    assert [str(reader) for reader in readers] == [
        "h.1.ln_1.u", "h.1.ln_1.s", "h.1.ln_1.normalized", "h.1.resid_mid",
    ]  # fmt: skip
    assert CATALOGUE.readers_of(Address.parse("logits"), LAYERS, LAST_STEP) == ()


@every_model
def test_the_tree_holds_every_site_once(catalogue: Catalogue) -> None:
    rows = [row.site for top in catalogue.tree for group in top.walk() for row in group.rows]
    assert sorted(rows) == sorted(catalogue.rows)
    groups = [group for top in catalogue.tree for group in top.walk()]
    assert len({group.slug for group in groups}) == len(groups)
    assert all(catalogue.group(group.slug) == group for group in groups)


def test_an_unknown_group_is_refused_with_near_ones() -> None:
    with pytest.raises(UnknownSite, match="transformer-block/attention"):
        CATALOGUE.group("transformer-block/attenton")


# --- shapes ---


@every_family
def test_shapes_use_the_axes_of_the_glossary_and_all_of_them(catalogue: Catalogue) -> None:
    assert {symbol for row in catalogue for symbol in row.shape} == set(catalogue.axes)
    assert OUTLINES[catalogue.family].example.keys() <= catalogue.axes.keys()


@pytest.mark.parametrize(
    ("site", "prefill", "decode"),
    [
        ("logits", "[B batch, T, 50257 vocab]", "[B batch, 1, 50257 vocab]"),
        ("h.attn.pattern", "[B batch, 12 head, T, S]", "[B batch, 12 head, 1, P+1]"),
        ("h.attn.c_attn.w", "[1, 768 d, 2304 3d]", "[1, 768 d, 2304 3d]"),
        ("presents", "[B batch, 12 layer, 2 k/v, 12 head, T, 64 head_dim]",
         "[B batch, 12 layer, 2 k/v, 12 head, 1, 64 head_dim]"),
        ("h_flat", "[B·T, 768 d]", "[B, 768 d]"),
        ("wpe", "[1024 context, 768 d]", "[1024 context, 768 d]"),
    ],
)  # fmt: skip
def test_symbolic_shapes_of_gpt2_small(site: str, prefill: str, decode: str) -> None:
    row = CATALOGUE.row(site)
    assert CATALOGUE.shape(row, GPT2_SMALL) == prefill
    assert CATALOGUE.shape(row, GPT2_SMALL, decode=True) == decode


@pytest.mark.parametrize(
    ("site", "shape"),
    [
        ("x", "[B batch, T, 64 d]"),
        ("h.attn.score", "[B batch, 8 head, T, S]"),
        ("h.attn.q", "[B batch, 8 head, T, 8 head_dim]"),
        ("h.attn.in_proj.w", "[192 3d, 64 d]"),
        ("h.mlp.proj.w", "[64 d, 256 mlp]"),
        ("pe.angle", "[512 max_len, 32 freq]"),
    ],
)
def test_symbolic_shapes_of_the_textbook_s_default(site: str, shape: str) -> None:
    assert TEXTBOOK.shape(TEXTBOOK.row(site), TextbookConfig().constants) == shape


# --- the cited files ---


def test_an_operation_of_the_textbook_has_equations_alone() -> None:
    assert all(operation.evidence == () for operation in TEXTBOOK.operations.values())
    assert all(row.points == () for row in TEXTBOOK)


@pytest.mark.parametrize(
    "citation",
    [pytest.param(e.citation, id=f"{o.id}-{e.citation.pin.label}-{e.citation.lines}") for o, e in CITED],
)
def test_anchors_stand_at_their_pinned_lines(citation: Citation) -> None:
    for span in citation.spans:
        check(source(citation.pin), span)


def test_pins_give_full_revisions_and_blob_ids() -> None:
    assert all(re.fullmatch("[0-9a-f]{40}", pin.revision) for pin in PINS)
    assert all(re.fullmatch("[0-9a-f]{40}", blob.id) for pin in PINS for blob in pin.blobs)
    assert (len(source(OPENAI)), source(OPENAI).count(b"\n")) == (6503, 174)
    assert source(TRANSFORMERS).count(b"\n") == 1136


@lru_cache
def functions() -> dict[str, ast.FunctionDef]:
    """Every function of OpenAI's file by its qualified name."""
    found: dict[str, ast.FunctionDef] = {}

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef):
                found[prefix + node.name] = node
                visit(node.body, f"{prefix}{node.name}.")

    visit(ast.parse(source(OPENAI)).body, "")
    return found


def statements_at(function: str, line: int) -> list[ast.stmt]:
    """The statements of a function itself that start at a line, headers of compound ones included."""
    inner = {
        id(node)
        for definition in ast.walk(functions()[function])
        if isinstance(definition, ast.FunctionDef) and definition is not functions()[function]
        for node in ast.walk(definition)
    }
    nodes = (node for node in ast.walk(functions()[function]) if isinstance(node, ast.stmt))
    return [node for node in nodes if node.lineno == line and id(node) not in inner]


def spelt(node: ast.expr) -> str:
    return ast.unparse(node)


def targets(statement: ast.stmt) -> Iterator[str]:
    found = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.For):
        found = [statement.target]
    for target in found:
        yield from map(spelt, target.elts if isinstance(target, ast.Tuple) else [target])


def held(statement: ast.stmt, kind: str) -> set[str]:
    """What a statement assigns, returns, calls or passes, as expressions in one spelling."""
    header = [statement.iter] if isinstance(statement, ast.For) else list(ast.iter_child_nodes(statement))
    calls = [node for part in header for node in ast.walk(part) if isinstance(node, ast.Call)]
    match kind:
        case "assign":
            return set(targets(statement))
        case "return":
            return {spelt(statement.value)} if isinstance(statement, ast.Return) and statement.value else set()
        case "call":
            return {spelt(call) for call in calls}
        case "argument":
            return {spelt(argument) for call in calls for argument in call.args}
    raise AssertionError(f"{kind} is no kind of point")


@pytest.mark.parametrize(
    ("row", "point"), POINTS, ids=lambda value: value.site if isinstance(value, Intermediate) else str(value)
)
def test_a_point_stands_in_the_pinned_file(row: Intermediate, point: Point) -> None:
    here = statements_at(point.function, point.line)
    assert spelt(ast.parse(point.expression, mode="eval").body) in {
        expression for statement in here for expression in held(statement, point.kind)
    }


@pytest.mark.parametrize(
    ("row", "point"), POINTS, ids=lambda value: value.site if isinstance(value, Intermediate) else str(value)
)
def test_a_point_names_its_caller_exactly_where_its_function_is_called_more_than_once(
    row: Intermediate, point: Point
) -> None:
    name = point.function.rpartition(".")[2]
    lines = {
        node.lineno
        for node in ast.walk(ast.parse(source(OPENAI)))
        if isinstance(node, ast.Call) and spelt(node.func) == name
    }
    if point.caller is None:
        assert len(lines) <= 1 or point.function == "model"
    else:
        assert len(lines) > 1
        assert point.caller in lines


def test_no_two_sites_share_a_point() -> None:
    seen = [(p.function, p.line, p.expression, p.kind, p.caller) for _, p in POINTS]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("row", list(CATALOGUE), ids=lambda row: row.site)
def test_a_site_s_name_is_an_expression_that_openai_s_file_holds_at_one_of_its_points(row: Intermediate) -> None:
    if row.variant == UNTIED:  # which OpenAI's code does not have
        assert row.points == ()
        return
    assert row.points
    wanted = spelt(ast.parse(row.name, mode="eval").body)
    calls = [node for node in ast.walk(ast.parse(source(OPENAI))) if isinstance(node, ast.Call)]
    held_here = set()
    for point in row.points:
        held_here |= {spelt(c) for c in calls if spelt(c.func) == point.function and point.kind == "return"}
        for statement in statements_at(point.function, point.line):
            held_here |= set(targets(statement))
            held_here |= {spelt(node) for node in ast.walk(statement) if isinstance(node, ast.expr)}
    assert wanted in held_here


def test_points_lie_inside_what_their_operation_or_its_neighbours_cite() -> None:
    for row in CATALOGUE:
        cited = [e.citation for e in CATALOGUE.operation_of(row).evidence if e.citation.pin == OPENAI]
        lines = [point.line for point in row.points]
        assert any(line in citation for line in lines for citation in cited) or row.variant == UNTIED, row.site


def test_no_text_of_the_catalogue_takes_six_words_in_a_row_from_a_comment_of_the_sources() -> None:
    ours = [row.title for row in CATALOGUE] + [row.description for row in CATALOGUE]
    ours += [evidence.claim for _, evidence in CITED] + [axis.meaning for axis in AXES]
    theirs = {run for pin in PINS for run in runs(source(pin).decode())}
    assert not {run for text in ours for run in runs(text)} & theirs


def runs(text: str) -> Iterator[tuple[str, ...]]:
    """Every run of six words."""
    listed = words(text)
    yield from zip(*(itertools.islice(listed, start, None) for start in range(6)), strict=False)
