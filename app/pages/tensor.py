"""The page of a tensor: of the architecture alone, or of one layer and step of a trace."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.edit_form import EditForm, edit_form
from app.pages.edited import Edited, edited_of
from app.pages.evidence import EvidenceGroup, Seen, evidence_of
from app.pages.families import FamilyLink, family_links
from app.pages.frame import Frame, frame
from app.pages.lessons.back import lesson_of_site
from app.pages.links import cite_url, site_url, sites_url, tensor_url, trace_url
from app.pages.map import MapView, map_of_tensor
from app.pages.norms import Norms, norms_of
from app.pages.proof import Proof, proof_of_tensor
from app.pages.scope import Link, Scope, Stop, step_name, step_says
from app.pages.values import NoValues, Values, values_of
from app.pages.view import Asked
from app.pages.what import What, what_is
from provenance.axes import Counts
from provenance.catalogue import Intermediate
from provenance.catalogues import Outline
from provenance.inputs import said
from provenance.models import catalogue_of_model
from provenance.names import Address, is_layered
from provenance.order import computation_order
from provenance.recorder import check_address
from provenance.trace import Trace

_MOST_TRACES = 5
_KEPT = (Counts.BATCH, Counts.HEAD)
"""The axes whose index stays the same from one tensor to the next."""


@dataclass(frozen=True, slots=True)
class TraceLink:
    """A trace in which a tensor can be seen with its values."""

    url: str
    text: str
    model: str
    edited: bool


@dataclass(frozen=True, slots=True)
class SitePage:
    """A tensor without a trace: what it is, and who says so. `own` says that no cited code proves its family."""

    frame: Frame
    families: tuple[FamilyLink, ...]
    what: What
    map: MapView
    traces: tuple[TraceLink, ...]
    evidence: tuple[EvidenceGroup, ...]
    own: bool
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
    own: bool
    cite_url: str
    proof: Proof


def site_page(explorer: Explorer, row: Intermediate, family: str = "") -> SitePage:
    """The page of a family's site."""
    scope = Scope.of(explorer, family=family)
    return SitePage(
        frame=frame(scope, row.title, site=row.site),
        families=family_links(scope, lambda other: _elsewhere(other, row.site)),
        what=what_is(scope, row, lesson=lesson_of_site(explorer, scope, row.site)),
        map=map_of_tensor(explorer, scope, row),
        traces=_traces(explorer, scope, row),
        evidence=evidence_of(scope.catalogue, explorer.sources, row.site),
        own=not scope.outline.cited,
        cite_url=cite_url(row.site, family=scope.family),
    )


def _elsewhere(other: Outline, site: str) -> str:
    """The site of the same name in another family, or all its tensors."""
    family = other.catalogue.family
    return site_url(site, family) if site in other.catalogue.rows else sites_url(family)


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
        trace_text=said(trace.recipe),
        edited=edited_of(explorer, trace, address),
        step=step_name(address.step),
        site_url=site_url(row.site, scope.family),
        what=what_is(scope, row, address, lesson=lesson_of_site(explorer, scope, row.site)),
        map=map_of_tensor(explorer, scope, row),
        norms=norms_of(explorer, trace, address),
        moves=_moves(scope, row, address, asked),
        values=None if isinstance(values, NoValues) else values,
        no_values=values if isinstance(values, NoValues) else None,
        edit=None if isinstance(values, NoValues) else edit_form(explorer, trace, address, asked),
        evidence=evidence,
        own=not scope.outline.cited,
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
            for n in (scope.steps(row) if scope.outline.predicts else ())
        ),
        previous=_neighbour(scope, order[at - 1], asked) if at else None,
        next=_neighbour(scope, order[at + 1], asked) if at + 1 < len(order) else None,
    )


def _neighbour(scope: Scope, address: Address, asked: Asked) -> Link:
    """A link to a tensor that keeps the batch entry and the head where it has such axes too."""
    assert scope.trace is not None
    link = scope.link_to(address)
    counted = {scope.catalogue.axes[symbol].counts for symbol in scope.catalogue.row(address.site).shape}
    kept = {name.value: asked.at[name] for name in _KEPT if name in counted and asked.at.get(name)}
    return Link(Asked(at=kept).url(scope.trace.id, address), link.name, link.title, link.place)


def _traces(explorer: Explorer, scope: Scope, row: Intermediate) -> tuple[TraceLink, ...]:
    found: list[TraceLink] = []
    for listed in explorer.store.list():
        if listed.record is None or len(found) == _MOST_TRACES:
            continue
        recipe = listed.record.recipe
        step = next((step for step in range(recipe.steps + 1) if row.steps.cover(step)), None)
        if step is None or recipe.model.family != scope.family:
            continue
        if row.site in catalogue_of_model(recipe.model).rows:
            url = tensor_url(listed.id, Address(row.site, 0 if is_layered(row.site) else None, step))
            found.append(TraceLink(url, said(recipe), recipe.model.name, bool(recipe.edits)))
    return tuple(found)
