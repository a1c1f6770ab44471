"""What edits did, as the command line prints it."""

from typing import TYPE_CHECKING

from app.cli_text import columns, count_of, wrapped
from app.pages.numbers import percent, rounded

if TYPE_CHECKING:
    from app.explorer import Explorer
    from provenance.edits import Edit
    from provenance.effect import Effect, Moved, Shift, Touched
    from provenance.trace import Trace

_ID_DIGITS = 12
_TOP = 5


def effect_text(here: "Explorer", trace: "Trace") -> str:
    """What each edit changed, and what that did to the next token's distribution in each step."""
    found = here.effect(trace, _TOP)
    lines = ["Changed while it ran:"]
    for edit in trace.recipe.edits:
        lines += [f"  {edit}", wrapped(_touched(edit, found), 4)]
    lines += ["", wrapped(f"The run without the changes is trace {found.original[:_ID_DIGITS]}.")]
    if found.none:
        return "\n".join([*lines, wrapped(f"No effect: {found.none}")])
    names = _names(here, trace, found)
    steps = [("step", "KL, nats", "most likely next token")]
    steps += [(_step(shift), _kl(shift), _best(shift, names)) for shift in found.shifts]
    lines += ["Next token before and after; KL is D(before ‖ after):", *_indented(columns(steps))]
    first = found.shifts[0] if found.shifts else None
    if first and first.moved:
        moved: list[tuple[str, ...]] = [("token", "before", "", "after", "")]
        moved += [_moved(token, names) for token in sorted(first.moved, key=lambda m: m.after.rank)]
        lines += [f"Its most likely tokens after the {_step(first)}:", *_indented(columns(moved))]
    if found.parted is not None:
        lines.append(wrapped(f"From step {found.parted} on the two runs have other tokens and are not compared."))
    return "\n".join(lines)


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]


def _touched(edit: "Edit", found: "Effect") -> str:
    mine: list[Touched] = [touched for touched in found.touched if touched.edit == edit]
    if not mine:
        return "no step of this run has these cells"
    chosen, changed = sum(each.chosen for each in mine), sum(each.changed for each in mine)
    largest = rounded(max(each.largest for each in mine))
    where = "" if len(mine) == 1 else f" in {len(mine)} steps"
    return f"{count_of(chosen, 'cell')} chosen{where}, {changed:,} changed, by up to {largest}"


def _names(here: "Explorer", trace: "Trace", found: "Effect") -> dict[int, str]:
    ids = list(dict.fromkeys(moved.id for shift in found.shifts for moved in shift.moved))
    tokens = here.models.tokens(trace.recipe.model.name, ids)
    return {token.id: f"[{token.text}]" for token in tokens}


def _step(shift: "Shift") -> str:
    return f"step {shift.position.step}" if shift.position.step else "prefill"


def _kl(shift: "Shift") -> str:
    return "–" if shift.kl is None else rounded(shift.kl)


def _best(shift: "Shift", names: dict[int, str]) -> str:
    if shift.problem:
        return shift.problem
    before = next((names[moved.id] for moved in shift.moved if moved.before.rank == 1), "none")
    after = next((names[moved.id] for moved in shift.moved if moved.after.rank == 1), "none")
    return f"{before} as before" if not shift.best_changed else f"{before} → {after}"


def _moved(moved: "Moved", names: dict[int, str]) -> tuple[str, ...]:
    before, after = moved.before, moved.after
    return (
        names[moved.id],
        percent(before.probability).text,
        f"rank {before.rank}",
        percent(after.probability).text,
        f"rank {after.rank}",
    )
