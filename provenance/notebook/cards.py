"""HTML for notebooks: cards that stand alone, in whatever colours the notebook has.

Text is escaped where it enters an element. Colours are mixed from the notebook's own text colour, so
that a card is readable on a light page and on a dark one.
"""

import base64
from collections.abc import Iterable, Sequence
from html import escape

from provenance.markup import visible

_STYLE = """
.tp-card{max-width:52rem;padding:.7rem .9rem;border:1px solid color-mix(in srgb,currentColor 22%,transparent);
border-radius:6px;font:14px/1.5 system-ui,sans-serif;color:inherit;text-align:left}
.tp-card p{margin:.2rem 0}
.tp-card code,.tp-card pre{font:12.5px/1.5 ui-monospace,monospace;color:inherit;background:none}
.tp-card code{white-space:pre-wrap}
.tp-card .tp-kind,.tp-card .tp-quiet,.tp-card figcaption{opacity:.72}
.tp-card .tp-scroll{overflow-x:auto}
.tp-card table{border-collapse:collapse;margin:.4rem 0;font-size:13px;background:none}
.tp-card th,.tp-card td{padding:.1rem .9rem .1rem 0;text-align:left;vertical-align:top;
border:0;background:none;color:inherit;font-variant-numeric:tabular-nums;white-space:nowrap}
.tp-card td.tp-wide{white-space:normal}
.tp-card th{font-weight:600}
.tp-card tr{background:none}
.tp-card figure{margin:.5rem 0}
.tp-card img{display:block;max-width:100%;image-rendering:pixelated}
.tp-card a{color:inherit;text-decoration:underline}
.tp-card blockquote{margin:.5rem 0;padding:0 0 0 .7rem;
border-left:3px solid color-mix(in srgb,currentColor 30%,transparent)}
.tp-card pre{margin:.3rem 0;padding:.4rem .6rem;overflow-x:auto;white-space:pre;
background:color-mix(in srgb,currentColor 6%,transparent)}
"""
_VOID = ("img",)


class Html(str):
    """Text that is HTML already. Every other text is escaped when it enters an element."""

    __slots__ = ()


def element(tag: str, *inside: str, **attributes: str) -> Html:
    """An element with its contents; an attribute's trailing underscore is dropped: `class_`."""
    given = "".join(f' {name.rstrip("_")}="{escape(value)}"' for name, value in attributes.items())
    body = "" if tag in _VOID else "".join(map(_safe, inside)) + f"</{tag}>"
    return Html(f"<{tag}{given}>{body}")


def _safe(part: str) -> str:
    return part if isinstance(part, Html) else escape(visible(part))


def join(parts: Iterable[str]) -> Html:
    """Several parts, one after the other."""
    return Html("".join(map(_safe, parts)))


def card(*inside: str) -> str:
    """A whole card, its style with it."""
    return element("div", element("style", Html(_STYLE)), *inside, class_="tp-card")


def code(text: str) -> Html:
    """A name or expression."""
    return element("code", text)


def quiet(*inside: str) -> Html:
    """A paragraph that stands back."""
    return element("p", *inside, class_="tp-quiet")


def link(address: str, text: str) -> Html:
    """A link out of the notebook."""
    return element("a", text, href=address, target="_blank", rel="noopener")


def heading(kind: str, name: str, title: str) -> Html:
    """What stands at the top of a card: a word for the kind, the name in code, the title."""
    return element("p", element("span", kind, class_="tp-kind"), " ", code(name), " ", element("strong", title))


def facts(rows: Iterable[tuple[str, str]]) -> Html:
    """Names and what they are, one below the other; empty ones are left out."""
    return element(
        "table",
        *(
            element("tr", element("th", name, scope="row"), element("td", what, class_="tp-wide"))
            for name, what in rows
            if what
        ),
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """A table that scrolls on its own where it is wide."""
    top = element("tr", *(element("th", name, scope="col") for name in head))
    lines = [element("tr", *(element("td", cell) for cell in row)) for row in rows]
    return element("div", element("table", top, *lines), class_="tp-scroll")


def lines_of_code(numbered: Iterable[str]) -> Html:
    """Lines of a program as they stand, each on a line of its own."""
    return element("pre", Html("\n".join(escape(line) for line in numbered)))


def picture(png: bytes, says: str, caption: str) -> Html:
    """A picture inside the page itself, what it shows in words, and a line below it."""
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return element("figure", element("img", src=source, alt=says), element("figcaption", caption))


def number(value: float | None) -> str:
    """A measured value with four significant digits."""
    return "–" if value is None else f"{value:.4g}"


def percent(probability: float) -> str:
    """A probability with three significant digits; 100 % is written only for all of it."""
    share = 100 * probability
    return "> 99.9 %" if 99.9 < share < 100 else f"{share:.3g} %"


def plural(count: int, thing: str) -> str:
    """`1 trace`, `2 traces`."""
    return f"{count} {thing}{'' if count == 1 else 's'}"
