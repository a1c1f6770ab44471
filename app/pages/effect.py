"""What the edits of a trace did, as its page shows it."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.links import tensor_url
from app.pages.numbers import Number, count, measure, percent
from app.pages.scope import step_name
from app.pages.tokens import position_url
from provenance.edits import Edit
from provenance.effect import Effect, Moved, Shift, Touched
from provenance.errors import CorruptTrace, UnknownModel, UnknownTrace, UnsupportedCheckpoint
from provenance.lens import sequence
from provenance.trace import Trace

_BARS = 256
_HEIGHT = 36.0
_SMALLEST_BAR = 1.2


@dataclass(frozen=True, slots=True)
class TouchedView:
    """What one edit did to its cells, over all steps. `steps` says in which; empty where it chose none."""

    text: str
    url: str
    steps: str
    chosen: Number
    changed: Number
    largest: Number


@dataclass(frozen=True, slots=True)
class MovedView:
    """A token before and after. `way` is `up`, `down` or `same`, by its probability; `says` that in a word."""

    text: str
    before: Number
    after: Number
    rank_before: Number
    rank_after: Number
    way: str
    sign: str
    says: str


@dataclass(frozen=True, slots=True)
class ShiftView:
    """The next token of one step before and after. Where `problem` is not empty there is no divergence."""

    id: str
    step: str
    position: int
    position_url: str
    kl: Number
    best_before: str
    best_after: str
    best_changed: bool
    same: bool
    moved: tuple[MovedView, ...]
    problem: str


@dataclass(frozen=True, slots=True)
class KlBar:
    """The divergence at some positions, the largest of them: one bar of the strip, 0 to 100 wide in all."""

    x: str
    width: str
    y: str
    height: str
    says: str


@dataclass(frozen=True, slots=True)
class Along:
    """The divergence along the positions; `says` is the picture in words, `joined` the positions of one bar."""

    bars: tuple[KlBar, ...]
    joined: int
    last: int
    largest: Number
    says: str


@dataclass(frozen=True, slots=True)
class EffectView:
    """What the edits did. Where it cannot be said, `problem` says why; `gone` where the original is not stored.

    `none` is the sentence that there is no effect, `parted` the one that the runs went apart.
    """

    touched: tuple[TouchedView, ...] = ()
    shifts: tuple[ShiftView, ...] = ()
    along: Along | None = None
    none: str = ""
    parted: str = ""
    json_url: str = ""
    problem: str = ""
    hint: str = ""
    gone: bool = False


def effect_view(explorer: Explorer, trace: Trace) -> EffectView | None:
    """What the edits of a trace did; None where it has none."""
    if not trace.recipe.edits:
        return None
    try:
        found = explorer.effect(trace)
    except (UnknownTrace, CorruptTrace):
        return EffectView(problem="The run without the changes is not stored any more.", gone=True)
    except (UnknownModel, UnsupportedCheckpoint) as problem:
        return EffectView(problem=problem.message, hint=problem.hint)
    ids = list(dict.fromkeys(moved.id for shift in found.shifts for moved in shift.moved))
    names = {token.id: token.text for token in explorer.models.tokens(trace.recipe.model.name, ids)}
    return EffectView(
        touched=tuple(_touched(trace, edit, found.touched) for edit in dict.fromkeys(trace.recipe.edits)),
        shifts=tuple(_shift(trace, shift, names) for shift in found.shifts),
        along=_along(trace, found),
        none=found.none,
        parted=_parted(found),
        json_url=f"/api/traces/{trace.id}/effect",
    )


def _touched(trace: Trace, edit: Edit, touched: tuple[Touched, ...]) -> TouchedView:
    mine = [each for each in touched if each.edit == edit]
    steps = list(dict.fromkeys(each.address.step for each in mine))
    where = step_name(steps[0]) if len(steps) == 1 else f"{len(steps)} steps" if steps else ""
    return TouchedView(
        text=str(edit),
        url=tensor_url(trace.id, mine[0].address) if mine else "",
        steps=where,
        chosen=count(sum(each.chosen for each in mine)),
        changed=count(sum(each.changed for each in mine)),
        largest=measure(max((each.largest for each in mine), default=None)),
    )


def _shift(trace: Trace, shift: Shift, names: dict[int, str]) -> ShiftView:
    before = next((names[moved.id] for moved in shift.moved if moved.before.rank == 1), "")
    after = next((names[moved.id] for moved in shift.moved if moved.after.rank == 1), "")
    moved = sorted(shift.moved, key=lambda token: (token.after.rank, token.id))
    return ShiftView(
        id=f"effect-step-{shift.position.step}",
        step=step_name(shift.position.step),
        position=shift.position.number,
        position_url=position_url(trace, shift.position.number),
        kl=measure(shift.kl),
        best_before=before,
        best_after=after,
        best_changed=shift.best_changed,
        same=shift.same,
        moved=tuple(_moved(token, names[token.id]) for token in moved),
        problem=shift.problem,
    )


def _moved(moved: Moved, text: str) -> MovedView:
    before, after = moved.before.probability, moved.after.probability
    if after == before:
        way, sign, says = "same", "=", "as before"
    else:
        way, sign, says = ("up", "↑", "rose") if after > before else ("down", "↓", "fell")
    return MovedView(
        text=text,
        before=percent(before),
        after=percent(after),
        rank_before=count(moved.before.rank),
        rank_after=count(moved.after.rank),
        way=way,
        sign=sign,
        says=says,
    )


def _along(trace: Trace, found: Effect) -> Along | None:
    """Bars of equal width, some positions joined where there are more than a strip can show."""
    if not found.along:
        return None
    tokens = sequence(trace)
    joined = -(-len(found.along) // _BARS)
    groups = [range(first, min(first + joined, len(found.along))) for first in range(0, len(found.along), joined)]
    known = [(kl, n) for n, kl in enumerate(found.along) if kl is not None]
    largest, where = max(known, key=lambda each: (each[0], -each[1])) if known else (0.0, 0)
    width = 100 / len(groups)
    bars: list[KlBar] = []
    for number, group in enumerate(groups):
        values = [kl for n in group if (kl := found.along[n]) is not None]
        top = max(values, default=0.0)
        height = max(_SMALLEST_BAR, _HEIGHT * top / largest) if largest and top else 0.0
        place = f"position {group[0]}" if len(group) == 1 else f"positions {group[0]} to {group[-1]}"
        token = f" “{tokens[group[0]].text}”" if len(group) == 1 else ""
        bars.append(
            KlBar(
                x=f"{number * width + 0.08 * width:.3f}",
                width=f"{0.84 * width:.3f}",
                y=f"{_HEIGHT - height:.2f}",
                height=f"{height:.2f}",
                says=f"{place}{token}: {measure(top if values else None).text} nats",
            )
        )
    says = "It is 0 at every position." if not largest else _says(found, largest, where, tokens[where].text)
    return Along(tuple(bars), joined, len(found.along) - 1, measure(largest), says)


def _says(found: Effect, largest: float, where: int, token: str) -> str:
    first = next(n for n, kl in enumerate(found.along) if kl)
    before = f"Positions 0 to {first - 1}" if first > 1 else "Position 0"
    still = f"{before} did not move. " if first else ""
    return f"{still}The largest divergence is {measure(largest).text} nats, at position {where} (“{token}”)."


def _parted(found: Effect) -> str:
    if found.parted is None:
        return ""
    return (
        f"From decode step {found.parted} on the two runs have other tokens: the change made the model choose "
        "another one, so what comes after cannot be compared position by position."
    )
