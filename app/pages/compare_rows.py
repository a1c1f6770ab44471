"""All tensors of a comparison: rows in computation order, by step and by part of the model."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from app.pages.badge import Badge
from app.pages.compare_links import Wanted
from app.pages.numbers import Number
from app.pages.proof import difference
from app.pages.scope import Stop, step_name
from provenance.catalogue import Catalogue
from provenance.difference import Difference, Status
from provenance.names import Address

MOST_ROWS = 900
"""The most rows that a page holds with all parts of a step; of more, only those of the parts that matter."""

_BADGES = {
    Status.SAME: Badge("proven", "✓", "bit for bit", "Every cell is equal bit for bit."),
    Status.WITHIN: Badge("proven", "✓", "agrees", "Equal within the tolerance."),
    Status.DIFFERS: Badge("differs", "≠", "differs", "They differ by more than is tolerated."),
    Status.UNFIT: Badge("plain", "○", "not compared", "The shapes do not fit."),
}
NOT_COMPARED = Badge("plain", "○", "not compared", "It is not on both sides.")


@dataclass(frozen=True, slots=True)
class RowView:
    """One tensor of both sides. `first` is the index of the first cell that differs; `called` is its other name."""

    address: str
    badge: Badge
    title: str
    name: str
    called: str
    url: str
    largest: Number | None
    relative: Number | None
    cosine: Number
    first: str
    note: str
    current: bool


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the model in one step. Without rows, `url` leads to the page that has them."""

    id: str
    title: str
    says: str
    badge: Badge
    worst: Number | None
    open: bool
    rows: tuple[RowView, ...]
    url: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The rows of one step. `steps` are links to the others, empty where there is one only."""

    steps: tuple[Stop, ...]
    step: str
    segments: tuple[Segment, ...]
    total: int
    differing: int
    shown_url: str
    only_differing: bool


def size_of(value: float) -> Number:
    """A difference to read: in two digits, without an exponent from a hundredth to a hundred."""
    return Number(f"{value:.2g}", repr(value)) if 0.01 <= value < 99 else difference(value)


def key_of(found: Difference) -> str:
    """What `at` calls a row: its address, or the name that a file gives it, of which an address may have two."""
    return found.name


def badge_of(found: Difference | None) -> Badge:
    """The sign and word of a row; None was not compared."""
    return _BADGES[found.status] if found else NOT_COMPARED


def figure(found: Difference, value: float) -> Number | None:
    """A difference in two digits; None where nothing was compared."""
    return None if found.status is Status.UNFIT else size_of(value)


def cosine_of(found: Difference) -> Number:
    """The cosine in six decimals; below one it never reads as 1."""
    if found.cosine is None:
        return Number("–", "none")
    text = f"{found.cosine:.6f}"
    if text == "1.000000" and found.status is not Status.SAME and found.cosine < 1:
        text = "> 0.999999"
    return Number(text, repr(found.cosine))


def index_text(index: tuple[int, ...] | None) -> str:
    """An index as Python writes it; nothing where there is none."""
    return "" if index is None else str(list(index))


def listing_of(catalogue: Catalogue, rows: Sequence[Difference], wanted: Wanted, focus: Difference | None) -> Listing:
    """The rows of the wanted step; without one, of the step in which the tensor looked at lies."""
    steps = sorted({row.address.step for row in rows})
    step = wanted.step if wanted.step in steps else focus.address.step if focus else min(steps, default=0)
    here = [row for row in rows if row.address.step == step]
    differing = [row for row in here if not row.agrees]
    only = wanted.show == "differing"
    return Listing(
        steps=tuple(_stop(rows, wanted, each, each == step) for each in steps) if len(steps) > 1 else (),
        step=step_name(step),
        segments=tuple(_segments(catalogue, differing if only else here, wanted, focus, len(here) > MOST_ROWS)),
        total=len(here),
        differing=len(differing),
        shown_url=wanted.url(show=None if only else "differing") + "#tensors",
        only_differing=only,
    )


def segment_of(catalogue: Catalogue, address: Address) -> str:
    """The part of the model in which a tensor lies: `Embedding`, `Transformer block 3`."""
    group = catalogue.row(address.site).group
    return group[:2][-1] if address.layer is None else f"{group[0]} {address.layer}"


def row_view(catalogue: Catalogue, found: Difference, wanted: Wanted, focus: Difference | None) -> RowView:
    """One row of the table."""
    row = catalogue.row(found.address.site)
    return RowView(
        address=str(found.address),
        badge=badge_of(found),
        title=row.title,
        name=row.name,
        called="" if found.name == str(found.address) else found.name,
        url=wanted.url(at=key_of(found)),
        largest=figure(found, found.largest),
        relative=figure(found, found.relative),
        cosine=cosine_of(found),
        first=index_text(found.first),
        note=found.note,
        current=found is focus,
    )


def _stop(rows: Sequence[Difference], wanted: Wanted, step: int, current: bool) -> Stop:
    wrong = sum(row.address.step == step and not row.agrees for row in rows)
    text = f"{step or 'prefill'} {'≠' if wrong else '✓'}"
    says = f"{step_name(step)}: {f'{wrong} of its tensors do not agree' if wrong else 'all agree'}"
    return Stop(f"step-{step}", text, says, wanted.url(step=step) + "#tensors", current)


def _segments(
    catalogue: Catalogue, rows: Iterable[Difference], wanted: Wanted, focus: Difference | None, many: bool
) -> Iterable[Segment]:
    for title, run in groupby(rows, key=lambda row: segment_of(catalogue, row.address)):
        found = list(run)
        holds = focus is not None and any(row is focus for row in found)
        shown = holds or not many or found[0].address.layer is None
        counts = Counter(row.status for row in found)
        worst = max((row.relative for row in found if row.status is not Status.UNFIT), default=None)
        yield Segment(
            id="part-" + "-".join(title.lower().split()),
            title=title,
            says=_counts(counts),
            badge=_worst_badge(counts),
            worst=None if worst is None else size_of(worst),
            open=holds,
            rows=tuple(row_view(catalogue, row, wanted, focus) for row in found) if shown else (),
            url=wanted.url(at=key_of(found[0])),
        )


def _counts(counts: Counter[Status]) -> str:
    agree = counts[Status.SAME] + counts[Status.WITHIN]
    parts = [f"{agree} agree"] if agree else []
    parts += [f"{counts[Status.DIFFERS]} differ"] if counts[Status.DIFFERS] else []
    parts += [f"{counts[Status.UNFIT]} not compared"] if counts[Status.UNFIT] else []
    return ", ".join(parts)


def _worst_badge(counts: Counter[Status]) -> Badge:
    for status in (Status.DIFFERS, Status.UNFIT, Status.WITHIN):
        if counts[status]:
            return _BADGES[status]
    return _BADGES[Status.SAME]
