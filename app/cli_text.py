"""What the command line prints: plain text, aligned, made for 80 columns."""

import shutil
import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from app.cli_shell import NAME
from provenance.catalogues import OUTLINES
from provenance.prompt import Token

if TYPE_CHECKING:
    from app.cli_sources import SourceOut
    from app.schemas import SiteDetail, TokenOut, TraceOut
    from app.schemas_tensor import SummaryOut

_WIDEST = 100
_ID_DIGITS = 12
_WIDEST_LABEL = 28
_TOKENS_SHOWN = 40
_HELD = "\0"  # a blank at which no line may break; no shown text holds it


def _width() -> int:
    return max(40, min(shutil.get_terminal_size((80, 24)).columns, _WIDEST))


def wrapped(text: str, indent: int = 0, hang: int = 0) -> str:
    """Text in lines of the terminal's width; a link or name is never cut."""
    filled = textwrap.fill(
        text,
        _width(),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hang),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return filled.replace(_HELD, " ")


def table(rows: Sequence[tuple[str, str]], indent: int = 0) -> str:
    """Two columns: names and their texts, wrapped where they are long."""
    column = indent + 2 + max((len(name) for name, _ in rows if len(name) <= _WIDEST_LABEL), default=0)
    lines = []
    for name, text in rows:
        label = " " * indent + name
        if len(label) > column - 2:
            lines += [label, wrapped(text, column)]
        else:
            lines.append((label.ljust(column) + wrapped(text, column).lstrip()).rstrip())
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"


def _read_by_person(tokens: "Sequence[TokenOut]") -> str:
    """Tokens as one text: what does not print is escaped, whatever the terminal would do with it."""
    if not any(token.hex for token in tokens):
        return " ".join(token.text for token in tokens)  # a model without tokenizer: ids alone
    return Token(0, bytes.fromhex("".join(token.hex for token in tokens))).text


def _token_list(tokens: "Sequence[TokenOut]") -> str:
    """Tokens in brackets, so that their blanks are seen; a line breaks between them only."""
    shown = [f"[{token.text}]".replace(" ", _HELD) for token in tokens[:_TOKENS_SHOWN]]
    more = len(tokens) - len(shown)
    return " ".join([*shown, *([f"and {more:,} more"] if more else [])])


def count_of(number: int, thing: str) -> str:
    """`1 token`, `1,024 tokens`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


# --- catalogue ---


def sites_text(sites: "Sequence[SiteDetail]") -> str:
    """All tensors of a family, one a line, in order of computation."""
    return columns([("site", "shape", "title"), *((out.site, out.shape, out.title) for out in sites)])


def site_text(out: "SiteDetail") -> str:
    """A tensor without a trace: what it is, its neighbours, and its evidence."""
    names = ", ".join(dict.fromkeys(alias.replace("{layer}", "N") for alias in out.aliases))
    rows = [
        ("family", out.family),
        ("site", out.site),
        ("group", " › ".join(out.group)),
        ("shape", out.shape),
        ("in a decode step", out.shape_in_decode_step if OUTLINES[out.family].predicts else ""),
        ("exists in", out.exists_in),
        ("formula", out.formula),
        ("computed from", ", ".join(out.inputs)),
        ("produced by", out.produced_by),
        ("read by", ", ".join(out.readers)),
        ("also called", names),
        ("in the source", "; ".join(out.points)),
    ]
    head = f"{out.name}\n{wrapped(out.title)}\n\n{wrapped(out.description)}"
    return f"{head}\n\n{table([row for row in rows if row[1]])}\n\n{evidence_text(out)}"


def evidence_text(out: "SiteDetail") -> str:
    """The claims of a tensor's producer, then of its consumers, with their pinned lines."""
    parts = []
    for (role, operation), group in groupby(out.evidence, lambda e: (e.role, e.operation)):
        parts.append(f"Evidence, {'produced by' if role == 'producer' else 'read by'}: {operation}")
        for evidence in group:
            # A dash between lines that are cited in part would hide the gap.
            cited = ", ".join(f"{a}" if a == b else f"{a}–{b}" for a, b in evidence.spans)
            lines = evidence.lines if len(evidence.spans) == 1 else f"{evidence.lines} (of these {cited})"
            parts += [
                wrapped(f"{evidence.label}  {evidence.repository} {evidence.path} {lines}", 2, hang=2),
                wrapped(evidence.claim, 4),
                f"    {evidence.permalink}",
            ]
    return "\n".join(parts)


# --- traces ---


def summary_text(out: "SummaryOut", site: "SiteDetail") -> str:
    """One tensor of a trace: its shape and statistics, and its evidence."""
    other = [
        (name, count)
        for name, count in (
            ("masked", out.count_masked),
            ("NaN", out.count_nan),
            ("+Inf", out.count_posinf),
            ("-Inf", out.count_neginf),
        )
        if count
    ]
    counts = f"{out.count_total:,} in all, {out.count_finite:,} finite, {out.count_zero:,} of them zero"
    replay = {
        True: "bit for bit what the recording kept",
        False: "differs from what the recording kept",
        None: "",
    }
    rows = [
        ("address", str(out.address)),
        ("trace", out.trace),
        ("shape", f"{out.shape} = {out.symbolic_shape}"),
        ("dtype", f"{out.dtype} on {out.device}"),
        ("values", counts + "".join(f", {count:,} {name}" for name, count in other)),
        ("minimum", _number(out.min)),
        ("maximum", _number(out.max)),
        ("mean", _number(out.mean)),
        ("std", _number(out.std)),
        ("l2", _number(out.l2)),
        ("quantiles", "  ".join(f"{q:.0%} {_number(value)}" for q, value in out.quantiles)),
        ("replay", replay[out.replay_bit_for_bit]),
    ]
    head = f"{out.name}\n{wrapped(out.title)}"
    return f"{head}\n\n{table([row for row in rows if row[1]])}\n\n{evidence_text(site)}"


def recorded_text(
    out: "TraceOut", *, stored_before: bool, server: str, folder: str | None, example: str, did: str = ""
) -> str:
    """A recording's result, and how to look at it.

    `folder` is a checkpoint that is known here only, `example` a tensor to show, `did` what its edits did.
    """
    id = out.id[:_ID_DIGITS]
    untrained = ", untrained: its values mean nothing" if out.batch is None else ", seeded and untrained"
    rows = [
        ("trace", out.id),
        ("", "stored already, nothing was run" if stored_before else "recorded now"),
        ("model", f"{out.model}, {out.dtype}{'' if out.trained else untrained}"),
        *_input_rows(out),
    ]
    look = [
        f"  {NAME} show {example} --trace {id} --layer 0",
        f"  {NAME} serve, then {server}/traces/{out.id}",
    ]
    if folder:
        look.insert(0, f"  export TENSOR_PROVENANCE_MODEL_DIRECTORIES={folder}")
    return "\n".join([table(rows), "", *([did, ""] if did else []), "Look at it:", *look])


def _input_rows(out: "TraceOut") -> list[tuple[str, str]]:
    """What a run read, and what it chose."""
    if out.batch is not None:
        drawn = f"drawn from seed {out.input_seed}, batch {out.batch}"
        return [("vectors", f"{len(out.tokens):,}, {drawn}: {_token_list(out.tokens)}")]
    return [
        ("prompt", f"{count_of(len(out.tokens), 'token')}: {_token_list(out.tokens)}"),
        ("steps", f"the prefill and {count_of(out.steps, 'decode step')}"),
        ("generated", f"{count_of(len(out.generated), 'token')}: {_token_list(out.generated)}"),
    ]


def traces_text(traces: "Sequence[TraceOut]") -> str:
    """All stored traces, one a line."""
    if not traces:
        return f"No trace is stored here yet. Record one: {NAME} record 'Hello world'."
    rows = [("id", "recorded", "model", "tokens", "prompt")]
    for out in traces:
        when = (out.created_at or "")[:16].replace("T", " ")
        tokens = f"{len(out.tokens)}+{out.steps}"
        what = _read_by_person(out.tokens) if not out.error else out.error
        if out.batch is not None:
            what = f"vectors from seed {out.input_seed}, batch {out.batch}: {what}"
        if out.edits:
            what = f"changed: {what}"
        rows.append((out.id[:_ID_DIGITS], when, out.model or "?", tokens, what))
    return columns(rows)


def columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows in columns; the last one is cut where the line would be too long."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    room = max(16, _width() - sum(widths) - 2 * len(widths))
    lines = []
    for row in rows:
        last = row[-1] if len(row[-1]) <= room else f"{row[-1][: room - 1]}…"
        lines.append("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), last]))
    return "\n".join(line.rstrip() for line in lines)


# --- sources ---


def sources_text(files: "Sequence[SourceOut]") -> str:
    """Each pinned file with what its carriers say, and what is known in the end."""
    return "\n\n".join(_source_text(out) for out in files)


def _source_text(out: "SourceOut") -> str:
    said = []
    for carrier in out.carriers:
        detail = carrier.detail.removeprefix(f"{carrier.carrier}: ")
        said.append((carrier.carrier, f"{carrier.state}: {detail}" if detail else carrier.state))
    head = wrapped(f"{out.label}  {out.repository} {out.path}", hang=2)
    head += f"\n  revision {out.revision} ({out.license})"
    return f"{head}\n{table(said, 2)}\n{wrapped(_known(out), 2)}"


def _known(out: "SourceOut") -> str:
    if not out.at_hand:
        return f"Not at hand: no carrier has the pinned bytes. Try {NAME} sources fetch."
    have = f"At hand: blob {out.blob}, as in {out.release}, its id checked."
    if out.settled:
        return f"{have} It is the pinned revision's own."
    return f"{have} Whether it is the pinned revision's own is not settled: only the git host can tell."
