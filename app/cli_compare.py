"""The command `compare`: two traces, or files of tensors, tensor by tensor in computation order."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli_shell import AsJson, emit, emit_json, opened, progress_bar, settings_with, trace_id
from provenance.errors import InvalidInput

if TYPE_CHECKING:
    from app.explorer import Explorer
    from app.schemas_compare import ComparisonOut, DifferenceOut
    from provenance.compare import Comparison, How
    from provenance.trace import Trace

_SHOWN = 24
_ENDINGS = (".safetensors", ".npz")
_WAYS = ("steps", "positions", "names")


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="The reference: a trace's id, 'latest', or a file.")],
    b: Annotated[str, typer.Argument(metavar="B", help="What is compared with it; a .safetensors or .npz file too.")],
    tolerance: Annotated[
        float | None, typer.Option(metavar="X", help="A share of the largest value; by default that of the dtypes.")
    ] = None,
    how: Annotated[
        str | None, typer.Option(metavar="WAY", help="steps, positions or names; what fits decides by default.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Print every row, however many there are.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare two traces or tensor files; name what diverges first.

    The tensors stand in the order in which they are computed. Exit code 1 where they diverge.
    """
    from app.schemas_compare import comparison_out

    way = _way(how)
    with opened(settings_with()) as here:
        sides = [_side(here, text) for text in (a, b)]
        swapped = isinstance(sides[0], Path) and not isinstance(sides[1], Path)
        if swapped:  # a trace knows what every tensor is, so it is the reference
            sides.reverse()
        found, reference = _compare(here, sides, tolerance, way)
        catalogue = here.catalogue(reference)
    layers = reference.layers if reference else _layers(found)
    labels = [side.name if isinstance(side, Path) else side.id for side in sides]
    out = comparison_out(labels[0], labels[1], found, catalogue, layers)
    if swapped:
        out.notes.insert(0, "The trace is the reference, so it stands first.")
    emit_json(out) if as_json else emit(comparison_text(out, everything=everything))
    if not found.agrees:
        raise typer.Exit(1)


def _way(how: str | None) -> "How | None":
    from provenance.compare import How

    if how is not None and how not in _WAYS:
        raise InvalidInput(f"There is no way {how!r} to compare.", hint=f"The ways are {', '.join(_WAYS)}.")
    return None if how is None else How(how)


def _side(here: "Explorer", text: str) -> "Path | Trace":
    if text.endswith(_ENDINGS) or os.sep in text or Path(text).is_file():
        return Path(text).expanduser()
    return here.store.open(trace_id(here, text))


def _compare(
    here: "Explorer", sides: "list[Path | Trace]", tolerance: float | None, how: "How | None"
) -> "tuple[Comparison, Trace | None]":
    """The comparison, and the trace that is its reference."""
    from provenance.tensor_files import read_tensors

    one, other = sides
    with progress_bar("Comparing", unit="tensors") as progress:
        if isinstance(one, Path):
            assert isinstance(other, Path), "a trace stands first"
            return here.comparisons.files(one, other, tolerance, how), None
        if isinstance(other, Path):
            tensors = read_tensors(other)
            return here.comparisons.with_tensors(one, tensors, tolerance, how, progress), one
        return here.compare(one.id, other.id, tolerance, how, progress), one


def _layers(found: "Comparison") -> int:
    return 1 + max((row.address.layer or 0 for row in found.rows), default=0)


# --- text ---


def comparison_text(out: "ComparisonOut", *, everything: bool = False) -> str:
    """A comparison as a person reads it: the verdict, the first divergence, then the rows."""
    from app.cli_text import table, wrapped

    counts = {status.value: number for status, number in out.counts.items()}
    said = {"same": "equal bit for bit", "within": "within the tolerance", "differs": "differ", "unfit": "do not fit"}
    counted = ", ".join(f"{counts[status]:,} {words}" for status, words in said.items() if counts[status])
    facts = [
        ("a", out.a),
        ("b", out.b),
        ("compared by", out.how),
        ("tolerance", "by dtype" if out.tolerance is None else f"{out.tolerance:g} of the largest value"),
        ("tensors", counted or "none could be compared"),
    ]
    verdict = "They agree." if out.agrees else _verdict(out)
    lines = [verdict, "", table(facts)]
    if out.notes:
        lines += ["", "Notes", *(wrapped(note, 2, hang=2) for note in out.notes)]
    lines += _divergence_lines(out)
    lines += _unmatched(out)
    rows = out.rows if everything else _most_telling(out)
    lines += ["", "Tensors in computation order", *_rows(rows)]
    if len(rows) < len(out.rows):
        lines.append(f"  {len(out.rows) - len(rows):,} more rows: --all prints them.")
    return "\n".join(lines)


def _verdict(out: "ComparisonOut") -> str:
    if out.first_divergence is not None:
        return f"They diverge at {out.first_divergence.address}."
    compared = any(row.status.value != "unfit" for row in out.rows)
    if not compared:
        return "Nothing could be compared."
    unfit = any(row.status.value == "unfit" for row in out.rows)
    return "What was compared agrees, but shapes do not fit." if unfit else "Only the parameters could be compared."


def _divergence_lines(out: "ComparisonOut") -> list[str]:
    from app.cli_text import wrapped

    first = out.first_divergence
    if first is None:
        return []
    lines = ["", f"First divergence: {first.address}" + (f", {first.operation}" if first.operation else "")]
    lines.append(f"  max |Δ| {first.largest:.3g}, {first.relative:.3g} of the largest value; {_cosine(first.cosine)}")
    if first.first_index is not None and first.first_values is not None:
        values = " and ".join("not finite" if value is None else f"{value:.9g}" for value in first.first_values)
        lines.append(f"  first at {first.first_index}: {values}")
    if first.note:
        lines.append(wrapped(first.note, 2, hang=2))
    lines += [f"  {cited.repository} {cited.path} {_cited(cited.spans)}" for cited in first.evidence]
    if first.upstream:
        lines.append("  computed from")
        signs = {None: "?", "differs": "≠", "unfit": "≠"}
        for each in first.upstream:
            sign = signs.get(each.status.value if each.status else None, "✓")
            detail = "not compared" if each.relative is None or each.status is None else f"{each.relative:.2e}"
            lines.append(f"    {sign} {each.address:<28} {detail}")
    if first.agreeing_operations:
        lines.append(wrapped(f"above it agree: {', '.join(first.agreeing_operations)}", 2, hang=2))
    return lines


def _unmatched(out: "ComparisonOut") -> list[str]:
    from app.cli_text import wrapped

    lines = []
    for label, names in (("A", out.only_a), ("B", out.only_b)):
        if names and out.how != "names":
            more = f" and {len(names) - 6:,} more" if len(names) > 6 else ""
            lines.append(wrapped(f"Only in {label}: {', '.join(names[:6])}{more}.", 0, hang=2))
    for unknown in out.unknown:
        near = f" Did you mean {', '.join(unknown.near)}?" if unknown.near else ""
        lines.append(wrapped(f"{unknown.name}: {unknown.why}{near}", 0, hang=2))
    return ["", *lines] if lines else []


def _most_telling(out: "ComparisonOut") -> list["DifferenceOut"]:
    """The rows that do not agree, the first ones; where all agree the largest differences, in order."""
    if len(out.rows) <= _SHOWN:
        return list(out.rows)
    wrong = [row for row in out.rows if row.status.value in ("differs", "unfit")]
    if wrong:
        return wrong[:_SHOWN]
    worst = sorted(range(len(out.rows)), key=lambda n: -out.rows[n].relative)[:_SHOWN]
    return [out.rows[n] for n in sorted(worst)]


def _rows(rows: list["DifferenceOut"]) -> list[str]:
    lines = [f"     {'tensor':<28} {'status':<8} {'max |Δ|':>9} {'relative':>9} {'cosine':>11}  first index"]
    for row in rows:
        sign = "✓" if row.status.value in ("same", "within") else "≠"
        if row.status.value == "unfit":
            lines.append(f"  {sign}  {row.address:<28} unfit    {row.note}")
            continue
        cosine = "" if row.cosine is None else f"{row.cosine:.8f}"
        first = "" if row.first_index is None else ",".join(map(str, row.first_index))
        lines.append(
            f"  {sign}  {row.address:<28} {row.status.value:<8} {row.largest:>9.2e} {row.relative:>9.2e} "
            f"{cosine:>11}  {first}".rstrip()
        )
    return lines


def _cited(spans: list[tuple[int, int]]) -> str:
    # A dash between lines that are cited in part would hide the gap.
    return ", ".join(f"{first}" if first == last else f"{first}–{last}" for first, last in spans)


def _cosine(cosine: float | None) -> str:
    return "no cosine" if cosine is None else f"cosine {cosine:.8f}"
