"""References: read back by the parsers of their formats, and claiming no more than is known."""

import hashlib
import json
import re
from dataclasses import replace

import bibtexparser
import pytest
import yaml
from cffconvert import Citation as CffCitation
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from pybtex.database import parse_string
from pylatexenc.latex2text import LatexNodes2Text, MacroTextSpec, get_default_latex_context_db
from swh.model.swhids import ObjectType, QualifiedSWHID

from provenance.citation import Blob, Citation, Pin, cite
from provenance.citing import CodeCitation, Format, cite_code
from provenance.citing_trace import TraceFacts, cite_trace
from provenance.errors import InvalidInput
from provenance.gpt2.evidence import NORM
from provenance.gpt2.operations import OPERATIONS
from provenance.gpt2.pins import OPENAI, TRANSFORMERS
from provenance.markup import json_text, markdown_text, tex

GITHUB = "https://github.com"
OPENAI_BLOB = "230b83cc2ac7582b4a22e9db3c2d8916dfe2ea9a"
RELEASE_BLOB = "da1e9a64c8e0c829bd3f4abe26cdc89d0c3414f4"
NORM_SWHID = (
    "swh:1:cnt:230b83cc2ac7582b4a22e9db3c2d8916dfe2ea9a;origin=https://github.com/openai/gpt-2;"
    "anchor=swh:1:rev:9b63575ef42771a015060c964af2c3da4cf7c8ab;path=/src/model.py;lines=28-38"
)
BLOCK = cite(TRANSFORMERS, ("GPT2Block.__init__:self.ln_1", 252), ("GPT2Block.forward:a..b", 272, 273))
EVERY = tuple(
    cite_code(citation, citation.pin.blobs[0].id, settled, claim)
    for citation, claim in {e.citation: e.claim for operation in OPERATIONS for e in operation.evidence}.items()
    for settled in ((True,) if citation.pin == OPENAI else (True, False))
)
FACTS = TraceFacts(
    id="0123456789abcdef" * 2,
    model="gpt2-untrained",
    family="gpt2",
    trained=False,
    weights_sha256="ab" * 32,
    dtype="float32",
    device="cpu",
    threads=2,
    torch="2.13.0",
    prompt="Hello world",
    token_ids=(15496, 995),
    steps=3,
    temperature=0.0,
    seed=7,
    created_at="2025-03-04T05:06:07+00:00",
    tensors_sha256="cd" * 32,
)
NASTY = st.one_of(
    st.text(max_size=60),
    st.text(st.sampled_from("{}\\%#&$_^~\"'`@=,;:-–<>|[]()!*\n\r\t \x00\x7f\u2028\u202eéλ語🙂"), max_size=60),
    st.sampled_from(
        [
            "}\n}\n@misc{other, title = {taken over}}",
            "\\}\\} \\input{file} \\end{document}",
            '"\n---\nauthors: [x]\n...',
            "key: value # comment",
            "````` [a](b) <b>bold</b> `` ![i](j)",
            "two  blanks -- and --- dashes '' ,,",
        ]
    ),
)

# pylatexenc lacks some of LaTeX's text symbols, and reads others as accents.
LATEX = get_default_latex_context_db()
LATEX.add_context_category(
    "symbols",
    prepend=True,
    macros=[
        MacroTextSpec(f"text{name}", character)
        for name, character in (
            ("braceleft", "{"),
            ("braceright", "}"),
            ("bar", "|"),
            ("less", "<"),
            ("greater", ">"),
            ("asciicircum", "^"),
            ("asciigrave", "`"),
            ("asciitilde", "~"),
        )
    ],
)


def norm() -> CodeCitation:
    return cite_code(NORM.citation, OPENAI_BLOB, True, NORM.claim)


def bibtex_fields(text: str) -> dict[str, str]:
    """The fields of the one entry in a BibTeX text, on which two parsers agree."""
    assert text.isascii()
    first = parse_string(text, "bibtex")
    assert len(first.entries) == 1
    ((key, entry),) = first.entries.items()
    second = bibtexparser.parse_string(text)
    assert not second.failed_blocks
    (same,) = second.blocks
    assert isinstance(same, bibtexparser.model.Entry)
    fields = {field.key: field.value for field in same.fields}
    assert same.key == key
    assert {name: fields[name] for name in entry.fields} == dict(entry.fields)
    assert fields.keys() - entry.fields.keys() == {"author"}
    assert str(entry.persons["author"][0]) == fields["author"]
    return fields


def cff_fields(text: str) -> dict[str, object]:
    """The one document of a CFF text, valid by the schema of its version."""
    CffCitation(text).validate()
    fields = yaml.safe_load(text)
    assert isinstance(fields, dict)
    return fields


# --- code ---


def test_lines_of_a_settled_blob_are_cited_with_revision_and_path() -> None:
    url = f"{GITHUB}/openai/gpt-2/blob/9b63575ef42771a015060c964af2c3da4cf7c8ab/src/model.py#L28-L38"
    assert norm().render(Format.URL) == url
    assert norm().render(Format.SWHID) == NORM_SWHID
    assert norm().render(Format.MARKDOWN) == f"[openai/gpt-2 src/model.py, lines 28–38 at 9b63575ef427]({url})"
    assert bibtex_fields(norm().render(Format.BIBTEX)) == {
        "author": "{OpenAI}",
        "title": "{openai/gpt-2: src/model.py, lines 28--38}",
        "year": "2024",
        "url": url,
        "note": "Revision 9b63575ef42771a015060c964af2c3da4cf7c8ab. "
        "Git blob 230b83cc2ac7582b4a22e9db3c2d8916dfe2ea9a, the revision's own content.",
        "license": "Modified MIT",
        "swhid": NORM_SWHID,
    }
    cff = cff_fields(norm().render(Format.CFF))
    assert (cff["title"], cff["url"]) == ("openai/gpt-2: src/model.py, lines 28–38", url)
    assert cff["commit"] == "9b63575ef42771a015060c964af2c3da4cf7c8ab"
    assert "license" not in cff
    assert json.loads(norm().render(Format.JSON))["swhid"] == NORM_SWHID


@pytest.mark.parametrize("code", EVERY, ids=lambda code: f"{code.lines}-{code.settled}")
@pytest.mark.slow
def test_every_evidence_can_be_read_by_the_parsers_of_its_formats(code: CodeCitation) -> None:
    bibtex_fields(code.bibtex)
    cff = cff_fields(code.cff)
    assert code.claim in str(cff["abstract"])
    swhid = QualifiedSWHID.from_string(code.swhid)
    assert str(swhid) == code.swhid
    assert (swhid.object_type, swhid.object_id.hex()) == (ObjectType.CONTENT, code.blob.id)
    assert swhid.lines == (
        code.citation.first,
        None if code.citation.first == code.citation.last else code.citation.last,
    )
    assert str(swhid).partition(";")[0] == code.core_swhid


def test_different_lines_have_different_bibtex_keys() -> None:
    keys: dict[str, set[Citation]] = {}
    for code in EVERY:
        keys.setdefault(code.bibtex.partition(",")[0], set()).add(code.citation)
    assert all(len(citations) == 1 for citations in keys.values())
    whole = cite(TRANSFORMERS, ("f", 252, 273))
    entries = [cite_code(citation, RELEASE_BLOB, True, "").bibtex for citation in (BLOCK, whole)]
    assert len({entry.partition(",")[0] for entry in entries}) == 2


def test_one_line_is_no_range() -> None:
    code = cite_code(cite(OPENAI, ("mlp:h", 118)), OPENAI_BLOB, True, "A line.")
    assert code.url.endswith("#L118")
    assert code.swhid.endswith(";lines=118")
    assert "model.py, line 118 at" in code.markdown


def test_an_unsettled_blob_is_not_said_to_be_in_the_revision() -> None:
    code = cite_code(BLOCK, RELEASE_BLOB, False, "Claim.")
    swhid = QualifiedSWHID.from_string(code.swhid)
    assert (swhid.origin, swhid.anchor, swhid.path, swhid.lines) == (None, None, None, (252, 273))
    assert "as in transformers 5.15.0; at these lines it equals every content" in bibtex_fields(code.bibtex)["note"]
    # The lines themselves are the revision's: they are the same in both candidates.
    assert cff_fields(code.cff)["commit"] == TRANSFORMERS.revision
    assert code.markdown.endswith("#L252-L273)")


def test_lines_that_may_have_moved_say_so_in_every_format() -> None:
    code = cite_code(cite(TRANSFORMERS, ("f", 576)), RELEASE_BLOB, False, "Claim.")
    assert code.swhid == f"swh:1:cnt:{RELEASE_BLOB};lines=576"
    assert code.markdown.endswith("#L576) (lines as in transformers 5.15.0)")
    assert "those of the revision may differ" in bibtex_fields(code.bibtex)["note"]
    cff = cff_fields(code.cff)
    assert "those of the revision may differ" in str(cff["abstract"])
    assert "commit" not in cff


def test_a_settled_blob_of_several_is_the_revisions_own() -> None:
    blob = TRANSFORMERS.blobs[1].id
    code = cite_code(BLOCK, blob, True, "Claim.")
    swhid = QualifiedSWHID.from_string(code.swhid)
    assert swhid.object_id.hex() == blob
    assert str(swhid.anchor) == f"swh:1:rev:{TRANSFORMERS.revision}"
    assert swhid.path == b"/src/transformers/models/gpt2/modeling_gpt2.py"
    assert cff_fields(code.cff)["license"] == "Apache-2.0"


def test_several_spans_have_one_range_and_one_entry_each() -> None:
    code = cite_code(BLOCK, RELEASE_BLOB, True, "Claim.")
    fields = json.loads(code.render(Format.JSON))
    assert fields["url"].endswith("#L252-L273")
    assert fields["swhid"].endswith(";lines=252-273")
    assert "lines 252–273 (of these 252, 272–273) at" in fields["markdown"]
    assert [span["url"].partition("#")[2] for span in fields["spans"]] == ["L252", "L272-L273"]
    assert [QualifiedSWHID.from_string(span["swhid"]).lines for span in fields["spans"]] == [(252, None), (272, 273)]


def test_a_blob_that_the_pin_does_not_know_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"no content of openai/gpt-2/src/model\.py"):
        cite_code(NORM.citation, RELEASE_BLOB, True, "Claim.")


def test_a_year_or_author_that_is_not_known_is_not_made_up() -> None:
    pin = Pin("a", "owner/name", "1" * 40, "a.py", (Blob("2" * 40),), None, "MIT")
    fields = bibtex_fields(cite_code(cite(pin, ("f", 1)), "2" * 40, True, "Claim.").bibtex)
    assert "year" not in fields
    assert fields["author"] == "{The contributors to owner/name}"


def test_an_odd_path_breaks_out_of_no_format() -> None:
    path = "a b/{c;d%(é]#.py"
    pin = Pin("a", "owner/na_me", "1" * 40, path, (Blob("2" * 40),), None, "MIT")
    code = cite_code(cite(pin, ("f", 1, 2)), "2" * 40, True, "Claim: {x}\n# y")
    assert QualifiedSWHID.from_string(code.swhid).path == f"/{path}".encode()
    assert code.url.endswith("/a%20b/%7Bc%3Bd%25%28%C3%A9%5D%23.py#L1-L2")
    assert bibtex_fields(code.bibtex)["url"] == code.url
    cff_fields(code.cff)
    (inline,) = [token for token in MarkdownIt().parse(code.markdown) if token.type == "inline"]
    assert [child.type for child in inline.children or []] == ["link_open", "text", "link_close"]


# --- traces ---


def test_a_trace_is_cited_by_what_determines_it() -> None:
    trace = cite_trace(FACTS)
    assert trace.description == (
        f"Trace {FACTS.id}. Model gpt2-untrained (gpt2, untrained), SHA-256 of the weights: {'ab' * 32}. "
        'Prompt: "Hello world". 2 tokens and 3 decode steps, greedy; torch 2.13.0, float32 on cpu, threads: 2. '
        f"SHA-256 of the tensors: {'cd' * 32}. Recorded at 2025-03-04T05:06:07+00:00."
    )
    fields = bibtex_fields(trace.render(Format.BIBTEX))
    assert fields["note"] == trace.description
    assert (fields["year"], fields["title"]) == ("2025", "{Trace 0123456789ab of gpt2-untrained}")
    cff = cff_fields(trace.render(Format.CFF))
    assert (cff["type"], cff["abstract"]) == ("dataset", trace.description)
    assert json.loads(trace.render(Format.JSON))["token_ids"] == [15496, 995]


def test_a_drawn_trace_names_temperature_and_seed() -> None:
    assert "temperature 0.8, seed 7" in cite_trace(replace(FACTS, temperature=0.8)).description
    assert "seed" not in cite_trace(FACTS).description


def test_a_run_that_was_changed_names_its_edits_in_every_format() -> None:
    edits = ("h.1.attn.pattern[head=1] = 0", "h.0.mlp.h@0[channel=3,7] *= -0.5")
    trace = cite_trace(replace(FACTS, edits=edits))
    said = f"Changed while it ran, in this order: {'; '.join(edits)}. "
    assert f"threads: 2. {said}SHA-256" in trace.description
    assert bibtex_fields(trace.bibtex)["note"] == trace.description
    assert cff_fields(trace.cff)["abstract"] == trace.description
    assert trace.markdown.endswith(f"in this order: `{edits[0]}`, `{edits[1]}`")
    assert trace.title == "Trace 0123456789ab of gpt2-untrained, changed on purpose"
    assert trace.fields()["edits"] == edits


def test_a_prompt_without_text_is_given_as_ids() -> None:
    assert "Prompt: token ids 15496, 995." in cite_trace(replace(FACTS, prompt=None)).description


def test_a_long_prompt_is_cut_and_identified() -> None:
    prompt = "ä" * 201
    description = cite_trace(replace(FACTS, prompt=prompt)).description
    sha256 = hashlib.sha256(prompt.encode()).hexdigest()
    assert f'"{"ä" * 200}" and 1 more characters (SHA-256 of the text: {sha256})' in description


@pytest.mark.parametrize("format", [Format.URL, Format.SWHID])
def test_a_trace_has_neither_address_nor_swhid(format: Format) -> None:
    with pytest.raises(InvalidInput, match="A trace has no"):
        cite_trace(FACTS).render(format)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(NASTY, NASTY)
def test_no_prompt_or_name_breaks_out_of_bibtex(prompt: str, model: str) -> None:
    fields = bibtex_fields(cite_trace(replace(FACTS, prompt=prompt, model=model)).bibtex)
    assert list(fields) == ["author", "title", "year", "note"]
    # An independent reader of LaTeX gets the prompt back, character by character.
    said = LatexNodes2Text(LATEX, strict_latex_spaces=True).latex_to_text(fields["note"])
    quoted = re.search(r'Prompt: (".*")\. \d+ tokens', said)
    assert quoted is not None
    assert json.loads(quoted[1]) == prompt


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(NASTY, NASTY)
def test_no_prompt_or_name_breaks_out_of_cff(prompt: str, model: str) -> None:
    trace = cite_trace(replace(FACTS, prompt=prompt, model=model))
    fields = cff_fields(trace.cff)
    assert fields["abstract"] == trace.description
    assert json_text(prompt) in trace.description
    assert list(fields) == ["cff-version", "message", "type", "title", "authors", "abstract", "identifiers"]


@settings(max_examples=100, deadline=None)
@given(NASTY, NASTY)
def test_no_prompt_or_name_breaks_out_of_markdown(prompt: str, model: str) -> None:
    tokens = MarkdownIt().parse(cite_trace(replace(FACTS, prompt=prompt, model=model)).markdown)
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    children = tokens[1].children or []
    assert {child.type for child in children} <= {"text", "text_special", "code_inline"}
    (code,) = [child.content for child in children if child.type == "code_inline"]
    assert json.loads(code) == prompt


@settings(deadline=None)
@given(st.text(st.characters(codec=None)))
def test_a_prompt_as_json_is_one_printable_line_and_loses_nothing(text: str) -> None:
    assert json.loads(json_text(text)) == text
    assert json_text(text).isprintable()


def test_text_is_written_for_tex_and_markdown() -> None:
    assert (
        tex("50% {a_b} ~é–") == r"50\% \textbraceleft{}a\_b\textbraceright{} \textasciitilde{}"
        r"\textbackslash{}u00e9\textendash{}"
    )
    assert tex("a--b  c") == "a-{}-b {} c"
    assert markdown_text("[a](b) *c* d_e") == r"\[a\](b) \*c\* d\_e"
