"""Addresses of our own pages. Every page can be linked, so every address is made here."""

from urllib.parse import quote, urlencode

from provenance.catalogue import Group
from provenance.citation import Pin
from provenance.names import Address


def with_query(path: str, **query: str | int | None) -> str:
    """A path with the parameters that are not None."""
    given = {key: value for key, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def site_url(site: str) -> str:
    """The page of a tensor without a trace."""
    return f"/sites/{quote(site)}"


def trace_url(id: str) -> str:
    """The page of a trace, or of the recording that is to become one."""
    return f"/traces/{quote(id)}"


def tensor_url(id: str, address: Address, head: int | None = None) -> str:
    """The page of one tensor of a trace."""
    return with_query(f"{trace_url(id)}/{quote(address.place)}", step=address.step or None, head=head)


def values_url(id: str, address: Address, ending: str = "") -> str:
    """The API's answer for one tensor: its summary, or with `.npy` its values."""
    return with_query(f"/api{trace_url(id)}/tensors/{quote(address.place)}{ending}", step=address.step or None)


def group_url(group: Group, trace: str | None = None, layer: int = 0, step: int = 0) -> str:
    """The page of a group, seen from a layer and step of a trace where one is given."""
    path = f"/groups/{quote(group.slug)}"
    return with_query(path, trace=trace, layer=layer or None, step=step or None) if trace else path


def source_url(pin: Pin, line: int | None = None) -> str:
    """The page of a cited file, at one of its lines."""
    return f"/sources/{quote(pin.key)}" + (f"#L{line}" if line else "")
