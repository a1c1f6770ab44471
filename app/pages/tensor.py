"""The page of a tensor: of the architecture alone, or of one layer and step of a trace."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.edit_form import EditForm, edit_form
from app.pages.edited import Edited, edited_of
from app.pages.evidence import EvidenceGroup, Seen, evidence_of
from app.pages.frame import Frame, frame
from app.pages.links import cite_url, tensor_url, trace_url
from app.pages.map import MapView, map_of_tensor
from app.pages.norms import Norms, norms_of
from app.pages.numbers import short
from app.pages.proof import Proof, proof_of_tensor
from app.pages.scope import Link, Scope, Stop, step_name, step_says
from app.pages.values import NoValues, Values, values_of
from app.pages.view import Asked
from app.pages.what import What, what_is
from provenance.axes import Counts
from provenance.catalogue import Intermediate
from provenance.names import Address, is_layered
from provenance.order import computation_order
from provenance.recorder import check_address
from provenance.trace import Trace

_MOST_TRACES = 5


@dataclass(frozen=True, slots=True)
class TraceLink:
    """A trace in which a tensor can be seen with its values."""

    url: str
    text: str
    model: str
    edited: bool


@dataclass(frozen=True, slots=True)
class SitePage:
    """A tensor without a trace: what it is, and who says so."""

    frame: Frame
    what: What
    map: MapView
    traces: tuple[TraceLink, ...]
    evidence: tuple[EvidenceGroup, ...]
    cite_url: str
    proof: None = None


@dataclass(frozen=True, slots=True)
class Moves:
    """Where one can go from a tensor: layers, steps, and the order of computation."""

    layers: tuple[Stop, ...]
    steps: tuple[Stop, ...]
    previous: Link | None
    next: Link | None


@dataclass(frozen=True, slots=True)
class TensorPage:
    """One tensor of a trace: what it is, what its values are, who says so.

    `values` is None where `no_values` says why they cannot be had, `edit` where they cannot be changed.
    """

    frame: Frame
    address: str
    trace_url: str
    trace_text: str
    edited: Edited | None
    step: str
    site_url: str
    what: What
    map: MapView
    norms: Norms | None
    moves: Moves
    values: Values | None
    no_values: NoValues | None
    edit: EditForm | None
    evidence: tuple[EvidenceGroup, ...]
    cite_url: str
    proof: Proof


def site_page(explorer: Explorer, row: Intermediate) -> SitePage:
    """The page of a site."""
    scope = Scope.of(explorer)
    return SitePage(
        frame=frame(scope, row.title, site=row.site),
        what=what_is(scope, row),
        map=map_of_tensor(explorer, scope, row),
        traces=_traces(explorer, row),
        evidence=evidence_of(scope.catalogue, explorer.sources, row.site),
        cite_url=cite_url(row.site),
    )


def tensor_page(explorer: Explorer, trace: Trace, address: Address, asked: Asked | None = None) -> TensorPage:
    """The page of one tensor. Raises UnknownSite, or OutOfRange for what the trace lacks."""
    check_address(explorer.catalogue(trace), trace, address)
    scope = Scope.of(explorer, trace, address.layer or 0, address.step)
    row = scope.catalogue.row(address.site)
    asked = asked or Asked()
    values = values_of(explorer, scope, row, address, asked)
    head = asked.at.get(Counts.HEAD)
    seen = Seen(trace.id, explorer.verifications.report(trace))
    evidence = evidence_of(scope.catalogue, explorer.sources, row.site, seen)
    return TensorPage(
        frame=frame(scope, f"{row.title}, {address}", site=row.site),
        address=str(address),
        trace_url=trace_url(trace.id),
        trace_text=short(trace.recipe.text or "token ids", 60),
        edited=edited_of(explorer, trace, address),
        step=step_name(address.step),
        site_url=f"/sites/{row.site}",
        what=what_is(scope, row, address),
        map=map_of_tensor(explorer, scope, row),
        norms=norms_of(explorer, trace, address),
        moves=_moves(scope, row, address, asked),
        values=None if isinstance(values, NoValues) else values,
        no_values=values if isinstance(values, NoValues) else None,
        edit=None if isinstance(values, NoValues) else edit_form(explorer, trace, address, asked),
        evidence=evidence,
        cite_url=cite_url(row.site, trace=trace.id),
        proof=proof_of_tensor(explorer, trace, address, evidence, head),
    )


def _moves(scope: Scope, row: Intermediate, address: Address, asked: Asked) -> Moves:
    trace = scope.trace
    assert trace is not None

    def url(layer: int | None, step: int) -> str:
        # Another layer has the same axes; in another step those of tokens are shorter or longer.
        kept = asked if step == address.step else asked.lasting
        return kept.url(trace.id, Address(row.site, layer, step))

    head = asked.at.get(Counts.HEAD)
    layers = range(trace.layers) if is_layered(row.site) else range(0)
    order = computation_order(scope.catalogue, trace.layers, address.step)
    at = order.index(address)
    return Moves(
        layers=tuple(
            Stop(f"layer-{n}", str(n), f"layer {n}", url(n, address.step), n == address.layer) for n in layers
        ),
        steps=tuple(
            Stop(
                f"step-{n}", str(n) if n else "prefill", step_says(trace, n), url(address.layer, n), n == address.step
            )
            for n in scope.steps(row)
        ),
        previous=_neighbour(scope, order[at - 1], head) if at else None,
        next=_neighbour(scope, order[at + 1], head) if at + 1 < len(order) else None,
    )


def _neighbour(scope: Scope, address: Address, head: int | None) -> Link:
    """A link to a tensor that keeps the head where it has heads too."""
    assert scope.trace is not None
    link = scope.link_to(address)
    axes = (scope.catalogue.axes[symbol] for symbol in scope.catalogue.row(address.site).shape)
    keeps = head if any(axis.counts is Counts.HEAD for axis in axes) else None
    return Link(tensor_url(scope.trace.id, address, keeps), link.name, link.title, link.place)


def _traces(explorer: Explorer, row: Intermediate) -> tuple[TraceLink, ...]:
    found: list[TraceLink] = []
    for listed in explorer.store.list():
        if listed.record is None or len(found) == _MOST_TRACES:
            continue
        recipe = listed.record.recipe
        step = next((step for step in range(recipe.steps + 1) if row.steps.cover(step)), None)
        if step is not None and recipe.model.family == explorer.catalogue().family:
            address = Address(row.site, 0 if is_layered(row.site) else None, step)
            text = short(recipe.text or "token ids", 60)
            found.append(TraceLink(tensor_url(listed.id, address), text, recipe.model.name, bool(recipe.edits)))
    return tuple(found)
