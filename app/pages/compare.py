"""The page of a comparison: what came out, the two sides, the first divergence, and every tensor."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.badge import Badge
from app.pages.compare_focus import Around, Focus, focus_of, place_of
from app.pages.compare_growth import Growth, growth_of
from app.pages.compare_links import Wanted
from app.pages.compare_rows import Listing, RowView, listing_of, row_view, size_of
from app.pages.compare_sides import Compared, Handed
from app.pages.frame import Frame, frame
from app.pages.links import tensor_url, trace_url, with_query
from app.pages.numbers import count, plural
from app.pages.scope import Link, Scope
from app.pages.trace import Fact
from app.pages.view import Asked
from provenance.catalogue import Catalogue, Kind
from provenance.comparison import Comparison, How, Recorded, UnknownName
from provenance.difference import Difference, Status
from provenance.errors import OutOfRange
from provenance.inputs import said
from provenance.trace import Recipe, Trace

_MOST_LONELY = 200
_MOST_UNFIT = 100

_HOW = {
    How.STEPS: "Compared step by step: the same step of both, every tensor whole.",
    How.POSITIONS: "Compared position by position: each position that both have run, whichever step ran it.",
    How.NAMES: "Compared by name: each tensor of the file with the tensor of the trace that it names.",
}


@dataclass(frozen=True, slots=True)
class Headline:
    """What came out, in words; `name` and `place` are those of the first divergence."""

    badge: Badge
    text: str
    name: str
    place: str
    says: str


@dataclass(frozen=True, slots=True)
class SideView:
    """One side: what it is called, where it can be looked at, and its facts."""

    letter: str
    title: str
    url: str
    untrained: bool
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Lonely:
    """Tensors of one side without a counterpart; of many, the first."""

    letter: str
    names: tuple[str, ...]
    total: int


@dataclass(frozen=True, slots=True)
class ComparePage:
    """What came out of a comparison. `ways` lead to others; `focus` is None where no tensor is looked at."""

    frame: Frame
    headline: Headline
    sides: tuple[SideView, ...]
    how: str
    ways: tuple[Link, ...]
    form_url: str
    json_url: str
    notes: tuple[str, ...]
    growth: Growth | None
    focus: Focus | None
    listing: Listing
    unfit: tuple[RowView, ...]
    unknown: tuple[UnknownName, ...]
    lonely: tuple[Lonely, ...]


def compare_page(explorer: Explorer, found: Compared, wanted: Wanted, asked: Asked) -> ComparePage:
    """The page. Raises OutOfRange where it is asked for a tensor that was not compared."""
    trace, comparison = found.a.trace, found.comparison
    catalogue = explorer.catalogue(trace)
    row = looked_at(comparison, wanted)
    scope = Scope.of(explorer, trace, row.address.layer or 0 if row else 0, row.address.step if row else 0)
    headline = _headline(catalogue, comparison)
    around = Around(explorer, found, wanted, _pages(found, row) if row else ())
    return ComparePage(
        frame=frame(scope, f"{headline.text} {headline.name}{headline.place}".strip()),
        headline=headline,
        sides=(_side("A", found.a), _side("B", found.b)),
        how=_how(comparison),
        ways=_ways(comparison, wanted),
        form_url=with_query("/compare", a=wanted.a),
        json_url="/api" + wanted.url(at=None, show=None, step=None),
        notes=comparison.notes,
        growth=growth_of(catalogue, comparison.rows, wanted),
        focus=focus_of(around, row, asked) if row else None,
        listing=listing_of(catalogue, comparison.rows, wanted, row),
        unfit=tuple(row_view(catalogue, each, wanted, row) for each in comparison.unfit[:_MOST_UNFIT]),
        unknown=comparison.unknown,
        lonely=tuple(_lonely(comparison)),
    )


def looked_at(comparison: Comparison, wanted: Wanted) -> Difference | None:
    """The row to look at: the one that is asked for, else the first divergence. Raises OutOfRange."""
    if not wanted.at:
        return comparison.first_divergence
    for row in comparison.rows:
        if wanted.at in (row.name, str(row.address)):
            return row
    raise OutOfRange(
        f"{wanted.at[:60]!r} is not among the tensors that were compared.", hint="Choose one of the list."
    )


def _headline(catalogue: Catalogue, comparison: Comparison) -> Headline:
    first, compared = comparison.first_divergence, comparison.compared
    worst = max((row.relative for row in comparison.rows if row.status is not Status.UNFIT), default=0.0)
    figures = f"largest relative difference {size_of(worst).text}"
    if first is not None:
        row = catalogue.row(first.address.site)
        differing = comparison.count(Status.DIFFERS)
        place = place_of(first.address)
        return Headline(
            Badge("differs", "≠", "they differ", ""),
            "They first differ at",
            row.name,
            f", {place}" if place else "",
            f"{row.title}{', which is given and not computed' if row.kind is not Kind.TENSOR else ''}. "
            f"{differing} of {plural(compared, 'tensor')} differ by more than is tolerated; {figures}.",
        )
    if compared and all(catalogue.row(row.address.site).kind is Kind.PARAMETER for row in comparison.rows):
        text = f"Only parameters could be compared: {plural(compared, 'tensor')}, {figures}"
        return Headline(Badge("plain", "○", "no run compared", ""), text, "", "", "The notes below say why.")
    if not compared:
        return Headline(Badge("missing", "○", "nothing compared", ""), "Nothing could be compared", "", "", "")
    same = comparison.count(Status.SAME)
    if comparison.unfit:
        text = f"What fits agrees, and {plural(len(comparison.unfit), 'tensor')} could not be compared"
        return Headline(
            Badge("differs", "○", "not all compared", ""), text, "", "", f"{compared} compared, {figures}."
        )
    if same == compared:
        text = f"Both are equal bit for bit: {plural(compared, 'tensor')}"
        return Headline(Badge("proven", "✓", "they agree", ""), text, "", "", "No cell differs in any of them.")
    text = f"Both agree: {plural(compared, 'tensor')}, {figures}"
    says = f"{same} of them are equal bit for bit, all others within the tolerance."
    return Headline(Badge("proven", "✓", "they agree", ""), text, "", "", says)


def _how(comparison: Comparison) -> str:
    if comparison.relative is None:
        tolerance = "The tolerance is that of the dtypes, relative to the largest value of A."
    else:
        tolerance = f"The tolerance is {size_of(comparison.relative).text} of the largest value of A."
    return f"{_HOW[comparison.how]} {tolerance}"


def _ways(comparison: Comparison, wanted: Wanted) -> tuple[Link, ...]:
    """The other ways to compare the same two traces."""
    names = {How.STEPS: "Compare step by step", How.POSITIONS: "Compare position by position"}
    if comparison.how is How.NAMES:
        return ()
    parameters_only = comparison.how is How.POSITIONS and not wanted.how
    return tuple(
        Link(wanted.url(how=how.value, at=None, step=None), "", title)
        for how, title in names.items()
        if how is not comparison.how or parameters_only
    )


def _side(letter: str, side: Recorded | Handed) -> SideView:
    if isinstance(side, Handed):
        facts = (
            Fact("File", f"{count(side.upload.bytes).text} bytes"),
            Fact("Tensors", count(side.upload.tensors).text),
            Fact("SHA-256", f"{side.upload.id[:16]}…", f"{side.upload.id}…", code=True),
        )
        return SideView(letter, side.upload.name, "", False, facts)
    recipe = side.trace.recipe
    made = [
        Fact("Model", recipe.model.name),
        Fact("Computed in", recipe.model.dtype),
        _length(recipe),
    ]
    if recipe.edits:
        made.append(Fact("Edits", "; ".join(map(str, recipe.edits)), code=True))
    made.append(Fact("Trace", side.trace.id[:12], side.trace.id, code=True))
    return SideView(letter, said(recipe), trace_url(side.trace.id), not recipe.model.trained, tuple(made))


def _length(recipe: Recipe) -> Fact:
    if recipe.drawn is not None:
        entries = plural(recipe.drawn.batch, "batch entry", "batch entries")
        return Fact("Vectors", f"{len(recipe.tokens)} in each of {entries}")
    return Fact("Tokens", f"{len(recipe.tokens)} in the prompt, {plural(recipe.steps, 'decode step')}")


def _pages(found: Compared, row: Difference) -> tuple[Link, ...]:
    traces = [("A", found.a.trace)] + ([] if isinstance(found.b, Handed) else [("B", found.b.trace)])
    return tuple(
        Link(tensor_url(trace.id, row.address), "", f"in {letter} ({trace.recipe.model.name})")
        for letter, trace in traces
        if _has(trace, row)
    )


def _has(trace: Trace, row: Difference) -> bool:
    return row.address.step <= trace.last_step and (row.address.layer or 0) < max(1, trace.layers)


def _lonely(comparison: Comparison) -> Sequence[Lonely]:
    both = (("A", comparison.only_a), ("B", comparison.only_b))
    return [Lonely(letter, names[:_MOST_LONELY], len(names)) for letter, names in both if names]
