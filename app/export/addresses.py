"""Which file of an export holds which address of the app, and how one page leads to another.

The mapping is one to one: two addresses of the plan never share a file, also where a file system
does not tell small letters from capitals.
"""

import posixpath
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode, urljoin, urlsplit

from provenance.errors import ProvenanceError
from provenance.lens import position_of
from provenance.trace import Trace

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_FIRST = ("trace", "family", "position", "layer", "step", "stage", "batch", "head")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a link leads: an address of the app in its one spelling, and the place on that page."""

    url: str
    fragment: str


def canonical(trace: Trace, base: str, link: str) -> Target | None:
    """A link of a page in the one spelling of its address; None where it leads out of the app.

    Steps and positions that stand for the same page become its position, and what only marks a part
    of a page is left out.
    """
    parts = urlsplit(urljoin(base, link))
    if parts.scheme or parts.netloc:
        return None
    query = {name: value for name, value in parse_qsl(parts.query) if value}
    path = unquote(parts.path)
    if path in {f"/traces/{trace.id}{end}" for end in ("", "/lens", "/attribution")}:
        query = _at_position(trace, query)
    elif path.startswith(f"/traces/{trace.id}/norms/"):
        query.pop("layer", None)  # it marks one bar only
    elif path.startswith("/cite/sites/"):
        query = {"trace": trace.id}  # an export knows one trace, so all is cited with it
    elif path.startswith(f"/traces/{trace.id}/") and not path.endswith(".png"):
        for first in [name for name in ("batch", "head") if query.get(name) == "0"]:
            query.pop(first)  # the first one is shown where none is asked for
    elif path.startswith("/static/"):
        query = {}  # the fingerprint of its content: one export has one content
    elif path.startswith("/map"):
        query.pop("site", None)  # it lights one part only
    return Target(spell(path, query), unquote(parts.fragment))


def spell(path: str, query: dict[str, str]) -> str:
    """An address with its parameters in one order."""
    order = sorted(query, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
    given = urlencode([(name, query[name]) for name in order])
    return f"{path}?{given}" if given else path


def _at_position(trace: Trace, query: dict[str, str]) -> dict[str, str]:
    try:
        step, position = (int(query[name]) if name in query else None for name in ("step", "position"))
        at = position_of(trace, step, position).number
    except (ValueError, ProvenanceError):
        return query
    usual = position_of(trace, None, None).number
    rest = {name: value for name, value in query.items() if name not in ("step", "position")}
    return rest if at == usual else rest | {"position": str(at)}


def file_of(trace: Trace, url: str) -> str:
    """The file of an address, as a path below the export's folder."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    own = f"/traces/{trace.id}"
    for prefix, short in ((f"/api{own}/tensors/", "values/"), (f"/cite{own}", "cite/trace"), (own, "trace")):
        if path.startswith(prefix):
            path = "/" + short + path.removeprefix(prefix)
            break
    folder, _, name = ("/index" if path == "/" else path).rpartition("/")
    stem, dot, ending = name.rpartition(".")
    if not dot or ending not in ("png", "npy", "css", "js", "svg"):
        stem, ending = name, "html"
    query = "".join(
        f".{key}" if key == "trace" and value == trace.id else f".{key}-{value}"
        for key, value in parse_qsl(parts.query)
    )
    pieces = [*folder.strip("/").split("/"), f"{stem}{query}.{ending}"]
    return "/".join(_safe(piece) for piece in pieces if piece)


def relative(from_file: str, to_file: str, fragment: str = "") -> str:
    """A link from one file of the export to another."""
    path = quote(posixpath.relpath(to_file, posixpath.dirname(from_file) or "."))
    return f"{path}#{quote(fragment)}" if fragment else path


def _safe(piece: str) -> str:
    """A file's name that every file system takes; what it cannot hold stands there as hexadecimal digits."""
    return _UNSAFE.sub(lambda found: f"+{found[0].encode().hex()}+", piece)
