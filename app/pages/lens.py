"""The logit lens: what the residual stream predicts after every block, by position."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.badge import Badge
from app.pages.edited import Edited, changed_output, edited_of
from app.pages.frame import Frame, frame
from app.pages.links import attribution_url, lens_url, tensor_url, trace_url, with_query
from app.pages.numbers import Number, count, measure, percent
from app.pages.predictions import CandidateView, views_of
from app.pages.scope import Link, Scope
from app.pages.tokens import position_url
from provenance.errors import OutOfRange, UnknownModel, UnsupportedCheckpoint
from provenance.inputs import said
from provenance.lens import Distribution, Lens, Position, Stage, positions_around, sequence
from provenance.names import Address
from provenance.trace import Trace

COLUMNS = 12
"""Positions that one table shows."""

_TOP = 5
_LEVELS = 9


@dataclass(frozen=True, slots=True)
class LensCell:
    """What one stage predicts at one position. `level` shades it, 0 to 9."""

    text: str
    probability: Number
    agrees: bool
    rank: Number | None
    level: int
    says: str
    url: str
    current: bool
    problem: str


@dataclass(frozen=True, slots=True)
class LensLine:
    """One stage of the residual stream, with its cells."""

    title: str
    place: str
    url: str
    cells: tuple[LensCell, ...]


@dataclass(frozen=True, slots=True)
class LensColumn:
    """One position. `first` and `settled` say after which stage the final token is predicted first, and for good."""

    position: int
    step: int
    text: str
    url: str
    current: bool
    final: str
    first: str
    settled: str


@dataclass(frozen=True, slots=True)
class LensTable:
    """The lens at some neighbouring positions; `proof` compares its last line with the recorded logits."""

    columns: tuple[LensColumn, ...]
    lines: tuple[LensLine, ...]
    proof: Badge
    difference: Number
    tolerance: Number


@dataclass(frozen=True, slots=True)
class CellDetail:
    """The cell that was chosen: its most likely tokens, exactly."""

    title: str
    says: str
    candidates: tuple[CandidateView, ...]
    final: CandidateView | None
    problem: str


@dataclass(frozen=True, slots=True)
class LensPage:
    """The lens of a trace around a position. `table` is None where `problem` says why there is none.

    `changed_output` are the edits that act on the output itself, which the lens applies unchanged.
    """

    frame: Frame
    trace_url: str
    trace_text: str
    position: int
    position_url: str
    untrained: bool
    edited: Edited | None
    changed_output: tuple[str, ...]
    table: LensTable | None
    problem: str
    hint: str
    detail: CellDetail | None
    previous: Link | None
    next: Link | None
    total: int
    attribution_url: str
    json_url: str


@dataclass(frozen=True, slots=True)
class NoLens:
    """Why there is no lens, and what to do."""

    message: str
    hint: str


def lens_page(explorer: Explorer, trace: Trace, at: Position, stage: str) -> LensPage:
    """The lens around a position, with one cell looked at. Raises OutOfRange for a stage that is none."""
    window = positions_around(trace, at, COLUMNS)
    found = lens_of(explorer, trace, window)
    if isinstance(found, Lens):
        stage = stage or found.stages[-1].place
    table = None if isinstance(found, NoLens) else _table(explorer, trace, found, at, stage)
    scope = Scope.of(explorer, trace, 0, at.step)
    total = len(trace.recipe.tokens) + trace.last_step
    return LensPage(
        frame=frame(scope, f"Logit lens of {said(trace.recipe, 40)}, position {at.number}"),
        trace_url=trace_url(trace.id),
        trace_text=said(trace.recipe),
        position=at.number,
        position_url=position_url(trace, at.number),
        untrained=not trace.recipe.model.trained,
        edited=edited_of(explorer, trace),
        changed_output=changed_output(explorer, trace),
        table=table,
        problem=found.message if isinstance(found, NoLens) else "",
        hint=found.hint if isinstance(found, NoLens) else "",
        detail=None if isinstance(found, NoLens) else _detail(explorer, trace, found, at, stage),
        previous=_move(trace, window[0].number - COLUMNS // 2, "earlier") if window[0].number else None,
        next=_move(trace, min(window[-1].number + COLUMNS // 2, total - 1), "later")
        if window[-1].number < total - 1
        else None,
        total=total,
        attribution_url=attribution_url(trace.id, at.number),
        json_url=f"/api{lens_url(trace.id, at.number)}",
    )


def lens_column(explorer: Explorer, trace: Trace, at: Position) -> LensTable | NoLens:
    """The lens at one position alone."""
    found = lens_of(explorer, trace, (at,))
    return found if isinstance(found, NoLens) else _table(explorer, trace, found, at, "")


def lens_of(explorer: Explorer, trace: Trace, positions: tuple[Position, ...]) -> Lens | NoLens:
    """The lens, or why there is none: the model is gone."""
    try:
        return explorer.lens(trace, positions, _TOP)
    except (UnknownModel, UnsupportedCheckpoint) as problem:
        return NoLens(problem.message, problem.hint)


def stage_name(stage: Stage) -> str:
    """A stage as a person says it."""
    return "embedding" if stage.layer is None else f"after block {stage.layer}"


def _move(trace: Trace, number: int, name: str) -> Link:
    return Link(lens_url(trace.id, max(0, number)), "", f"{name} positions")


def _table(explorer: Explorer, trace: Trace, lens: Lens, at: Position, chosen: str) -> LensTable:
    digits = 2 if len(lens.positions) > 1 else 3  # a cell of the table is narrow
    ids = sorted({d.best for stage in lens.stages for d in stage.cells if d.best is not None} | _finals(lens))
    tokens = explorer.models.tokens(trace.recipe.model.name, ids)
    texts = {token.id: token.text for token in tokens}
    everything = sequence(trace)
    columns = tuple(
        LensColumn(
            position=position.number,
            step=position.step,
            text=everything[position.number].text,
            url=lens_url(trace.id, position.number),
            current=position.number == at.number,
            final="" if final is None else texts[final],
            first=_named(lens, lens.first(column)),
            settled=_named(lens, lens.settled(column)),
        )
        for column, (position, final) in enumerate(zip(lens.positions, lens.final, strict=True))
    )
    lines = tuple(
        LensLine(
            title=stage_name(stage),
            place=stage.place,
            url=_stage_url(trace, stage, at),
            cells=tuple(
                _cell(lens, number, column, texts, digits, chosen == stage.place and columns[column].current)
                for column in range(len(columns))
            ),
        )
        for number, stage in enumerate(lens.stages)
    )
    return LensTable(columns, lines, _proof(lens), measure(lens.largest_difference), measure(lens.tolerance))


def _finals(lens: Lens) -> set[int]:
    return {final for final in lens.final if final is not None}


def _named(lens: Lens, stage: int | None) -> str:
    return "" if stage is None else stage_name(lens.stages[stage])


def _stage_url(trace: Trace, stage: Stage, at: Position) -> str:
    place = Address.parse(stage.place)
    return tensor_url(trace.id, Address(place.site, place.layer, at.step))


def _cell(lens: Lens, number: int, column: int, texts: dict[int, str], digits: int, current: bool) -> LensCell:
    stage, position = lens.stages[number], lens.positions[column]
    found = stage.cells[column]
    url = with_query("", position=position.number, stage=stage.place)
    if not found.top:
        return LensCell("", percent(None), False, None, 0, found.problem, url, current, found.problem)
    best = found.top[0]
    agrees = lens.agrees(number, column)
    says = f"{best.probability!r}"
    if not agrees and found.watched:
        says += f"; the final token has rank {found.watched.rank}"
    return LensCell(
        text=texts[best.id],
        probability=percent(best.probability, digits),
        agrees=agrees,
        rank=count(found.watched.rank) if found.watched else None,
        level=min(_LEVELS, int(best.probability * (_LEVELS + 1))),
        says=says,
        url=url,
        current=current,
        problem="",
    )


def _detail(explorer: Explorer, trace: Trace, lens: Lens, at: Position, chosen: str) -> CellDetail | None:
    if not chosen:
        return None
    stage = next((stage for stage in lens.stages if stage.place == chosen), None)
    if stage is None:
        raise OutOfRange(
            f"The lens has no stage {chosen[:60]!r}.",
            hint=f"It has {lens.stages[0].place}, {lens.stages[1].place} to {lens.stages[-1].place}.",
        )
    column = lens.positions.index(at)
    cell: Distribution = stage.cells[column]
    final = lens.final[column]
    candidates = (*cell.top, *([cell.watched] if cell.watched else []))
    views = views_of(explorer, trace, candidates, -1 if final is None else final)
    return CellDetail(
        title=f"{stage_name(stage).capitalize()}, position {at.number}",
        says=sequence(trace)[at.number].text,
        candidates=views[: len(cell.top)],
        final=views[-1] if cell.watched else None,
        problem=cell.problem,
    )


def _proof(lens: Lens) -> Badge:
    difference, tolerance = f"{lens.largest_difference:.2g}", f"{lens.tolerance:.2g}"
    if lens.holds:
        return Badge(
            "proven", "✓", "equals the recorded logits",
            f"The last line was computed like every other one; its logits differ from the recorded ones "
            f"by {difference} at most (tolerance {tolerance}).",
        )  # fmt: skip
    return Badge(
        "differs", "≠", "differs from the recorded logits",
        f"The last line's logits differ from the recorded ones by {difference} (tolerance {tolerance}).",
    )  # fmt: skip
