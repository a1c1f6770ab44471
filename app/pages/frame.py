"""What stands around every page: its title, the hierarchy at its side, the search, the trace."""

from dataclasses import dataclass

from app.pages.links import sites_url, trace_url
from app.pages.scope import Scope
from provenance.catalogue import Group
from provenance.names import is_layered


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor in the hierarchy."""

    title: str
    name: str
    url: str
    current: bool


@dataclass(frozen=True, slots=True)
class Branch:
    """A group in the hierarchy; `open` where it holds the present page."""

    id: str
    title: str
    url: str
    current: bool
    open: bool
    leaves: tuple[Leaf, ...]
    branches: tuple["Branch", ...]


@dataclass(frozen=True, slots=True)
class Here:
    """The trace that the reader stands in, and where; `edited` says whether its run was changed."""

    id: str
    url: str
    layer: int
    step: int
    edited: bool


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands around a page. `family` is the title of the model family, `query` what the search box holds."""

    title: str
    tree: tuple[Branch, ...]
    here: Here | None
    query: str
    family: str
    map_url: str
    sites_url: str


def frame(scope: Scope, title: str, *, site: str = "", group: str = "", query: str = "") -> Frame:
    """The frame of a page; `site` or `group` (its slug) is the one that the page shows."""
    here = None
    if scope.trace is not None:
        id = scope.trace.id
        here = Here(id, trace_url(id), scope.layer, scope.step, bool(scope.trace.recipe.edits))
    tree = tuple(_branch(scope, top, site, group) for top in scope.catalogue.tree)
    return Frame(title, tree, here, query, scope.outline.title, scope.map_url(), sites_url(scope.family))


def layered_title(scope: Scope, group: Group) -> str:
    """A group's name; the outermost repeated one carries the layer's number inside a trace."""
    title = group.path[-1]
    if scope.trace is not None and len(group.path) == 1 and is_repeated(group):
        return f"{title} {scope.layer}"
    return title


def is_repeated(group: Group) -> bool:
    """Whether everything in a group exists once in every layer."""
    return all(is_layered(row.site) for below in group.walk() for row in below.rows)


def _branch(scope: Scope, group: Group, site: str, slug: str) -> Branch:
    branches = tuple(_branch(scope, child, site, slug) for child in group.children)
    leaves = tuple(Leaf(row.title, row.name, scope.url(row), row.site == site) for row in group.rows)
    current = group.slug == slug
    holds = any(leaf.current for leaf in leaves) or any(branch.open for branch in branches)
    return Branch(
        id="tree-" + group.slug.replace("/", "-"),
        title=layered_title(scope, group),
        url=scope.group_url(group),
        current=current,
        open=current or holds,
        leaves=leaves,
        branches=branches,
    )
