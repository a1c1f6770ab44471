"""How large a site's tensor is in each layer: a small strip of bars, and the numbers."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.frame import Frame, frame
from app.pages.links import norms_url, tensor_url, with_query
from app.pages.measures import Measure, by_layer, measure_of, shares
from app.pages.numbers import Number
from app.pages.scope import Scope, step_name
from provenance.errors import InvalidInput
from provenance.names import Address, is_layered
from provenance.trace import Trace

MOST_CELLS = 200_000
"""Layers times tokens squared up to which the pages ask for a strip by themselves: about a second's work."""

_HIGH = 36.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One layer: its measure, the place of its bar in a strip 100 wide, and its page."""

    layer: int
    url: str
    number: Number
    says: str
    current: bool
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Norms:
    """A site over the layers. Without bars, `url` is where they can be had, and `soon` says to fetch them."""

    bars: tuple[Bar, ...]
    says: str
    url: str
    soon: bool


@dataclass(frozen=True, slots=True)
class NormsPage:
    """A site over the layers, as a page of its own."""

    frame: Frame
    title: str
    back_url: str
    norms: Norms


def norms_of(explorer: Explorer, trace: Trace, address: Address) -> Norms | None:
    """The strip on a tensor's page: only what is at hand. None where there is nothing to show."""
    if address.layer is None or trace.layers < 2:
        return None
    measures = by_layer(explorer, trace, address.site, address.step)
    if measures:
        return Norms(_bars(trace, address, measures), _says(measures), "", False)
    known = explorer.summary_at_hand(trace, address)
    if known is not None and measure_of(known) is None:
        return None  # indices and masks are the same in every layer
    url = with_query(norms_url(trace.id, address.site), step=address.step or None, layer=address.layer)
    return Norms((), "", url, _small(trace))


def norms_page(explorer: Explorer, trace: Trace, site: str, step: int, layer: int | None) -> NormsPage:
    """A site over all layers, replayed where it must be. Raises UnknownSite, OutOfRange, InvalidInput."""
    trace.check(step=step, layer=layer)
    row = explorer.catalogue(trace).row(site)
    if not is_layered(site):
        raise InvalidInput(f"{row.title} exists once, not in every layer.")
    if not row.steps.cover(step):
        raise InvalidInput(f"{row.title} exists in {row.steps.value}, not in {step_name(step)}.")
    address = Address(site, layer or 0, step)
    measures = []
    for at in range(trace.layers):
        measure = measure_of(explorer.summary(trace, Address(site, at, step)))
        if measure is None:
            raise InvalidInput(f"{row.title} holds no measured numbers.")
        measures.append(measure)
    found = tuple(measures)
    scope = Scope.of(explorer, trace, address.layer or 0, step)
    return NormsPage(
        frame=frame(scope, f"{row.title} over the layers", site=site),
        title=row.title,
        back_url=tensor_url(trace.id, address),
        norms=Norms(_bars(trace, address if layer is not None else None, found, site, step), _says(found), "", False),
    )


def _small(trace: Trace) -> bool:
    return trace.layers * len(trace.recipe.tokens) ** 2 <= MOST_CELLS


def _bars(
    trace: Trace, here: Address | None, measures: tuple[Measure, ...], site: str = "", step: int = 0
) -> tuple[Bar, ...]:
    site, step = (here.site, here.step) if here else (site, step)
    width = 100 / len(measures)
    return tuple(
        Bar(
            layer=layer,
            url=tensor_url(trace.id, Address(site, layer, step)),
            number=measure.number,
            says=f"layer {layer}: {measure.text}",
            current=here is not None and layer == here.layer,
            x=round((layer + 0.12) * width, 3),
            y=round(_HIGH * (1 - share), 2),
            width=round(width * 0.76, 3),
            height=round(max(_HIGH * share, 0.5), 2),
        )
        for layer, (measure, share) in enumerate(zip(measures, shares(measures), strict=True))
    )


def _says(measures: tuple[Measure, ...]) -> str:
    known = [(m.rms, layer) for layer, m in enumerate(measures) if m.rms is not None]
    if not known:
        return "no finite value in any layer"
    (low, at_low), (high, at_high) = min(known), max(known)
    low_text, high_text = measures[at_low].number.text, measures[at_high].number.text
    if low == high:
        return f"{low_text} in every layer"
    return f"from {low_text} in layer {at_low} to {high_text} in layer {at_high}"
