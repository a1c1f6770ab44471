"""Every tensor inside GPT-2: what it is, its value, and the pinned source lines that say so.

    record      run a prompt and get its Trace
    open_trace  a stored Trace, by its id
    traces      all stored traces, the newest first
    site        what a tensor is, by any of its names
    sites       every named tensor, in order of computation
    search      tensors by parts of their names and descriptions
    cite        a citation of a Site, a Tensor or a Trace
    verify      prove all that can be proven about a Trace
    Trace, Tensor, Site   the objects; each shows itself in a notebook

Importing this loads neither torch nor a model: what is used is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from provenance.notebook.sites import Site, cite, search, site, sites
    from provenance.notebook.tensor import Tensor
    from provenance.notebook.trace import Trace
    from provenance.notebook.workspace import open_trace, record, traces, verify

__all__ = [
    "Site",
    "Tensor",
    "Trace",
    "cite",
    "open_trace",
    "record",
    "search",
    "site",
    "sites",
    "traces",
    "verify",
]

_HOME = {
    "provenance.notebook.sites": ("Site", "cite", "search", "site", "sites"),
    "provenance.notebook.tensor": ("Tensor",),
    "provenance.notebook.trace": ("Trace",),
    "provenance.notebook.workspace": ("open_trace", "record", "traces", "verify"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


if not TYPE_CHECKING:  # a checker would take this to mean that every name exists

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
