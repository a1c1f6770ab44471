"""What the pages say was proven: before a verification, while it runs, after it, and how to cite."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from conftest import recorded
from pybtex.database import parse_string
from test_pages import Client, Element, Html, page, words

from app.explorer import EXAMPLE, Explorer
from app.highlight import highlighted
from app.jobs import State
from app.main import create_app
from app.pages.proof import difference
from app.settings import load_settings
from app.verifications import Progress
from provenance.citation import Pin
from provenance.errors import SourceUnavailable
from provenance.families import FAMILIES
from provenance.gpt2.catalogue import CATALOGUE
from provenance.gpt2.model import GPT2
from provenance.gpt2.pins import OPENAI, PINS
from provenance.trace import Trace
from provenance.verdict import Execution, Ran, Report
from provenance.verification import verify

pytestmark = pytest.mark.slow

HTMX = {"HX-Request": "true"}
MOST_BYTES = 200_000


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    directory: Path = tmp_path_factory.mktemp("proofs")
    app = create_app(
        load_settings(
            data_directory=directory / "data",
            cache_directory=directory / "cache",
            model="tiny-untrained",
            example=False,
            network=False,
        )
    )
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
def fresh(explorer: Explorer) -> Trace:
    """A trace that nobody has verified."""
    return explorer.record(explorer.plan("Nobody has verified this", steps=1))


@pytest.fixture(scope="module")
def proven(explorer: Explorer) -> Trace:
    """A trace with a stored report."""
    trace = explorer.record(explorer.plan(EXAMPLE, steps=1))
    explorer.verifications.verify(trace, lambda what: None)
    return trace


@pytest.fixture(scope="module")
def report(explorer: Explorer, proven: Trace) -> Report:
    found = explorer.verifications.report(proven)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def departed(explorer: Explorer, tiny_model: GPT2, tiny_trace: Trace) -> Trace:
    """A verified trace of a model whose ε and MLP are not those that OpenAI's code fixes."""
    trace = explorer.store.save(tiny_trace.recipe, tiny_trace.generated, tiny_trace.tensors)
    found = verify(FAMILIES["gpt2"], tiny_model, tiny_trace, explorer.sources)
    explorer.store.attach(trace.id, "verdict.json", found.model_dump_json())
    return trace


def url(trace: Trace, rest: str = "") -> str:
    return f"/traces/{trace.id}{rest}"


def held(shown: Html, kind: str = "held") -> list[int]:
    """The numbers of the lines with a mark of that kind, in order of the page."""
    lines = shown.all("span", class_=f"line-{kind}")
    return [int(found.group()) for line in lines if (found := re.match(r"\d+", line.text))]


def figures(shown: Html) -> str:
    return words(shown.one("p", class_="figures").text)


def signs(shown: Html) -> list[str]:
    """The three signs at the head of the section."""
    at = next(i for i, e in enumerate(shown.elements) if e.attributes.get("class") == "signs")
    badges = [e for e in shown.elements[at:] if "badge" in e.attributes.get("class", "").split()]
    return [words(badge.text) for badge in badges[:3]]


# --- before ---


def test_without_a_report_nothing_is_marked_as_run(client: Client, fresh: Trace) -> None:
    for address in (url(fresh, "/h.0.ln_1.out"), "/sites/h.ln_1.out"):
        shown = page(client, address)
        assert not shown.all("span", class_="line-held") + shown.all("span", class_="line-read")
        assert "▸" not in shown.one("section", id="sources").text
        assert not shown.all("p", class_="figures")


def test_without_a_report_each_evidence_says_what_is_missing(client: Client, fresh: Trace) -> None:
    shown = page(client, url(fresh, "/h.0.ln_1.out"))
    assert signs(shown) == ["≡ bytes", "○ executed", "○ equal"]
    for entry in shown.all("article", class_="evidence"):
        assert "○ not run yet" in words(entry.text)
        assert "Not verified for this trace yet" in words(entry.text)


def test_without_a_trace_no_execution_is_spoken_of(client: Client) -> None:
    section = words(page(client, "/sites/h.ln_1.out").one("section", id="sources").text)
    assert "executed" not in section
    assert "Verify this trace" not in section


def test_each_evidence_names_the_blob_and_its_carrier(client: Client, fresh: Trace) -> None:
    entries = [words(e.text) for e in page(client, url(fresh, "/h.0.ln_1.out")).all("article", class_="evidence")]
    assert "Bytes of git blob 230b83cc2ac7, from " in entries[0]
    assert "Bytes of git blob da1e9a64c8e0, from " in entries[1]
    assert "their git blob id was checked" in entries[0]


# --- layout ---


def test_the_two_sources_of_an_operation_stand_side_by_side(client: Client) -> None:
    shown = page(client, "/sites/h.ln_1.out")
    assert [words(row.text)[:36] for row in shown.all("h3") if row.attributes.get("id", "").startswith("evid")] == [
        "Pre-attention LayerNorm computes thi",
        "Fused Q, K, V projection reads this ",
    ]
    columns = shown.all("div", class_="column")
    counts = [column.text.count("Contextual evidence from") for column in columns]
    assert counts == [1, 1, 2, 1]  # of the projection OpenAI's code makes two claims


def test_what_the_sources_do_differently_is_said_in_one_line(client: Client) -> None:
    lines = [words(line.text) for line in page(client, "/sites/h.attn.scores_masked").all("p", class_="difference")]
    assert lines == [
        "≠ They differ here: Masked cells hold −10¹⁰ at OpenAI, the score plus the dtype's minimum in transformers.",
        "≠ They differ here: OpenAI takes three visible steps; transformers calls one fused softmax.",
    ]


def test_a_short_gap_can_be_opened_and_a_long_one_is_a_link(client: Client) -> None:
    short = page(client, "/sites/h.ln_1.out")
    left_out = short.all("pre", class_="left-out")[0].text
    assert re.findall(r"^(\d{3})", left_out, re.M) == [str(n) for n in range(253, 272)]
    long = page(client, "/sites/h.attn.pattern").all("p", class_="gap")
    assert [words(gap.text) for gap in long] == ["… lines 24–96 omitted …"]
    links = [a.attributes["href"] for a in page(client, "/sites/h.attn.pattern").all("a")]
    assert "/sources/openai/gpt-2/src/model.py#L24" in links


def test_highlighting_changes_no_character(explorer: Explorer) -> None:
    for pin in PINS:
        text = explorer.sources.content(pin).data.decode()
        read = "\n".join(_text(line) for line in highlighted(text))
        assert read == text


def _text(html: str) -> str:
    return Html(f"<p>{html}</p>").one("p").text


def test_a_string_of_several_lines_is_one_string_on_each() -> None:
    lines = highlighted('x = """one\ntwo <b>\nthree"""\n')
    assert [line.count('class="py-s"') for line in lines[:3]] == [1, 1, 1]
    assert "two &lt;b&gt;" in lines[1]


def test_no_page_of_a_verified_tensor_is_large(client: Client, proven: Trace) -> None:
    for site in ("h.0.resid_post", "h.1.ln_1.out", "h.0.attn.scores", "h.0.attn.pattern", "ln_f.out", "embed.h"):
        assert len(client.get(url(proven, f"/{site}")).content) < MOST_BYTES, site
    assert len(client.get(url(proven, "/verdict")).content) < MOST_BYTES


# --- after ---


@pytest.mark.parametrize(
    ("address", "lines"),
    [("h.0.ln_1.out", [37, 38, 273]), ("h.0.resid_mid", [127, 282, 282, 303]), ("h.1.attn.scores", [94, 58])],
)
def test_the_lines_that_held_this_tensor_are_marked(
    client: Client, proven: Trace, address: str, lines: list[int]
) -> None:
    shown = page(client, url(proven, f"/{address}"))
    assert held(shown) == lines
    for line in shown.all("span", class_="line-held"):
        assert re.match(r"\d+▸ ran and held this tensor: ", line.text)


def test_marked_lines_are_those_of_the_report(client: Client, proven: Trace, report: Report) -> None:
    for site in ("h.attn.k", "h.ln_1.u", "h.mlp.h", "h.attn.merged"):
        shown = page(client, url(proven, f"/{site.replace('h.', 'h.0.', 1)}"))
        told = {line for source in report.held_at.values() for line in source.get(site, ())}
        assert held(shown)
        assert set(held(shown)) <= told


def test_lines_that_made_a_readers_tensor_are_marked_more_quietly(client: Client, proven: Trace) -> None:
    shown = page(client, url(proven, "/h.0.ln_1.out"))
    assert held(shown, "read") == [55, 56, 102, 103, 185, 187, 188, 191]
    for line in shown.all("span", class_="line-read"):
        assert "▹ ran and held a tensor of Fused Q, K, V projection: " in line.text


def test_each_evidence_says_that_its_lines_ran(client: Client, proven: Trace) -> None:
    entries = page(client, url(proven, "/h.0.ln_1.out")).all("article", class_="evidence")
    assert len(entries) == 5
    for entry in entries:
        assert "✓ executed" in words(entry.text)
        assert "these lines produced the operation's tensors" in words(entry.text)


@pytest.mark.parametrize("address", ["h.0.ln_1.out", "h.1.attn.scores_masked@1", "logits"])
def test_the_figures_are_those_of_the_stored_report(
    client: Client, proven: Trace, report: Report, address: str
) -> None:
    place, _, step = address.partition("@")
    shown = page(client, url(proven, f"/{place}?step={step or 0}"))
    line = figures(shown)
    exact = {data.attributes["value"] for data in shown.all("data")}
    for source, name in (
        ("openai", "OpenAI’s code"),
        ("transformers", f"transformers {report.versions['transformers']}"),
        ("equation", "equation in NumPy"),
    ):
        parity = report.parity(address, source)
        assert parity is not None
        assert f"{name}: {difference(parity.largest_difference).text} ✓ equal" in line
        assert repr(parity.largest_difference) in exact
    worst = max(p.largest_difference for p in report.parities if p.address == address)
    assert signs(shown)[1:] == ["✓ executed", f"✓ equal {difference(worst).text}"]


def test_the_details_say_where_and_how_was_compared(client: Client, proven: Trace) -> None:
    masked = words(page(client, url(proven, "/h.0.attn.scores_masked")).one("section", id="sources").text)
    assert "compared with w at line 88" in masked
    assert "on the visible cells only" in masked
    positions = words(page(client, url(proven, "/embed.positions")).one("section", id="sources").text)
    assert "ours laid out: one row for the whole batch" in positions
    assert f"tensor-provenance verify --trace {proven.id[:12]}" in positions


def test_a_tensor_that_transformers_does_not_name_is_said_so(client: Client, proven: Trace, report: Report) -> None:
    version = report.versions["transformers"]
    assert f"○ transformers {version} does not name this tensor" in figures(page(client, url(proven, "/h.0.ln_1.u")))


def test_a_parameter_has_no_equation(client: Client, proven: Trace) -> None:
    assert "○ equation in NumPy none, it is learned" in figures(page(client, url(proven, "/h.0.ln_1.g")))


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (3.1e-7, "3.1e-7"), (5e-5, "5.0e-5"), (0.25, "2.5e-1"), (12.0, "1.2e1")]
)
def test_a_difference_is_short_and_exact(value: float, text: str) -> None:
    assert difference(value).text == text
    assert float(difference(value).exact) == value


# --- what does not hold, and what does not apply ---


def broken(report: Report, address: str) -> Report:
    """A report in which one tensor differs and one citation did not run."""
    parities = tuple(
        p.model_copy(update={"holds": False, "largest_difference": 0.5})
        if (p.address, p.source) == (address, "transformers")
        else p
        for p in report.parities
    )
    executions: tuple[Execution, ...] = tuple(
        e.model_copy(update={"ran": Ran.NOT, "produced": ()}) if (e.operation, e.source) == ("ln_1", "openai") else e
        for e in report.executions
    )
    return report.model_copy(update={"parities": parities, "executions": executions})


def test_what_does_not_hold_is_shown_with_sign_and_word(
    client: Client, explorer: Explorer, proven: Trace, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = broken(report, "h.0.ln_1.out")
    monkeypatch.setattr(explorer.verifications, "report", lambda trace: wrong)
    shown = page(client, url(proven, "/h.0.ln_1.out"))
    assert signs(shown)[1:] == ["✕ executed", "≠ differs"]
    assert "5.0e-1 ≠ differs" in figures(shown)
    assert "✕ did not run" in words(shown.all("article", class_="evidence")[0].text)
    verdict = words(page(client, url(proven, "/verdict")).one("main").text)
    assert "✕ not everything holds" in verdict
    assert "✕ 1 differ" in verdict
    assert "Pre-attention LayerNorm, lines 28–38: did not run" in verdict


def test_departures_are_shown_and_are_no_failure(client: Client, departed: Trace) -> None:
    shown = page(client, url(departed, "/h.0.resid_post"))
    line = figures(shown)
    assert "OpenAI’s code does not apply: OpenAI's code fixes ε = 1e-05; this config has 0.0001" in line
    assert "fixes an MLP of 4 × d; this config has 112" in line
    assert re.search(r"transformers \S+: \S+ ✓ equal", line)
    entries = [words(entry.text) for entry in shown.all("article", class_="evidence")]
    assert "– does not apply" in entries[0]
    assert "✓ executed" in entries[1]
    verdict = words(page(client, url(departed, "/verdict")).one("main").text)
    assert "✓ everything that applies holds" in verdict
    assert "– does not apply OpenAI’s code: OpenAI's code fixes ε" in verdict


def test_without_the_sources_the_figures_stay(
    client: Client, explorer: Explorer, proven: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(pin: Pin) -> None:
        raise SourceUnavailable(f"{pin.path} is not at hand.", hint="Fetch it.")

    monkeypatch.setattr(explorer.sources, "content", gone)
    shown = page(client, url(proven, "/h.0.ln_1.out"))
    assert signs(shown)[0] == "✕ bytes"
    assert "✓ equal" in figures(shown)
    assert not shown.all("div", class_="excerpt")


# --- the verdict's own page ---


def test_the_verdict_page_sums_up_the_report(client: Client, proven: Trace, report: Report) -> None:
    shown = page(client, url(proven, "/verdict"))
    text = words(shown.one("main").text)
    assert "✓ everything that applies holds" in text
    assert f"tensor-provenance verify --trace {proven.id[:12]}" in text
    for file in report.bytes:
        assert file.blob in text
    assert "53 of 54 assignments that were seen are tensors here, 1 excepted" in text
    assert "Except value (expand_tile, line 137): the positions before the batch axis" in text
    unseen = next(c.unseen for c in report.coverage if c.source == "transformers")
    assert f"{len(unseen)} tensors that it does not name" in text
    for source in ("openai", "transformers", "equation"):
        mine = [parity for parity in report.parities if parity.source == source]
        assert f"{len(mine)} of {len(mine)} tensors within the tolerance" in text
    assert f"torch {report.versions['torch']}" in text


def test_the_worst_tensors_stand_first_and_are_links(client: Client, proven: Trace, report: Report) -> None:
    shown = page(client, url(proven, "/verdict"))
    worst = max((p for p in report.parities if p.source == "transformers"), key=lambda parity: parity.severity)
    table = next(t for t in shown.all("table", class_="parities") if "transformers" in t.text)
    first = words(table.text).split("Verdict ", 1)[1]
    assert first.startswith(f"{worst.address}{worst.line}{difference(worst.largest_difference).text}")
    place, _, step = worst.address.partition("@")
    expected = url(proven, f"/{place}") + (f"?step={step}" if step else "")
    assert expected in {a.attributes["href"] for a in shown.all("a")}


def test_trace_and_tensor_lead_to_the_verdict(client: Client, proven: Trace) -> None:
    for address in (url(proven), url(proven, "/h.0.ln_1.out")):
        assert url(proven, "/verdict") in {a.attributes["href"] for a in page(client, address).all("a")}


def test_a_verdict_of_an_unknown_trace_is_not_found(client: Client) -> None:
    assert "There is no trace" in page(client, "/traces/0123456789abcdef/verdict", 404).one("main").text
    assert client.post("/traces/0123456789abcdef/verify").status_code == 404


# --- the button ---


class Paced:
    """A verification that says what it proves and then waits to be let go."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.started = threading.Event()
        self.go = threading.Event()

    def __call__(self, trace: Trace, progress: Progress) -> Report:
        progress("the cited files' bytes")
        self.started.set()
        assert self.go.wait(120)
        return self.report.model_copy(update={"trace": trace.id})


@pytest.fixture
def paced(explorer: Explorer, report: Report, monkeypatch: pytest.MonkeyPatch) -> Iterator[Paced]:
    work = Paced(report)
    monkeypatch.setattr(explorer.verifications, "_run", work)
    yield work
    work.go.set()


def settled(explorer: Explorer, trace: Trace) -> None:
    """Wait until the one worker has ended what it does."""
    explorer.verifications._worker.submit(lambda: None).result(120)
    state = explorer.verifications.state(trace)
    assert state is not None
    assert state.state in (State.DONE, State.FAILED)


def form(shown: Html) -> tuple[str, dict[str, str]]:
    """The address and the fields of the form that asks for a verification."""
    hidden = [field for field in shown.all("input", type="hidden") if "form" not in field.attributes]
    return shown.one("form", class_="verify").attributes["action"], {
        field.attributes["name"]: field.attributes["value"] for field in hidden
    }


def test_the_button_works_without_javascript(client: Client, explorer: Explorer, paced: Paced) -> None:
    trace = explorer.record(explorer.plan("verified by its button"))
    action, fields = form(page(client, url(trace, "/h.1.attn.q?head=2")))
    answer = client.post(action, data=fields, follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"] == url(trace, "/h.1.attn.q?head=2#sources")
    assert paced.started.wait(120)
    during = client.get(url(trace, "/h.1.attn.q"))
    assert '<noscript><meta http-equiv="refresh"' in during.text
    shown = Html(during.text)
    assert "Verifying now: the cited files' bytes" in words(shown.one("p", class_="verifying").text)
    assert not shown.all("form", class_="verify")
    paced.go.set()
    settled(explorer, trace)
    after = client.get(url(trace, "/h.1.attn.q"))
    assert "http-equiv" not in after.text
    assert "✓ equal" in figures(Html(after.text))


def test_htmx_asks_until_the_proof_is_there(client: Client, explorer: Explorer, paced: Paced) -> None:
    trace = explorer.record(explorer.plan("verified while being watched", steps=1))
    client.post(url(trace, "/verify"), data={"address": "h.0.ln_1.out@1"})
    assert paced.started.wait(120)
    shown = page(client, url(trace, "/h.0.ln_1.out?step=1"))
    asks = shown.one("p", class_="verifying").attributes["hx-get"]
    assert client.get(asks, headers=HTMX).status_code == 204  # nothing new to say
    news = client.get(asks.partition("?")[0], headers=HTMX)
    assert "Verifying now" in news.text
    assert "<html" not in news.text
    assert client.get(asks, follow_redirects=False).headers["location"] == url(trace, "/h.0.ln_1.out?step=1#sources")
    paced.go.set()
    settled(explorer, trace)
    done = client.get(asks, headers=HTMX)
    assert done.headers["HX-Retarget"] == "#sources"
    assert Html(done.text).one("section", id="sources")
    assert "✓ equal" in figures(Html(done.text))


def test_the_verdict_page_watches_too(client: Client, explorer: Explorer, paced: Paced) -> None:
    trace = explorer.record(explorer.plan("verified on the page of verdicts"))
    action, fields = form(page(client, url(trace, "/verdict")))
    answer = client.post(action, data=fields, follow_redirects=False)
    assert answer.headers["location"] == url(trace, "/verdict")
    assert paced.started.wait(120)
    during = client.get(url(trace, "/verdict"))
    assert '<noscript><meta http-equiv="refresh"' in during.text
    asks = Html(during.text).one("p", class_="verifying").attributes["hx-get"]
    assert client.get(asks, headers=HTMX).status_code == 204
    paced.go.set()
    settled(explorer, trace)
    done = Html(client.get(asks, headers=HTMX).text)
    assert "✓ everything that applies holds" in words(done.one("div", id="verdict").text)


@pytest.mark.parametrize("address", ["//elsewhere.example/", "h.9.ln_1.out", "h.0.ln_1.out@7", "", "..@"])
def test_the_button_never_leads_away(client: Client, proven: Trace, address: str) -> None:
    answer = client.post(url(proven, "/verify"), data={"address": address}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, url(proven, "/verdict"))


def test_a_failed_verification_says_why_and_can_be_asked_for_again(
    client: Client, explorer: Explorer, tmp_path: Path, tiny_model: GPT2
) -> None:
    from provenance.store import TraceStore

    made = recorded(tiny_model, TraceStore(tmp_path), ids=(1, 2, 3), steps=0)  # of a model that is not here
    trace = explorer.store.save(made.recipe, made.generated, made.tensors)
    client.post(url(trace, "/verify"))
    settled(explorer, trace)
    for address in (url(trace, "/h.0.resid_post"), url(trace, "/verdict")):
        shown = page(client, address)
        alert = words(shown.one("p", role="alert").text)
        assert alert.startswith("✕ The verification failed. ")
        assert "There is no model named 'tiny' here." in alert
        assert words(shown.one("form", class_="verify").text).startswith("Verify this trace again")


# --- how to cite ---


def cited(shown: Html, format: str) -> list[str]:
    """The texts of one format, in order of the page."""
    fields: list[Element] = [e for e in shown.elements if e.attributes.get("id", "").endswith(f"-{format}")]
    return [field.attributes["value"] if field.tag == "input" else field.text for field in fields]


def test_each_evidence_has_a_panel_that_leads_to_its_citation(client: Client, proven: Trace) -> None:
    for address, query in ((url(proven, "/h.0.ln_1.out"), f"?trace={proven.id}"), ("/sites/h.ln_1.out", "")):
        shown = page(client, address)
        links = {a.attributes["href"] for a in shown.all("a")}
        expected = [f"/cite/sites/h.ln_1.out{n}{query}" for n in ("", "/1", "/2", "/3", "/4", "/5")]
        assert set(expected) <= links
        panels = [panel.attributes["hx-get"] for panel in shown.all("details", class_="cite-panel")]
        assert [panel for panel in panels if "/sites/" in panel] == expected
    assert f"/cite/traces/{proven.id}" in panels or f"/cite/traces/{proven.id}" in {
        a.attributes["href"] for a in page(client, url(proven)).all("a")
    }


def test_one_piece_of_evidence_is_cited_in_every_format(client: Client) -> None:
    shown = page(client, "/cite/sites/h.ln_1.out/1")
    assert cited(shown, "url") == [f"https://github.com/openai/gpt-2/blob/{OPENAI.revision}/src/model.py#L28-L38"]
    (swhid,) = cited(shown, "swhid")
    assert swhid.startswith("swh:1:cnt:230b83cc2ac7582b4a22e9db3c2d8916dfe2ea9a;origin=")
    assert swhid.endswith("path=/src/model.py;lines=28-38")
    (bibtex,) = cited(shown, "bibtex")
    (entry,) = parse_string(bibtex, "bibtex").entries.values()
    assert entry.fields["swhid"] == swhid
    (cff,) = cited(shown, "cff")
    assert yaml.safe_load(cff)["cff-version"] == "1.2.0"
    (markdown,) = cited(shown, "markdown")
    assert markdown.endswith(f"({cited(shown, 'url')[0]})")


def test_all_evidence_and_the_trace_are_cited_together(client: Client, proven: Trace) -> None:
    shown = page(client, f"/cite/sites/h.ln_1.out?trace={proven.id}")
    keys = [key for text in cited(shown, "bibtex") for key in parse_string(text, "bibtex").entries]
    assert len(keys) == len(set(keys)) == 6
    assert keys[-1] == f"trace-{proven.id[:12]}"
    assert url(proven, "/h.0.ln_1.out") in {a.attributes["href"] for a in shown.all("a")}


def test_a_trace_is_cited_by_what_determines_it(client: Client, proven: Trace) -> None:
    shown = page(client, f"/cite/traces/{proven.id}")
    (bibtex,) = cited(shown, "bibtex")
    assert f"trace-{proven.id[:12]}" in parse_string(bibtex, "bibtex").entries
    (cff,) = cited(shown, "cff")
    assert proven.recipe.model.weights_sha256 in cff
    assert not cited(shown, "swhid")
    given = json.loads(client.get(f"/api/traces/{proven.id}/citation").text)
    assert (bibtex, cff) == (given["bibtex"], given["cff"])


def test_htmx_receives_the_panel_alone(client: Client) -> None:
    fragment = client.get("/cite/sites/h.ln_1.out/2", headers=HTMX).text
    assert "<html" not in fragment
    assert len(Html(fragment).all("button", class_="copy")) == 5


def test_each_copy_button_names_a_field_and_what_it_copies(client: Client) -> None:
    shown = page(client, "/cite/sites/h.ln_1.out")
    ids = [element.attributes["id"] for element in shown.elements if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    labels = [words(button.text) for button in shown.all("button", class_="copy")]
    assert len(labels) == len(set(labels)) == 25
    assert {button.attributes["data-copy"] for button in shown.all("button", class_="copy")} <= set(ids)


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/cite/sites/h.ln_1.out/0", 404),
        ("/cite/sites/h.ln_1.out/6", 404),
        ("/cite/sites/h.ln_1.out/x", 422),
        ("/cite/sites/nothing", 404),
        ("/cite/sites/h.ln_1.out?trace=0123456789abcdef", 404),
        ("/cite/traces/0123456789abcdef", 404),
    ],
)
def test_what_cannot_be_cited_is_a_page_of_an_error(client: Client, address: str, status: int) -> None:
    assert page(client, address, status).one("h1")


def test_every_site_has_a_page_to_cite_it(client: Client) -> None:
    for row in CATALOGUE:
        answer = client.get(f"/cite/sites/{row.site}")
        assert answer.status_code == 200
        assert urlsplit(cited(Html(answer.text), "url")[0]).netloc == "github.com"
