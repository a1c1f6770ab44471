"""Writing another revision into the literals that state GPT-2's pins and citations.

Only numbers, anchors and the pin's own facts are rewritten; claims are a person's to read again.
Nothing is written before all of it was seen to resolve on the new content.
"""

import ast
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from provenance.citation import Anchor, Blob, Pin, Span
from provenance.errors import InvalidInput, ProvenanceError
from provenance.gpt2.pins import OPENAI, TRANSFORMERS
from provenance.sources import Change, Drift, Obtained, check, git_blob_id

HERE = Path(__file__).resolve().parent
_CALLS = {"openai": OPENAI.label, "transformers": TRANSFORMERS.label, "layer_norm": TRANSFORMERS.label}
_OTHER_LINES = {OPENAI.label: "rows_*.py", TRANSFORMERS.label: "points_transformers.py"}

Key = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Written:
    """Which files were rewritten, how many literals in all, and what a person must look at now."""

    files: tuple[Path, ...]
    literals: int
    advice: str


@dataclass(frozen=True, slots=True)
class _Edit:
    """Bytes `start` to `end` of a file, and what stands there from now on."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class _Literal:
    """A `(anchor, first[, last])` literal: its place, and which call it is an argument of."""

    start: int
    end: int
    key: Key
    call: int


def repinned(pin: Pin, content: Obtained, revision: str | None) -> Pin:
    """The pin of another content. A release needs its revision named. Raises InvalidInput."""
    revision = content.revision or revision
    if revision is None:
        raise InvalidInput(
            f"{content.label} is a release: nothing here tells which revision it was made from.",
            hint="Name it with --revision and 40 hex digits, or give a revision in the place of the release.",
        )
    known = next((blob for blob in pin.blobs if blob.id == content.blob_id), None)
    packages = (content.package,) if content.package else ()
    return replace(pin, revision=revision, blobs=(known or Blob(content.blob_id, packages),), shared_lines=None)


def write(pin: Pin, new: Pin, changes: Sequence[Change], source: bytes, directory: Path = HERE) -> Written:
    """Rewrite the pin and every citation of it, below `directory` (a checkout's `provenance/gpt2`).

    Raises InvalidInput where something vanished, the files are no checkout or cannot be written, or
    the result would not resolve. Nothing is changed then.
    """
    gone = sorted({str(change.span.anchor) for change in changes if change.state is Drift.VANISHED})
    if gone:
        raise InvalidInput(
            f"Cited places without a counterpart there: {', '.join(gone)}.",
            hint="Cite something else for their claims first; then write again.",
        )
    if new.blobs[0].id != git_blob_id(source):
        raise InvalidInput("The new pin names another blob than the content that was compared.")
    files = _files(directory)
    before = {path: path.read_bytes() for path in files}
    after = {path: _rewritten(data, pin, new, changes) for path, data in before.items()}
    literals = sum(_verified(after[path], before[path], path, new, source) for path in files)
    changed = tuple(path for path in files if after[path] != before[path])
    try:
        for path in changed:
            path.write_bytes(after[path])
    except OSError:
        for path in changed:
            path.write_bytes(before[path])
        raise
    return Written(changed, literals, _advice(pin, changes))


def _advice(pin: Pin, changes: Iterable[Change]) -> str:
    numbers = f"{_OTHER_LINES[pin.label]} holds lines of it too; `tensor-provenance verify` says which are off."
    claims = "Read the claims about changed lines again. " if any(c.state is Drift.CHANGED for c in changes) else ""
    return f"{claims}{numbers} The comment beside the pin and the declared dependencies are yours to write."


def _files(directory: Path) -> list[Path]:
    files = [directory / "pins.py", directory / "evidence.py", *sorted(directory.glob("operations*.py"))]
    if not (directory.parent.parent / "pyproject.toml").is_file():
        raise InvalidInput(f"{directory} is no checkout of this project.", hint="Run this from a clone of it.")
    for path in files:
        if not os.access(path, os.W_OK):
            raise InvalidInput(f"{path} cannot be written.", hint="Use a checkout whose files are yours to change.")
    return files


def _rewritten(data: bytes, pin: Pin, new: Pin, changes: Sequence[Change]) -> bytes:
    moved = {_key(change.span): _key(change.new_span) for change in changes if change.new_span is not None}
    edits = [
        _Edit(literal.start, literal.end, _written(moved[literal.key]))
        for literal in _literals(data, pin.label)
        if literal.key in moved and moved[literal.key] != literal.key
    ]
    edits += _pin_edits(data, pin.label, new)
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        data = data[: edit.start] + edit.text.encode() + data[edit.end :]
    return data


def _key(span: Span) -> Key:
    return str(span.anchor), span.first, span.last


def _written(key: Key) -> str:
    anchor, first, last = key
    return f"({_quoted(anchor)}, {first})" if first == last else f"({_quoted(anchor)}, {first}, {last})"


def _quoted(text: str) -> str:
    return f'"{text}"' if not set('"\\') & set(text) else repr(text)


# --- finding the literals ---


def _literals(data: bytes, label: str) -> Iterator[_Literal]:
    """Every `(anchor, first[, last])` argument of a call that cites the pin."""
    at = _offsets(data)
    for call in ast.walk(ast.parse(data)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and _CALLS.get(call.func.id) == label:
            for argument in call.args:
                key = _span_literal(argument)
                if key is not None:
                    yield _Literal(*_place(argument, at), key, _place(call, at)[0])


def _span_literal(node: ast.expr) -> Key | None:
    if not isinstance(node, ast.Tuple) or not all(isinstance(item, ast.Constant) for item in node.elts):
        return None
    match ast.literal_eval(node):
        case (str(anchor), int(line)):
            return anchor, line, line
        case (str(anchor), int(first), int(last)):
            return anchor, first, last
    return None


def _pin_edits(data: bytes, label: str, new: Pin) -> Iterator[_Edit]:
    """The pin's revision, blobs and shared lines."""
    facts: Mapping[str, str] = {
        "revision": _quoted(new.revision),
        "blobs": _blobs(new),
        "shared_lines": repr(new.shared_lines),
    }
    at = _offsets(data)
    for node in ast.walk(ast.parse(data)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "Pin":
            continue
        values = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        if isinstance(values["label"], ast.Constant) and values["label"].value == label:
            yield from (_Edit(*_place(values[name], at), text) for name, text in facts.items())


def _blobs(pin: Pin) -> str:
    lines = []
    for blob in pin.blobs:
        packages = "".join(
            f"Package({_quoted(p.distribution)}, {_quoted(p.version)}, {_quoted(p.file)})," for p in blob.packages
        )
        second = f"            ({packages.replace('),P', '), P')}),\n" if packages else ""
        lines.append(f'        Blob(\n            "{blob.id}",\n{second}        ),\n')
    return f"(\n{''.join(lines)}    )"


def _offsets(data: bytes) -> list[int]:
    """At which byte each line starts."""
    starts = [0]
    for line in data.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    return starts


def _place(node: ast.expr, at: Sequence[int]) -> tuple[int, int]:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return at[node.lineno - 1] + node.col_offset, at[node.end_lineno - 1] + node.end_col_offset


# --- checking before anything is written ---


def _verified(after: bytes, before: bytes, path: Path, new: Pin, source: bytes) -> int:
    """How many literals of a rewritten file cite the pin. Raises InvalidInput unless all of them resolve."""
    literals = list(_literals(after, new.label))
    if len(literals) != len(list(_literals(before, new.label))):
        raise InvalidInput(f"{path.name} would not hold the same number of citations.")
    try:
        for literal in literals:
            anchor, first, last = literal.key
            check(source, Span(first, last, Anchor.parse(anchor)))
    except ProvenanceError as error:
        raise InvalidInput(f"{path.name} would hold a citation that does not resolve. {error.message}") from error
    for left, right in pairwise(literals):
        if left.call == right.call and left.key[2] > right.key[1]:
            raise InvalidInput(
                f"{path.name} would cite {left.key[0]} before {right.key[0]}, which stands first there.",
                hint="Change the order of these spans by hand; then write again.",
            )
    if path.name == "pins.py":
        namespace: dict[str, object] = {}
        exec(compile(after, str(path), "exec"), namespace)
        if new not in namespace.values():
            raise InvalidInput(f"{path.name} would not state the new pin: its form is not the expected one.")
    return len(literals)
