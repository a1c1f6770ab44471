"""The benchmarks' arithmetic and their table on fixed numbers; the driver on a tiny model. Nothing is timed."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
import torch

from benchmarks import forward, limits, plan, scale, sizes, twins
from benchmarks.__main__ import main
from benchmarks.commands import Commands, Verified, heavy_imports
from benchmarks.figures import ALWAYS, Figure, figures
from benchmarks.forward import EAGER, PLAIN, RECORDED, TAPPED, AtLength, Forward
from benchmarks.limits import Limits
from benchmarks.machine import Machine, environment
from benchmarks.pages import Pages
from benchmarks.parts import parts
from benchmarks.peers import Named, PeerAt, Peers
from benchmarks.reader import Reading
from benchmarks.report import figure_line, markdown, number
from benchmarks.results import Results, collect, from_json
from benchmarks.sizes import Peak
from benchmarks.store import Done, Store
from benchmarks.summaries import Summaries
from benchmarks.timing import Timed, growth, interleaved, percentile
from benchmarks.visit import Fetched, Visit, needs

MACHINE = Machine(
    "A processor", 2, 24 << 30, "Linux 6", "glibc 2.36", "2026-01-02 03:04 UTC", 0.1, "abc", {"torch": "2"}
)
TINY = plan.QUICK


def timed(name: str, *milliseconds: float) -> Timed:
    return Timed(name, milliseconds)


def at(tokens: int, eager: float, plain: float, recorded: float, tapped: float | None = None) -> AtLength:
    sides = [timed(EAGER, eager), timed(PLAIN, plain), timed(RECORDED, recorded)]
    if tapped is not None:
        sides.append(timed(TAPPED, tapped))
    return AtLength(tokens, tuple(sides), 349, 1.0, 2.0, 1e-5, True)


def results() -> Results:
    """One allocator has short prompts, the other the longest too."""
    bounds = Limits(2e11, 4e10, 2e10, 4e9)
    short = at(16, 20.0, 19.0, 19.38, 23.0)
    lens = Peers(
        "TransformerLens",
        {"torch": "2", "transformer-lens": "3"},
        ("TransformerLens, run_with_cache",),
        (Named("TransformerLens, run_with_cache", 210), Named(TAPPED, 349)),
        (PeerAt(16, (timed(EAGER, 10.0), timed("TransformerLens, run_with_cache", 26.7), timed(TAPPED, 10.2))),),
    )
    reading = Reading(8, 1000, 0, 2.0, 12.0, 90.0)
    visit = Visit("/", (Fetched("/", "text/html", "gzip", 50_000), Fetched("/a.png", "image/png", "", 9_000)))
    return Results(
        MACHINE,
        False,
        {"forward-defaults": "2026-01-02 03:04 UTC"},
        forward={
            "defaults": Forward(bounds, True, (short,)),
            "raised": Forward(bounds, True, (short, at(1024, 1500.0, 1700.0, 1717.0))),
        },
        peak={"defaults": Peak(1024, 400_000_000, 100_000_000, 300_000_000, 960_000_000)},
        summaries={"raised": Summaries(64, 2, 349, 12_000_000, 0.18, 50.0, 9.0, 0.17, 0.2)},
        commands=Commands(
            timed("--help", 250.0), timed("python", 20.0), ("numpy",), (Verified("demo", 1, 9.0, 8.0, True),)
        ),
        pages=Pages(reading, reading, (visit,), timed("start", 1800.0), timed("import", 1000.0)),
        peers={"raised": (lens,)},
        problems={"peers-nnsight-raised": "nnsight cannot be installed: no such release"},
    )


def figure(what: str) -> Figure:
    (found,) = (each for each in figures(results()) if each.what == what)
    return found


# --- arithmetic ---


def test_a_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    # The slow third round falls on both sides; the ratio of the medians would be 30 / 20.
    ours, theirs = timed("ours", 11, 30, 110), timed("theirs", 10, 20, 100)
    assert ours.over(theirs) == pytest.approx(1.1)
    assert ours.median == 30


def test_rounds_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        timed("ours", 1, 2).over(timed("theirs", 1))


@pytest.mark.parametrize(("percent", "value"), [(50, 2), (75, 3), (99, 4), (100, 4), (1, 1)])
def test_a_percentile_is_a_measured_value(percent: float, value: float) -> None:
    assert percentile([3, 1, 4, 2], percent) == value


def test_a_power_law_is_fitted_exactly() -> None:
    fitted = growth([1, 10, 100], [3, 300, 30_000])
    assert fitted.exponent == pytest.approx(2)
    assert fitted.largest_departure == pytest.approx(1)


def test_a_departure_from_the_power_law_is_told_as_a_factor() -> None:
    # Two sizes by two costs each: the fit runs through the geometric means, 2 and 20.
    fitted = growth([1, 1, 10, 10], [1, 4, 10, 40])
    assert fitted.exponent == pytest.approx(1)
    assert fitted.largest_departure == pytest.approx(2)


def test_every_work_is_run_once_in_each_round_and_told_of_before() -> None:
    ran: list[str] = []
    found = interleaved(
        {"a": lambda: ran.append("a"), "b": lambda: ran.append("b")},
        rounds=5, warm_up=2, before=lambda name: ran.append(f"before {name}"),
    )  # fmt: skip
    assert [len(found[name].milliseconds) for name in "ab"] == [5, 5]
    assert all(ran[place - 1] == f"before {name}" for place, name in enumerate(ran) if name in "ab")
    rounds = [frozenset(ran[start + 1 : start + 4 : 2]) for start in range(0, 28, 4)]
    assert rounds == [frozenset("ab")] * 7


def test_the_least_time_is_that_of_the_arithmetic_or_of_the_traffic() -> None:
    bounds = Limits(
        flops_per_second=100, read_bytes_per_second=10, write_bytes_per_second=5, fresh_bytes_per_second=1
    )
    assert bounds.seconds(flops=1000, read=20, written=10) == 10
    assert bounds.seconds(flops=100, read=20, written=10) == 4


def test_the_products_of_a_forward_are_counted_as_torch_counts_them() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model = twins.ours(TINY.config)
    with FlopCounterMode(display=False) as counter:
        model.forward(twins.tokens(TINY.config, 8))
    assert limits.forward_flops(TINY.config, 8) == counter.get_total_flops()


def test_the_two_models_share_their_weights_and_agree() -> None:
    model = twins.ours(TINY.config)
    twin = twins.theirs(model)
    assert twin.transformer.wte.weight.data_ptr() == model.weights["wte"].data_ptr()
    ids = twins.tokens(TINY.config, 8)
    with torch.inference_mode():
        torch.testing.assert_close(twin(ids).logits, model.forward(ids)[0], rtol=0, atol=1e-5)


def test_raised_thresholds_are_in_the_environment_and_defaults_leave_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    assert [name for name in environment("defaults", 2) if name.startswith("MALLOC_")] == []
    raised = environment("raised", 2)
    assert int(raised["MALLOC_MMAP_THRESHOLD_"]) == 4 << 30
    assert raised["OMP_NUM_THREADS"] == "2"


def test_heavy_imports_are_read_from_pythons_own_list() -> None:
    listed = "import time: self [us] | cumulative | imported package\n"
    listed += "import time:       120 |        340 |   torch._C\nimport time:        10 |         10 | json\n"
    assert heavy_imports(listed) == ("torch",)


# --- figures and the table ---


def test_targets_are_missed_by_a_part_of_the_limit() -> None:
    at_most = Figure(1, "", 1.10, {"defaults": 1.32, "raised": 1.10})
    assert (at_most.met("raised"), at_most.missed_by("raised")) == (True, 0.0)
    assert at_most.missed_by("defaults") == pytest.approx(0.2)
    assert Figure(6, "", 500, {ALWAYS: 400}, at_least=True).missed_by(ALWAYS) == pytest.approx(0.2)


def test_the_plain_forward_has_another_limit_at_the_longest_prompt() -> None:
    short = figure(f"Ours, plain, over {EAGER}, T = 16")
    long = figure(f"Ours, plain, over {EAGER}, T = 1,024")
    assert (short.limit, dict(short.measured)) == (1.03, {"defaults": 0.95, "raised": 0.95})
    assert (long.limit, set(long.measured)) == (1.10, {"raised"})
    assert long.measured["raised"] == pytest.approx(1700 / 1500)


def test_what_recording_may_take_is_the_weights_a_quarter_more_and_a_block() -> None:
    peak = figure("Peak memory of recording, over Python and torch alone, T = 1,024")
    assert peak.limit == pytest.approx(1.25 * 400 + 100)
    assert peak.measured["defaults"] == pytest.approx(960 - 300)
    assert not peak.met("defaults")


def test_a_start_may_take_a_second_more_than_torch() -> None:
    start = figure("Start to first answer (1.3 × importing torch + 1 s)")
    assert (start.limit, start.measured[ALWAYS]) == (pytest.approx(2.3), 1.8)


def test_pictures_count_for_the_larger_budget_only() -> None:
    assert figure("A first visit, largest of three pages, without pictures").measured[ALWAYS] == 50
    assert figure("The same with pictures").measured[ALWAYS] == 59


def test_rows_of_the_table() -> None:
    lines = [figure_line(each, ("defaults", "raised")) for each in figures(results())]
    assert "| 1 | Ours, recorded, over ours, plain, T = 16 | ≤ 1.05 × | 1.02 × / 1.02 × | met |" in lines
    missed = "| 2 | Ours, everything tapped, over transformers, eager, T = 16 | ≤ 1.10 × | 1.15 × / 1.15 × |"
    assert f"{missed} **missed by 4.5%** |" in lines
    assert "| 2 | Named tensors, against the most of any peer but torchlens | ≥ 211 | 349 | met |" in lines
    summaries = "| 5 | All summaries of all tensors of a trace, over one forward, T = 64 | ≤ 0.20 × | 0.18 × | met |"
    assert summaries in lines
    assert "| 6 | Catalogue pages a second, one worker, 8 readers | ≥ 500/s | 500/s | met |" in lines
    assert "| 6 | A tensor page (warm), p99 at 8 readers | ≤ 60 ms | 90 ms | **missed by 50%** |" in lines


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(1234.5, "ms", "1,234 ms"), (12.34, "s", "12.3 s"), (0.5, "KB", "0.50 KB"), (0.0123, "ms", "0.0123 ms"),
     (2, "×", "2.00 ×")],
)  # fmt: skip
def test_numbers_are_shown_to_about_three_digits(value: float, unit: str, shown: str) -> None:
    assert number(value, unit) == shown


def test_the_report_says_where_and_what_was_left_out() -> None:
    report = markdown(results())
    assert "A processor, 2 cores, 24.0 GiB" in report
    assert "Not measured: peers-nnsight-raised (nnsight cannot be installed: no such release)" in report
    assert "| TransformerLens, run_with_cache | transformer-lens 3 | 210 (349) | 2.67 (1.02) |" in report
    assert "quick" not in report
    assert "quick" in markdown(replace(results(), quick=True))


def test_results_survive_their_file() -> None:
    assert from_json(results().to_json()) == results()


def test_a_browser_follows_style_sheets_scripts_icons_pictures_and_fonts() -> None:
    page = '<link rel="stylesheet" href="/a.css"><link rel="canonical" href="/x"><script src="/b.js"></script>'
    page += '<img src="c.png" srcset="d.png 2x"><a href="/e">e</a><link rel="icon" href="/f.svg">'
    assert needs("text/html; charset=utf-8", page) == ["/a.css", "/b.js", "c.png", "d.png", "/f.svg"]
    assert needs("text/css", "@font-face{src:url('g.woff2')}a{background:url(h.svg)}") == ["g.woff2", "h.svg"]
    assert needs("text/javascript", 'import { x } from "./i.js"; const y = await import("/j.js");') == [
        "./i.js",
        "/j.js",
    ]


# --- the measuring itself, on tiny models ---


def test_plans_survive_their_json() -> None:
    assert plan.from_json(plan.FULL.to_json()) == plan.FULL
    assert plan.from_json(TINY.to_json()) == TINY


def test_the_forward_is_measured_in_every_way(capsys: pytest.CaptureFixture[str]) -> None:
    found = forward.measure(replace(TINY, tapped_up_to=4))
    assert [(each.tokens, len(each.timed)) for each in found.lengths] == [(4, 5), (8, 4)]
    assert all(each.same_bits and each.largest_difference < 1e-5 for each in found.lengths)
    assert "T = 8" in capsys.readouterr().out


def test_sizes_are_those_of_the_tapped_tensors() -> None:
    model = twins.ours(TINY.config)
    ids = twins.tokens(TINY.config, 8)
    tapped = {name: tensor.nbytes for name, tensor in forward.keeping(model, ids).items()}
    assert forward.sizes(model, ids) == {
        name: size for name, size in tapped.items() if name not in model.weights and name != "tokens"
    }


def test_what_is_kept_is_counted_and_replays_are_the_same_bits() -> None:
    found = sizes.measure(TINY)
    d, layers, length = TINY.config.n_embd, TINY.config.n_layer, TINY.longest
    # The ids; the stream before the first block and after each; keys and values of each block.
    assert found.kept.kept == 8 * length + 4 * length * d * (1 + layers + 2 * layers)
    assert [again.bit_for_bit for again in found.again] == [True, True]


def test_costs_are_measured_against_length_and_size() -> None:
    found = scale.lengths(TINY)
    assert [cost.tokens for cost in found.costs] == list(TINY.scaled_lengths)
    assert found.kept.exponent == pytest.approx(1)
    large = scale.largest(TINY)
    assert large.parameters == sum(tensor.numel() for tensor in twins.ours(TINY.largest).weights.values())
    assert large.opened_bytes == 4 * TINY.largest.n_head * TINY.longest**2


def test_a_part_that_fails_is_told_and_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, TINY)
    part = next(part for part in parts(TINY, ("defaults",)) if part.name == "forward-defaults")
    monkeypatch.setattr(store, "_run", lambda part: (None, "it broke"))
    failed = store.measure(part)
    assert store.found(part) is None
    assert collect(MACHINE, True, [(part, failed)]).problems == {"forward-defaults": "it broke"}


def test_a_part_stays_measured_until_plan_or_code_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, TINY)
    part = next(part for part in parts(TINY, ("defaults",)) if part.name == "forward-defaults")
    monkeypatch.setattr(store, "_run", lambda part: ({"x": 1}, ""))
    done = store.measure(part)
    assert store.found(part) == done
    assert Store(tmp_path, replace(TINY, repeats=3)).found(part) is None
    monkeypatch.setattr("benchmarks.store.code_hash", lambda folders: "f" * 16)
    assert store.found(part) is None
    assert store.found(part, any_code=True) == done


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--only", "forward,peer"])
    assert ended.value.code == 2
    assert "'peer' is none of forward" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_writes_a_table_with_numbers_and_goes_on_where_it_was(repository: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", "forward", "--allocators", "raised"]
    command += ["--out", str(tmp_path)]
    first, second = (
        subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert ": measured" not in first
    assert "[1/1] forward-raised: measured 2" in second
    table = (tmp_path / "results.md").read_text()
    assert "| 1 | Ours, recorded, over ours, plain, T = 4 | ≤ 1.05 × | " in table
    found = from_json((tmp_path / "results.json").read_text())
    assert json.loads((tmp_path / "results.json").read_text())["quick"] is True
    shortest = found.forward["raised"].lengths[0].of(PLAIN)
    assert shortest is not None
    assert len(shortest.milliseconds) == 3
    assert median(shortest.milliseconds) > 0
    done = json.loads((tmp_path / "parts" / "forward-raised.json").read_text())
    assert Done(**done).problem == ""
