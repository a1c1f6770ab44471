"""Any text put into BibTeX, Markdown and CFF, so that none of it is taken for markup."""

import json
import re
from collections.abc import Mapping

import yaml

_TEX = {
    "\\": r"\textbackslash{}",
    # BibTeX counts braces, escaped ones too: none may be left without its partner.
    "{": r"\textbraceleft{}",
    "}": r"\textbraceright{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": r"\textendash{}",
    **{character: f"\\{character}" for character in "%&#$_"},
}


_QUOTED = '"\\'
_MARKDOWN = re.compile(r"[\\`*_\[\]<>&|~]")


def json_text(text: str) -> str:
    """A text as a JSON string, on one line, with what does not print escaped."""
    return f'"{visible(text, also=_QUOTED)}"'


def visible(text: str, also: str = "") -> str:
    """A text with the characters that do not print, and some others, escaped as in JSON."""
    return "".join(c if c.isprintable() and c not in also else _escape(c) for c in text)


def _escape(character: str) -> str:
    return json.dumps(character)[1:-1]


def tex(text: str) -> str:
    """A text for a BibTeX field in braces: ASCII, whatever the reader's TeX is.

    Characters outside ASCII are escaped as in JSON, all but the dash between numbers.
    """
    ascii_only = "".join(_TEX.get(c) or (c if " " <= c <= "~" else tex(_escape(c))) for c in text)
    # TeX joins these into one character or blank.
    return re.sub(r"([-', ])(?=\1)", r"\1{}", ascii_only)


def bibtex_entry(key: str, **fields: str) -> str:
    """A `@misc` entry; empty fields are left out. The values must be TeX, the key may be anything."""
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join([f"@misc{{{re.sub('[^A-Za-z0-9.]+', '-', key)},", *lines, "}"])


def cff_document(fields: Mapping[str, object]) -> str:
    """A Citation File Format document with these fields, without a line end after it."""
    tree = {"cff-version": "1.2.0", **fields}
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=100).rstrip("\n")


def markdown_text(text: str) -> str:
    """A text for a paragraph or a link, with everything escaped that Markdown could take up."""
    return _MARKDOWN.sub(r"\\\g<0>", visible(text))


def markdown_code(text: str) -> str:
    """A text as a code span. It must be of one line, and may neither begin nor end with a backtick."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{text}{fence}"
