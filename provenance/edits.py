"""Edits: what is changed in a run, and the text that says so.

    h.3.attn.pattern[head=2] = 0            set, in every step
    h.3.attn.pattern@0[head=2] *= 0.5       scale, in the prefill alone
    h.2.resid_post[token=4] = trace:3f9a…   patch: the same cells of another trace

`str()` of an edit and `parse_edit` are inverses. A recipe holds its edits, so they are part of a
trace's id.
"""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from provenance.catalogue import Catalogue, Intermediate, Kind
from provenance.errors import InvalidAddress, InvalidInput, OutOfRange
from provenance.lookup import find
from provenance.names import Address, is_layered
from provenance.selection import Pick, parse_picks

MOST_EDITS = 32
"""The most edits of one recipe."""

_EDIT = re.compile(
    r"\s*(?P<name>.+?)\s*(?:\[(?P<picks>[^\[\]]*)\])?\s*(?P<sign>\*?=)\s*(?P<value>[^=\[\]*]+?)\s*", re.DOTALL
)
_STEP = re.compile(r"(?P<name>.+)@(?P<step>\d{1,6})", re.DOTALL)
_TRACE = re.compile(r"trace:\s*(?P<id>[0-9a-f]{6,32})")


class Action(StrEnum):
    """What an edit does with the cells that it chooses."""

    SET = "set"
    SCALE = "scale"
    PATCH = "patch"


class Edit(BaseModel):
    """One change of a tensor: where, and what. `step` None means every step in which it exists.

    `value` is what cells are set to or multiplied by; `source` the id of the trace that is patched in.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    place: str
    step: Annotated[int, Field(ge=0, le=999_999)] | None = None
    picks: tuple[Pick, ...] = ()
    action: Action
    value: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    source: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.action is Action.PATCH) != (self.source is not None):
            raise ValueError("a patch, and only a patch, names a source")
        return self

    @property
    def address(self) -> Address:
        """The tensor that is changed, in the first step that the edit names."""
        return Address.parse(f"{self.place}@{self.step or 0}")

    def covers(self, address: Address) -> bool:
        """Whether a tensor is one of those that are changed."""
        return address.place == self.place and self.step in (None, address.step)

    def __str__(self) -> str:
        step = "" if self.step is None else f"@{self.step}"
        picks = f"[{', '.join(map(str, self.picks))}]" if self.picks else ""
        sign = "*=" if self.action is Action.SCALE else "="
        value = f"trace:{self.source}" if self.source else repr(self.value).removesuffix(".0")
        return f"{self.place}{step}{picks} {sign} {value}"


def parse_edit(catalogue: Catalogue, layers: int, last_step: int, text: str, full_id: Callable[[str], str]) -> Edit:
    """Read an edit; the tensor may have any of its names. `full_id` completes the id of a trace.

    Raises InvalidInput, UnknownSite with near matches, or OutOfRange for a layer or step there is not.
    """
    read = _EDIT.fullmatch(text)
    if read is None:
        raise InvalidInput(
            f"{text[:80]!r} is no edit.",
            hint="Write for example h.3.attn.pattern[head=2]=0, …*=0.5 to scale, …=trace:ID to patch.",
        )
    row, address, step = _named(catalogue, read["name"])
    _check(row, address, step, layers, last_step)
    picks = parse_picks(catalogue, row, read["picks"]) if read["picks"] is not None else ()
    patch = _TRACE.fullmatch(read["value"])
    if patch and read["sign"] == "*=":
        raise InvalidInput(f"{text[:80]!r} multiplies by a trace.", hint="Patch with =trace:ID, scale with *=0.5.")
    action = Action.PATCH if patch else Action.SCALE if read["sign"] == "*=" else Action.SET
    return Edit(
        place=address.place,
        step=step,
        picks=picks,
        action=action,
        value=0.0 if patch else _number(read["value"]),
        source=full_id(patch["id"]) if patch else None,
    )


def _named(catalogue: Catalogue, name: str) -> tuple[Intermediate, Address, int | None]:
    stepped = _STEP.fullmatch(name)
    row, address = find(catalogue, stepped["name"] if stepped else name)
    if address is None and is_layered(row.site):
        raise InvalidAddress(
            f"{name[:80]!r} exists once in every layer.",
            hint=f"Name the layer: {row.site.replace('h.', 'h.0.', 1)!r}.",
        )
    return row, address or Address(row.site), int(stepped["step"]) if stepped else None


def is_fixed(row: Intermediate) -> bool:
    """Whether a tensor cannot be changed: whole numbers, truth values, and what the model is given."""
    return row.discrete or (row.kind is Kind.INPUT and not row.inputs)


def _check(row: Intermediate, address: Address, step: int | None, layers: int, last_step: int) -> None:
    if row.discrete:
        raise InvalidInput(
            f"{row.site} holds whole numbers or truth values, and these cannot be changed.",
            hint="Change what is computed from it.",
        )
    if is_fixed(row):
        raise InvalidInput(
            f"{row.site} is what the model is given, and cannot be changed on its way.",
            hint="Record another input, or change what is computed from it.",
        )
    if address.layer is not None and address.layer >= layers:
        raise OutOfRange(f"There is no layer {address.layer}.", hint=f"The model has layers 0 to {layers - 1}.")
    steps = [n for n in range(last_step + 1) if row.steps.cover(n)]
    if not steps or (step is not None and step not in steps):
        which = "any step of this run" if step is None else f"step {step} of this run"
        raise OutOfRange(
            f"{row.site} does not exist in {which}.",
            hint=f"It exists in {row.steps.value}; the run has steps 0 (prefill) to {last_step}.",
        )


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InvalidInput(f"{text[:40]!r} is no number, and no trace:ID.") from None
    if value - value != 0:
        raise InvalidInput(f"A tensor cannot be changed by {text[:40]}.", hint="Give a finite number.")
    return value
