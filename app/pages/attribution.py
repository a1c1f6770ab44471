"""Direct logit attribution: which heads, MLPs and embeddings wrote a token's logit."""

from dataclasses import dataclass

from markupsafe import Markup

from app.explorer import Explorer
from app.pages.attribution_parts import Grid, Line, grid_of, leaders_of, lines_of, shares_of
from app.pages.badge import Badge
from app.pages.edited import Edited, changed_output, edited_of
from app.pages.frame import Frame, frame
from app.pages.links import attribution_url, lens_url, tensor_url, trace_url
from app.pages.numbers import Number, count, measure, percent
from app.pages.scope import Link, Scope, step_name
from app.pages.tokens import position_url, text_before
from app.pages.what import mathml
from provenance.attribution import Attribution
from provenance.errors import UnknownModel, UnsupportedCheckpoint
from provenance.inputs import said
from provenance.lens import Candidate, Distribution, Position, positions_around, sequence
from provenance.names import Address
from provenance.trace import Trace

_POSITIONS = 12
_TOP = 10
_FORMULA = (
    r"\mathrm{logit}_t = \sum_{\mathrm{terms}} \frac{(x_i - \overline{x_i}) \odot g}{\sqrt{s + \epsilon}} \cdot W_t"
    r" + b \cdot W_t"
)


@dataclass(frozen=True, slots=True)
class Named:
    """A token by its id and text."""

    id: int
    text: str


@dataclass(frozen=True, slots=True)
class PositionChip:
    """A position to choose; `says` describes it in words."""

    number: int
    text: str
    says: str
    url: str
    current: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """A token that may be asked for: alone, or `against` which the chosen one's lead is measured."""

    rank: Number
    text: str
    probability: Number
    logit: Number
    url: str
    current: bool
    against_url: str
    against: bool
    follows: bool


@dataclass(frozen=True, slots=True)
class Result:
    """An attribution as the page shows it.

    `lines` are the writes in order of computation with the sum so far, `grid` each layer's terms,
    `leaders` the largest ones; `apart` says where the stream is not the sum of its writes.
    """

    check: Badge
    total: Number
    recorded: Number
    remainder: Number
    tolerance: Number
    kinds: tuple[Line, ...]
    lines: tuple[Line, ...]
    grid: Grid
    leaders: tuple[Line, ...]
    apart: str
    scale_url: str
    scale_name: str


@dataclass(frozen=True, slots=True)
class AttributionPage:
    """What wrote a logit. `result` is None where `problem` says why there is none."""

    frame: Frame
    trace_url: str
    trace_text: str
    untrained: bool
    edited: Edited | None
    changed_output: tuple[str, ...]
    position: int
    step: str
    text: str
    cut: bool
    token: Named | None
    against: Named | None
    alone_url: str
    positions: tuple[PositionChip, ...]
    previous: Link | None
    next: Link | None
    total: int
    choices: tuple[Choice, ...]
    vocabulary: int
    action: str
    result: Result | None
    problem: str
    hint: str
    formula: Markup
    position_url: str
    lens_url: str
    json_url: str


def attribution_page(
    explorer: Explorer, trace: Trace, at: Position, token: int | None, against: int | None
) -> AttributionPage:
    """The page of one attribution. Raises OutOfRange and InvalidInput for tokens that cannot be asked for."""
    problem = hint = ""
    found: Attribution | None = None
    odds = Distribution()
    try:
        odds = explorer.distribution(trace, at, _TOP)
        problem = odds.problem
        found = None if problem else explorer.attribution(trace, at, token, against)
    except (UnknownModel, UnsupportedCheckpoint) as missing:
        problem, hint = missing.message, missing.hint
    names = _names(explorer, trace, odds, found)
    named = names[found.token] if found else None
    scope = Scope.of(explorer, trace, 0, at.step)
    window = positions_around(trace, at, _POSITIONS)
    total = len(trace.recipe.tokens) + trace.last_step
    before, cut = text_before(trace, at)
    return AttributionPage(
        frame=frame(scope, f"What wrote “{named.text if named else '…'}” at position {at.number}"),
        trace_url=trace_url(trace.id),
        trace_text=said(trace.recipe),
        untrained=not trace.recipe.model.trained,
        edited=edited_of(explorer, trace),
        changed_output=changed_output(explorer, trace),
        position=at.number,
        step=step_name(at.step),
        text=before,
        cut=cut,
        token=named,
        against=None if found is None or found.against is None else names[found.against],
        alone_url=attribution_url(trace.id, at.number, found.token if found else None),
        positions=tuple(_chip(trace, each, each == at) for each in window),
        previous=_move(trace, window[0].number - _POSITIONS // 2, "earlier") if window[0].number else None,
        next=_move(trace, min(window[-1].number + _POSITIONS // 2, total - 1), "later")
        if window[-1].number < total - 1
        else None,
        total=total,
        choices=_choices(trace, at, odds, found, names),
        vocabulary=odds.size,
        action=attribution_url(trace.id),
        result=_result(scope, trace, found) if found else None,
        problem=problem,
        hint=hint,
        formula=mathml(_FORMULA),
        position_url=position_url(trace, at.number),
        lens_url=lens_url(trace.id, at.number),
        json_url=f"/api{attribution_url(trace.id, at.number, token, against)}",
    )


def _names(explorer: Explorer, trace: Trace, odds: Distribution, found: Attribution | None) -> dict[int, Named]:
    ids = {candidate.id for candidate in (*odds.top, *([odds.watched] if odds.watched else []))}
    ids |= set(found.tokens if found else ())
    tokens = explorer.models.tokens(trace.recipe.model.name, sorted(ids)) if ids else ()
    return {token.id: Named(token.id, token.text) for token in tokens}


def _chip(trace: Trace, at: Position, current: bool) -> PositionChip:
    text = sequence(trace)[at.number].text
    return PositionChip(
        at.number, text, f"position {at.number}, {step_name(at.step)}", attribution_url(trace.id, at.number), current
    )


def _move(trace: Trace, number: int, name: str) -> Link:
    return Link(attribution_url(trace.id, max(0, number)), "", f"{name} positions")


def _choices(
    trace: Trace, at: Position, odds: Distribution, found: Attribution | None, names: dict[int, Named]
) -> tuple[Choice, ...]:
    follows = sequence(trace)[at.number + 1].id
    listed = {candidate.id for candidate in odds.top}
    extra = [odds.watched] if odds.watched and odds.watched.id not in listed else []

    def choice(candidate: Candidate) -> Choice:
        own = found is not None and candidate.id == found.token
        return Choice(
            rank=count(candidate.rank),
            text=names[candidate.id].text,
            probability=percent(candidate.probability),
            logit=measure(candidate.logit),
            url=attribution_url(trace.id, at.number, candidate.id),
            current=own,
            against_url="" if own or found is None else
            attribution_url(trace.id, at.number, found.token, candidate.id),
            against=found is not None and candidate.id == found.against,
            follows=candidate.id == follows,
        )  # fmt: skip

    return tuple(choice(candidate) for candidate in (*odds.top, *extra))


def _result(scope: Scope, trace: Trace, found: Attribution) -> Result:
    scale = Address.parse(found.scale)
    row = scope.catalogue.row(scale.site)
    return Result(
        check=_check(found),
        total=_exactly(found.total),
        recorded=_exactly(found.recorded),
        remainder=_size(found.remainder),
        tolerance=_size(found.tolerance),
        kinds=shares_of(found),
        lines=lines_of(trace, found),
        grid=grid_of(trace, found),
        leaders=leaders_of(trace, found, _TOP),
        apart=_apart(found),
        scale_url=tensor_url(trace.id, Address(scale.site, scale.layer, found.position.step)),
        scale_name=row.title,
    )


def _check(found: Attribution) -> Badge:
    what = "lead" if found.against is not None else "logit"
    if found.holds:
        return Badge("proven", "✓", f"sums to the recorded {what}", f"The terms sum to the recorded {what}.")
    return Badge("differs", "≠", f"differs from the recorded {what}", f"The terms do not sum to the recorded {what}.")


def _exactly(value: float) -> Number:
    """Four decimals, as sums are read."""
    return Number(f"{value:.4f}", repr(value))


def _size(value: float) -> Number:
    return Number(f"{value:.2g}", repr(value))


def _apart(found: Attribution) -> str:
    """Where the stream is furthest from the sum of what was written to it, if by more than is tolerated."""
    worst = max(found.stages, key=lambda stage: abs(stage.unexplained))
    if abs(worst.unexplained) <= found.tolerance:
        return ""
    where = "the embeddings" if worst.layer is None else f"block {worst.layer}"
    gained = f"The residual stream after {where} is worth {worst.unexplained:+.4g} more than what was written to it"
    if any(term.writer == "edit" for term in found.terms):
        return f"{gained}: that is what an edit put there, and stands among the terms as such."
    return f"{gained}: it is rounded at each of its sums."
