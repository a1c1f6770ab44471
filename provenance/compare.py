"""Comparing two sides tensor by tensor: two traces, or a file of named tensors with one.

The way is chosen by what can be compared: equal steps whole, or else the positions that both sides
have run with the same tokens. What cannot be compared is said in the notes, never guessed.
"""

from collections.abc import Callable, Iterable

from provenance.compare_names import compare_files, compare_named
from provenance.compare_positions import by_positions, common_positions, not_by_position, run_ids
from provenance.comparison import (
    Comparison,
    How,
    Input,
    Recorded,
    UnknownName,
    Upstream,
    by_segment,
    check_tolerance,
    upstream,
)
from provenance.difference import Difference, Status, difference
from provenance.errors import InvalidInput
from provenance.names import Address

__all__ = [
    "Comparison", "Difference", "How", "Input", "Recorded", "Status", "UnknownName", "Upstream",
    "compare_files", "compare_named", "compare_traces", "upstream",
]  # fmt: skip

Progress = Callable[[int, int], None]
"""Called with the number of tensors compared and the number of all."""

_SITES_NAMED = 8


def compare_traces(
    a: Recorded,
    b: Recorded,
    *,
    relative: float | None = None,
    how: How | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare two traces. `relative` is the tolerance, None that of the dtypes; `how` forces a way.

    Raises InvalidInput for the way by names, which needs a file, and for a tolerance under zero.
    """
    check_tolerance(relative)
    if how is How.NAMES:
        raise InvalidInput("Two traces have the same names.", hint="Compare them by steps or by positions.")
    lengths = [len(side.trace.recipe.tokens) for side in (a, b)]
    common = common_positions(a, b)
    runs = [len(run_ids(side)) for side in (a, b)]
    if how is How.STEPS or (how is None and lengths[0] == lengths[1]):
        return _by_steps(a, b, relative, progress)
    if how is How.POSITIONS or common == min(runs):
        return _by_positions(a, b, common, relative, progress)
    said = f"prompts have {lengths[0]} and {lengths[1]} tokens"
    if _read(a) == _read(b) == "vector":
        said = f"inputs have {lengths[0]} and {lengths[1]} vectors"
    note = (
        f"The {said}, so their steps do not fit, and only "
        f"{_positions(common)} from the start {'has' if common == 1 else 'have'} the same {_read(a)}s."
    )
    hint = f" Compare by positions to see {'it' if common == 1 else 'them'}." if common else ""
    notes = (*_facts(a, b), f"{note} Only the parameters are compared.{hint}")
    return _by_positions(a, b, 0, relative, progress, notes)


# --- by steps ---


def _by_steps(a: Recorded, b: Recorded, relative: float | None, progress: Progress | None) -> Comparison:
    last = min(a.trace.last_step, b.trace.last_step)
    orders = [[at for step in range(last + 1) for at in side.order(step)] for side in (a, b)]
    theirs = set(orders[1])
    shared = tuple(at for at in orders[0] if at in theirs)
    only_a, only_b = _missing(orders[0], theirs), _missing(orders[1], set(shared))
    notes = [*_facts(a, b)]
    for label, side in (("A", a), ("B", b)):
        if side.trace.last_step > last:
            notes.append(f"Only {label} has decode steps over {last}; they are not compared.")
    other = [step for step in range(1, last + 1) if _ids(a, step) != _ids(b, step)]
    if other:
        notes.append(f"Decode step {other[0]} ran other tokens, so it computes something else from there on.")
    rows: list[Difference] = []
    for addresses in by_segment(shared):
        for address in addresses:
            rows.append(_whole(a, b, address, relative))
            if progress:
                progress(len(rows), len(shared))
    return Comparison(How.STEPS, tuple(rows), only_a, only_b, (), tuple(notes), relative)


def _whole(a: Recorded, b: Recorded, address: Address, relative: float | None) -> Difference:
    one, other = a.tensor(address), b.tensor(address)
    # Masked cells are compared as masked: another family or dtype may fill them otherwise.
    visible = a.visible(address) if one.shape == other.shape else None
    hidden, scale = visible is not None, a.scale(address)
    return difference(address, one, other, visible=visible, relative=relative, hidden=hidden, scale=scale)


def _missing(order: Iterable[Address], others: set[Address]) -> tuple[str, ...]:
    return tuple(str(at) for at in order if at not in others)


# --- by positions ---


def _by_positions(
    a: Recorded,
    b: Recorded,
    n: int,
    relative: float | None,
    progress: Progress | None,
    notes: tuple[str, ...] | None = None,
) -> Comparison:
    orders = [side.order(0) for side in (a, b)]
    theirs = set(orders[1])
    shared = [at for at in orders[0] if at in theirs]
    done = 0

    def tell(_: Address) -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, len(shared))

    rows = tuple(by_positions(a, b, n, relative, tell))
    if notes is None:
        notes = (*_facts(a, b), *_position_facts(a, b, n))
    only_a, only_b = _missing(orders[0], theirs), _missing(orders[1], set(shared))
    return Comparison(How.POSITIONS, rows, only_a, only_b, (), notes, relative, parameters_only=not n)


def _position_facts(a: Recorded, b: Recorded, n: int) -> list[str]:
    notes = []
    if not n:
        notes.append(
            f"No position from the start on has the same {_read(a)} on both sides: only parameters are compared."
        )
        return notes
    notes.append(f"The first {_positions(n)} are compared, each with the keys up to itself.")
    for label, side in (("A", a), ("B", b)):
        if not any(row.masked_by for row in side.catalogue):
            notes.append(f"{label}'s model masks nothing: what it computes at a position rests on later ones too.")
    for label, side in (("A", a), ("B", b)):
        if (run := len(run_ids(side))) > n:
            notes.append(f"{label} has run {_positions(run)}; those from {n} on are not compared.")
    if skipped := not_by_position(a, b):
        shown = ", ".join(skipped[:_SITES_NAMED])
        more = f" and {len(skipped) - _SITES_NAMED} more" if len(skipped) > _SITES_NAMED else ""
        notes.append(f"Not compared, as they have no row for each position or count within a step: {shown}{more}.")
    return notes


# --- what differs between the two runs themselves ---


def _facts(a: Recorded, b: Recorded) -> list[str]:
    """What to know before reading the figures: other model, prompt, dtype, edits."""
    one, other = a.trace.recipe, b.trace.recipe
    notes = []
    if one.model.family != other.model.family:
        notes.append(f"The models are of different families: {one.model.family} and {other.model.family}.")
    sizes = [
        f"{key} {one.model.config.get(key, 'none')} and {other.model.config.get(key, 'none')}"
        for key in sorted(one.model.config.keys() | other.model.config.keys())
        if one.model.config.get(key) != other.model.config.get(key)
    ]
    if sizes:
        notes.append(f"The models' settings differ: {', '.join(sizes)}.")
    if one.model.weights_sha256 != other.model.weights_sha256:
        notes.append(f"The models have other weights: {one.model.name} and {other.model.name}.")
    if one.model.dtype != other.model.dtype:
        notes.append(
            f"The dtypes differ: {one.model.dtype} and {other.model.dtype}; the coarser one's tolerance holds."
        )
    notes += _input_facts(a, b)
    if one.threads != other.threads or one.torch != other.torch:
        notes.append("They ran with another number of threads or another torch: last places may differ.")
    for label, recipe in (("A", one), ("B", other)):
        if recipe.edits:
            notes.append(f"{label} was edited: {'; '.join(map(str, recipe.edits))}.")
    return notes


def _input_facts(a: Recorded, b: Recorded) -> list[str]:
    one, other = a.trace.recipe.drawn, b.trace.recipe.drawn
    if (one is None) != (other is None):
        return [f"Only {'B' if one is None else 'A'} read vectors drawn from a seed; the other read tokens."]
    notes = []
    if one and other and one.seed != other.seed:
        notes.append(f"The vectors are drawn from other seeds, {one.seed} and {other.seed}: the same number is "
                     "another vector.")  # fmt: skip
    if one and other and one.batch != other.batch:
        notes.append(f"The batches have {one.batch} and {other.batch} entries, so their tensors do not fit.")
    first, second = _ids(a, 0), _ids(b, 0)
    if first != second and len(first) == len(second):
        apart = [n for n, pair in enumerate(zip(first, second, strict=True)) if pair[0] != pair[1]]
        what = f"{len(apart)} of {len(first)} {_read(a)}s"
        notes.append(f"The {'inputs' if one else 'prompts'} differ in {what}, first at position {apart[0]}.")
    return notes


def _read(side: Recorded) -> str:
    """What a side read at a position."""
    return "vector" if side.trace.recipe.drawn else "token"


def _ids(side: Recorded, step: int) -> tuple[int, ...]:
    return tuple(token.id for token in side.trace.tokens_of(step))


def _positions(number: int) -> str:
    return f"{number:,} position{'' if number == 1 else 's'}"
