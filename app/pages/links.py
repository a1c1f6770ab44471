"""Addresses of our own pages. Every page can be linked, so every address is made here."""

from urllib.parse import quote, urlencode

from provenance.catalogue import Group
from provenance.catalogues import OUTLINES
from provenance.citation import Pin
from provenance.names import Address


def with_query(path: str, **query: str | int | None) -> str:
    """A path with the parameters that are not None."""
    given = {key: value for key, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def family_query(family: str | None) -> str | None:
    """What `family` is in the address of a page without a trace: nothing for the first family."""
    return None if family == next(iter(OUTLINES)) else family


def sites_url(family: str | None = None) -> str:
    """All tensors of a family."""
    return with_query("/sites", family=family_query(family))


def site_url(site: str, family: str | None = None) -> str:
    """The page of a family's tensor without a trace."""
    return with_query(f"/sites/{quote(site)}", family=family_query(family))


def trace_url(id: str) -> str:
    """The page of a trace, or of the recording that is to become one."""
    return f"/traces/{quote(id)}"


def tensor_url(id: str, address: Address, head: int | None = None) -> str:
    """The page of one tensor of a trace."""
    return with_query(f"{trace_url(id)}/{quote(address.place)}", step=address.step or None, head=head)


def lens_url(id: str, position: int | None = None, stage: str | None = None) -> str:
    """The logit lens of a trace, around a position; `stage` is the cell to look at."""
    return with_query(f"{trace_url(id)}/lens", position=position, stage=stage)


def edit_url(id: str, address: Address | None = None) -> str:
    """Where the change of a tensor is asked for; with an address, the form of it."""
    return with_query(f"{trace_url(id)}/edit", at=str(address) if address else None)


def compare_url(a: str, b: str) -> str:
    """Two traces side by side, the first as the reference."""
    return with_query("/compare", a=a, b=b)


def attribution_url(
    id: str, position: int | None = None, token: int | None = None, against: int | None = None
) -> str:
    """What wrote a token's logit at a position, or its lead over another token's."""
    return with_query(f"{trace_url(id)}/attribution", position=position, token=token, against=against)


def values_url(id: str, address: Address, ending: str = "") -> str:
    """The API's answer for one tensor: its summary, or with `.npy` its values."""
    return with_query(f"/api{trace_url(id)}/tensors/{quote(address.place)}{ending}", step=address.step or None)


def group_url(
    group: Group, trace: str | None = None, layer: int = 0, step: int = 0, family: str | None = None
) -> str:
    """The page of a group, seen from a layer and step of a trace where one is given, else of a family."""
    path = f"/groups/{quote(group.slug)}"
    if trace:
        return with_query(path, trace=trace, layer=layer or None, step=step or None)
    return with_query(path, family=family_query(family))


def map_url(
    group: Group | None,
    trace: str | None = None,
    layer: int = 0,
    step: int = 0,
    site: str | None = None,
    family: str | None = None,
) -> str:
    """The map of a group, or of the whole model, in a trace or else of a family; a site is the node to light."""
    path = f"/map/{quote(group.slug)}" if group else "/map"
    at: dict[str, str | int | None] = {"family": family_query(family)}
    if trace:
        at = {"trace": trace, "layer": layer or None, "step": step or None}
    return with_query(path, **at, site=site)


def norms_url(id: str, site: str, step: int = 0) -> str:
    """How large a site's tensor is in each layer."""
    return with_query(f"{trace_url(id)}/norms/{quote(site)}", step=step or None)


def source_url(pin: Pin, line: int | None = None) -> str:
    """The page of a cited file, at one of its lines."""
    return f"/sources/{quote(pin.key)}" + (f"#L{line}" if line else "")


def proof_url(id: str, address: Address) -> str:
    """How far the verification is that a tensor's page waits for."""
    return f"{trace_url(id)}/{quote(str(address), safe='@')}/proof"


def verdict_url(id: str) -> str:
    """What was proven about a trace."""
    return f"{trace_url(id)}/verdict"


def cite_url(site: str, number: int | None = None, trace: str | None = None, family: str | None = None) -> str:
    """How to cite a tensor's evidence: one piece of it by its number, or all."""
    path = f"/cite/sites/{quote(site)}" + (f"/{number}" if number else "")
    return with_query(path, trace=trace, family=None if trace else family_query(family))


def cite_trace_url(id: str) -> str:
    """How to cite a trace."""
    return f"/cite{trace_url(id)}"


def lesson_url(slug: str = "", query: str = "") -> str:
    """A chapter of the lessons with its options as a query string; without a slug, the list of chapters."""
    path = f"/lessons/{quote(slug)}" if slug else "/lessons"
    return f"{path}?{query}" if query else path
