"""A page of the app as a page of an export: links lead to files, and what needs a server is left out."""

from dataclasses import dataclass, field

from app.export.addresses import Target, canonical, file_of, relative
from app.export.tree import Element, read, write
from provenance.trace import Trace

SCRIPTS = ("/static/theme.js", "/static/app.js", "/static/cite.js")
"""Scripts that do their work without a server."""

NEEDS_THE_APP = "Recording, searching, comparing, changing and verifying need the app."

DEAD_SENTENCES = ("Choose a token to make it the query. ",)
"""What pages say about controls that an export does not have."""

_VALUES = ".npy"
_SEPARATOR = "·"
_DROPPED_IDS = ("record", "to-record", "to-change", "record-vectors", "jobs", "change", "tokens", "lessons")
_ONLY_LINKS = ("places", "downloads", "turns", "reel-moves", "families")
_KEPT_ATTRIBUTES = ("class", "id", "title")


@dataclass
class Rewriter:
    """Rewrites the pages of one export. `files` says which pages it has, `needed` collects other files."""

    trace: Trace
    files: dict[str, str]
    note: str
    values: bool = False
    base_url: str = ""
    needed: dict[str, str] = field(default_factory=dict)
    _targets: dict[str, Target | None] = field(default_factory=dict)

    def page(self, url: str, source: str) -> str:
        """The page of an address as it stands in the export."""
        root = read(source)
        _Page(self, url).change(root)
        return write(root)

    def target(self, url: str, link: str) -> Target | None:
        """Where a link of a page leads; None where it leads out of the app."""
        if not link.startswith("/"):
            return canonical(self.trace, url, link)
        if link not in self._targets:
            self._targets[link] = canonical(self.trace, url, link)
        return self._targets[link]


class _Page:
    """One page while it is rewritten."""

    def __init__(self, whole: Rewriter, url: str) -> None:
        self.whole = whole
        self.url = url
        self.file = whole.files[url]

    def change(self, parent: Element, in_svg: bool = False) -> None:
        """Rewrite all that is inside an element."""
        inside: list[Element | str] = []
        for part in parent.inside:
            if isinstance(part, str):
                inside.append(_without_dead_sentences(part))
            else:
                inside += self._changed(part, in_svg)
        parent.inside = inside
        _tidy(parent)

    def _changed(self, element: Element, in_svg: bool) -> list[Element | str]:
        if is_dropped(element):
            return []
        if element.tag == "form" and element.get("method") != "dialog":
            return _instead_of(element)
        _strip(element)
        self.change(element, in_svg or element.tag == "svg")
        if element.tag == "a":
            self._link(element, in_svg)
        elif element.tag in ("img", "script"):
            element.set("src", self._file(element.get("src")))
        elif element.tag == "link":
            element.set("href", self._file(element.get("href")))
        elif element.tag == "head" and self.whole.base_url:
            address = self.whole.base_url.rstrip("/") + "/" + relative("index.html", self.file)
            element.inside += [Element("link", {"rel": "canonical", "href": address}, None), "\n"]
        elif element.tag == "dl" and element.has_class("keys"):
            element.inside = _without_search(element.inside)
        elif element.tag == "footer":
            element.inside[:0] = ["\n", Element("p", {"class": "export"}, None, inside=[self.whole.note])]
        return [] if _is_empty(element) else [element]

    def _link(self, element: Element, in_svg: bool) -> None:
        href = element.get("href")
        target = self.whole.target(self.url, href)
        if target is None or (href.startswith("#")):
            return
        if target.url in self.whole.files and not (target.url == "/" and target.fragment in _DROPPED_IDS):
            element.set("href", relative(self.file, self.whole.files[target.url], target.fragment))
        elif self.whole.values and target.url.split("?")[0].endswith(_VALUES):
            element.set("href", self._file(target.url))
        else:
            element.rename("g" if in_svg else "span", _KEPT_ATTRIBUTES)
            element.attributes["data-not-exported"] = None

    def _file(self, url: str) -> str:
        """A picture, style or script that the page needs, as a link to its file."""
        target = self.whole.target(self.url, url)
        if target is None:
            return url
        found = self.whole.needed.setdefault(target.url, file_of(self.whole.trace, target.url))
        return relative(self.file, found, target.fragment)


def is_dropped(element: Element) -> bool:
    """Whether an element is of no use without a server."""
    match element.tag:
        case "script":
            return element.get("src").partition("?")[0] not in SCRIPTS
        case "noscript":
            return True
        case "meta":
            return element.get("name") == "htmx-config"
        case "input":
            return element.get("type") == "hidden"
        case "details":
            return element.has_class("choose") or element.get("id") in _DROPPED_IDS
        case "section" | "li":
            return element.get("id") in _DROPPED_IDS
        case "p":
            return element.has_class("delete")
    return False


def _instead_of(form: Element) -> list[Element | str]:
    if form.get("id") == "search-form":
        # Empty, but there: the script of the keys looks for what is inside.
        kept = [part for part in form.elements() if part.get("id") in ("live", "found")]
        return [Element("div", {"id": "search-form", "class": "search"}, None, inside=list(kept))]
    what = "Verifying a trace" if form.has_class("verify") else "What stands here in the app is a form; it"
    text = f"This is a static export. {what} needs the app."
    return [Element("p", {"class": "note"}, None, inside=[text])]


def _without_search(inside: list[Element | str]) -> list[Element | str]:
    """The list of keys without the one that leads to the search: a name, and what it says after it."""
    found: list[Element | str] = []
    skipping = False
    for part in inside:
        if isinstance(part, Element) and part.tag == "dt":
            skipping = part.text() == "/"
        if not skipping:
            found.append(part)
    return found


def _strip(element: Element) -> None:
    """Take away what only scripts and the server understand."""
    for name in [name for name in element.attributes if name.startswith("hx-")]:
        element.set(name, None)
    if element.has_class("heatmap"):
        for name in ("data-slice", "data-pieces", "data-window", "data-names", "data-fixed"):
            element.set(name, None)


def _without_dead_sentences(text: str) -> str:
    for sentence in DEAD_SENTENCES:
        text = text.replace(sentence, "")
    return text


def _is_lost(part: Element | str) -> bool:
    return isinstance(part, Element) and "data-not-exported" in part.attributes


def _tidy(parent: Element) -> None:
    """Among links beside each other a lost one goes, with the mark that separates it; elsewhere its text stays."""
    lost = [n for n, part in enumerate(parent.inside) if _is_lost(part)]
    if not lost:
        return
    alone = parent.tag == "p" and all(n in lost or _text(parent, n) == "" for n in range(len(parent.inside)))
    if alone or any(parent.has_class(name) for name in _ONLY_LINKS):
        gone = set(lost)
    else:
        gone = {
            n
            for n in lost
            if (_text(parent, n - 1) or "").endswith(_SEPARATOR)
            or (_text(parent, n + 1) or "").startswith(_SEPARATOR)
        }
    parent.inside = _rejoined([part for n, part in enumerate(parent.inside) if n not in gone], bool(gone))
    for part in parent.inside:
        if isinstance(part, Element) and _is_lost(part):
            part.set("data-not-exported", None)


def _text(parent: Element, place: int) -> str | None:
    """The text at a place among an element's parts; None where an element stands there."""
    part = parent.inside[place] if 0 <= place < len(parent.inside) else ""
    return part.strip() if isinstance(part, str) else None


def _rejoined(parts: list[Element | str], is_shorter: bool) -> list[Element | str]:
    """The parts without separators that separate nothing any more."""
    found: list[Element | str] = []
    for part in parts:
        if isinstance(part, str) and part.strip() == _SEPARATOR and (not found or isinstance(found[-1], str)):
            continue
        found.append(part)
    while is_shorter and found and isinstance(found[-1], str) and found[-1].strip() in ("", _SEPARATOR):
        found.pop()
    return found


def _is_empty(element: Element) -> bool:
    """Whether nothing is left of what held links only."""
    if element.tag == "p" and not element.text().strip() and not element.get("id"):
        return not any(part.tag in ("img", "svg") for part in element.elements())
    if element.tag == "p" and any(element.has_class(name) for name in _ONLY_LINKS):
        return not any(link.tag == "a" for link in element.elements())
    if element.tag == "div" and element.get("id") == "norms":
        return not any(part.tag in ("a", "svg") for part in element.elements())
    if element.tag == "div" and element.has_class("strip"):
        return not any(link.tag == "a" for link in element.elements() if not link.get("aria-current"))
    return False
