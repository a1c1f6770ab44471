"""Run the measurements: `python -m benchmarks [--only forward,peers] [--without xl] [--quick] [--out build/bench]`.

What was measured with the code as it is stays measured: a run that was stopped goes on where it was.
results.md and results.json in the output directory are written anew after every part.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.figures import figures
from benchmarks.machine import ALLOCATORS, describe
from benchmarks.parts import GROUPS, LARGEST, parts
from benchmarks.plan import FULL, QUICK
from benchmarks.report import figure_line, markdown
from benchmarks.results import Results, collect
from benchmarks.store import Store


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what was asked for; 1 where a part failed that is ours, 2 for a wrong request."""
    asked = _parser().parse_args(arguments)
    plan = QUICK if asked.quick else FULL
    chosen = parts(plan, tuple(asked.allocators), largest=LARGEST not in asked.without)
    wanted = [part for part in chosen if part.group in asked.only and part.group not in asked.without]
    store, machine = Store(asked.out, plan), describe()
    there = {part: done for part in chosen if (done := store.found(part, any_code=asked.keep)) and not asked.fresh}
    for number, part in enumerate(wanted, 1):
        done = there.get(part)
        print(f"[{number}/{len(wanted)}] {part.name}{f': measured {done.date}' if done else ''}", flush=True)
        if done is None:
            done = there[part] = store.measure(part)
            print(f"    {done.problem or f'{done.seconds:.0f} s'}", flush=True)
        results = collect(machine, asked.quick, [(part, there[part]) for part in chosen if part in there])
        _write(asked.out, results)
    if wanted:
        print("\n".join(figure_line(figure, results.allocators) for figure in figures(results)))
        print(f"written: {asked.out / 'results.md'} and results.json")
    return int(any(done.problem and not part.peer for part, done in there.items()))


def _write(out: Path, results: Results) -> None:
    (out / "results.json").write_text(results.to_json())
    (out / "results.md").write_text(markdown(results))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure this project beside its peers."
    )
    add = parser.add_argument
    add("--only", type=_listed(GROUPS), default=list(GROUPS), metavar="A,B", help=f"of {', '.join(GROUPS)}")
    add("--without", type=_listed((*GROUPS, LARGEST)), default=[], metavar="A,B", help=f"any of these, or {LARGEST}")
    add(
        "--allocators",
        type=_listed(tuple(ALLOCATORS)),
        default=list(ALLOCATORS),
        metavar="A,B",
        help="defaults, raised",
    )
    add("--quick", action="store_true", help="tiny models and few rounds, to see that everything runs")
    add("--out", type=Path, default=Path("build/bench"), metavar="DIR", help="where environments and results go")
    add("--fresh", action="store_true", help="measure again what was measured")
    add("--keep", action="store_true", help="keep what was measured before the code changed")
    return parser


def _listed(known: Sequence[str]) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        names = [name for name in text.split(",") if name]
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return names

    return read


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped: the same command goes on from here")
