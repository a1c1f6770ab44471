"""From where a page looks at the catalogue: the architecture alone, or a layer and step of a trace."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.explorer import Explorer
from app.pages.links import group_url, map_url, site_url, tensor_url
from provenance.catalogue import Catalogue, Group, Intermediate
from provenance.catalogues import Outline, outline_named, outline_of
from provenance.models import constants_of
from provenance.names import Address, is_layered
from provenance.trace import Trace


@dataclass(frozen=True, slots=True)
class Link:
    """A link to a tensor's page: its expression, its title, and where it lies if that is not here."""

    url: str
    name: str
    title: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """One place on a strip of layers, steps or heads; `says` describes it in words."""

    id: str
    text: str
    says: str
    url: str
    current: bool


@dataclass(frozen=True, slots=True)
class Scope:
    """A catalogue with the sizes of its axes, and where in a trace the reader stands.

    `outline` is the model family: that of the trace, else the one that is asked for.
    """

    catalogue: Catalogue
    outline: Outline = field(hash=False)
    constants: Mapping[str, int] = field(hash=False)
    trace: Trace | None = None
    layer: int = 0
    step: int = 0

    @classmethod
    def of(
        cls, explorer: Explorer, trace: Trace | None = None, layer: int = 0, step: int = 0, family: str = ""
    ) -> "Scope":
        """The scope of a trace, or without one of a family's best known model. Raises UnknownFamily."""
        if trace is None:
            outline = outline_named(family)
            return cls(outline.catalogue, outline, outline.example, None, layer, step)
        model = trace.recipe.model
        return cls(explorer.catalogue(trace), outline_of(model), constants_of(model), trace, layer, step)

    @property
    def family(self) -> str:
        """The family's name."""
        return self.catalogue.family

    def steps(self, row: Intermediate) -> tuple[int, ...]:
        """The trace's steps in which a row exists."""
        last = self.trace.last_step if self.trace else -1
        return tuple(step for step in range(last + 1) if row.steps.cover(step))

    def address(self, row: Intermediate) -> Address | None:
        """The row's tensor nearest to here; None without a trace, or where the trace has none."""
        steps = self.steps(row)
        if not steps:
            return None
        step = self.step if self.step in steps else steps[0]
        return Address(row.site, self.layer if is_layered(row.site) else None, step)

    def url(self, row: Intermediate) -> str:
        """The page of a row, with values where the trace has them."""
        address = self.address(row)
        return tensor_url(self.trace.id, address) if self.trace and address else site_url(row.site, self.family)

    def group_url(self, group: Group) -> str:
        """The page of a group, seen from here."""
        return group_url(group, self.trace.id if self.trace else None, self.layer, self.step, self.family)

    def map_url(self, group: Group | None = None, site: str | None = None) -> str:
        """The map of a group, or of the whole model, seen from here."""
        return map_url(group, self.trace.id if self.trace else None, self.layer, self.step, site, self.family)

    def link(self, row: Intermediate) -> Link:
        """A link to a row's page."""
        return Link(self.url(row), row.name, row.title)

    def link_to(self, address: Address) -> Link:
        """A link to one tensor of the trace; says its layer and step where they are not these."""
        row = self.catalogue.row(address.site)
        if self.trace is None:
            return self.link(row)
        parts = [f"layer {address.layer}"] if address.layer not in (None, self.layer) else []
        parts += [step_name(address.step)] if address.step != self.step else []
        return Link(tensor_url(self.trace.id, address), row.name, row.title, ", ".join(parts))


def step_name(step: int) -> str:
    """A step as a person says it."""
    return f"step {step}" if step else "prefill"


def step_says(trace: Trace, step: int) -> str:
    """A step in words, with what it runs."""
    tokens = trace.tokens_of(step)
    if step:
        return f"decode step {step}: the token “{tokens[0].text}”"
    if trace.recipe.drawn:
        return f"prefill: {len(tokens)} vectors" if len(tokens) > 1 else "prefill: one vector"
    return f"prefill: the prompt's {len(tokens)} tokens" if len(tokens) > 1 else "prefill: the prompt's token"
