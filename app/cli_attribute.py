"""The command `attribute`: what wrote a token's logit, as a table."""

from typing import TYPE_CHECKING, Annotated

import typer

from app.cli_shell import AsJson, emit, emit_json, opened, settings_with, trace_id, waiting

if TYPE_CHECKING:
    from app.schemas_attribution import AttributionOut, TermOut

_SHOWN = 12
_BAR = 24


def attribute(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="Its id, 6 or more first digits, or 'latest'.")],
    position: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Counted from 0; default: the prompt's last one.")
    ] = None,
    token: Annotated[
        int | None, typer.Option(min=0, metavar="ID", help="A token's id; default: the most likely one there.")
    ] = None,
    against: Annotated[
        int | None, typer.Option(min=0, metavar="ID", help="Another token's id: attribute the lead over it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what each head and MLP added to a token's logit.

    Exit code 1 if the terms do not sum to the recorded logit, within the tolerance.
    """
    from app.schemas_attribution import attribution_out
    from provenance.lens import position_of

    with opened(settings_with()) as here, waiting("Attributing"):
        stored = here.store.open(trace_id(here, trace))
        found = here.attribution(stored, position_of(stored, number=position), token, against)
        out = attribution_out(stored.id, found, here.models.tokens(stored.recipe.model.name, found.tokens))
    emit_json(out) if as_json else emit(attribution_text(out))
    if not out.holds:
        raise typer.Exit(1)


def attribution_text(found: "AttributionOut") -> str:
    """An attribution as a person reads it: kinds, then the largest terms."""
    over = f" rather than [{found.against.text}]" if found.against else ""
    lines = [f"What wrote [{found.token.text}]{over} at position {found.position}", ""]
    lines += _bars([*found.by_kind.items(), ("offset", found.offset)])
    largest = sorted(found.terms, key=lambda term: -abs(term.value))[:_SHOWN]
    lines += ["", f"The largest of {len(found.terms)} terms", *_bars([(_name(term), term.value) for term in largest])]
    sign = "✓" if found.holds else "✗"
    what = "lead" if found.against else "logit"
    lines += [
        "",
        f"{sign} sum {found.total:.4f}, recorded {what} {found.recorded:.4f}, "
        f"remainder {found.remainder:.2g}, tolerance {found.tolerance:.2g}",
    ]
    return "\n".join(lines)


def _bars(values: list[tuple[str, float]]) -> list[str]:
    largest = max(abs(value) for _, value in values) or 1.0
    return [
        f"  {name:<22} {value:>+12.4f}  {('+' if value >= 0 else '-') * round(_BAR * abs(value) / largest)}".rstrip()
        for name, value in values
    ]


def _name(term: "TermOut") -> str:
    what = term.kind if term.head is None else f"head {term.head}"
    return what if term.layer is None else f"layer {term.layer}, {what}"
