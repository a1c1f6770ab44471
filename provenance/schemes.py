"""A tensor's name and layout in each naming scheme, and back: what a name means, how a tensor fits.

In every scheme a decode step n stands at the end of the name as `@n`; the prefill has no such end.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from provenance.catalogue import Alias, Catalogue, Intermediate, Kind
from provenance.errors import InvalidAddress
from provenance.lookup import normal_expression
from provenance.names import BLOCK, LARGEST, Address, is_layered
from provenance.naming import ALIASES, KEY, Scheme

__all__ = ["Fitted", "Resolved", "Scheme", "Unresolved", "alias_of", "fitted", "laid_out", "name_of", "resolve"]

LONGEST = 300
"""Longer names are not searched for near matches."""

_LAYER = "{layer}"
_STEP = re.compile(r"(?P<name>.*)@(?P<step>0|[1-9][0-9]{0,5})", re.DOTALL)
_DIGITS = re.compile(r"[0-9]+")
_NEAR = 3


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a name means: a tensor, and the other name that it was called by (None: one of ours, or an expression)."""

    name: str
    row: Intermediate
    address: Address
    alias: Alias | None = None


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A name that names no one tensor: why, in one sentence; names to try; whether several rows fit.

    `near` holds close names, each a tensor's, where nothing fits; the candidates' addresses where several do.
    """

    name: str
    reason: str
    near: tuple[str, ...] = ()
    ambiguous: bool = False


@dataclass(frozen=True, slots=True)
class Fitted:
    """A foreign tensor in our layout; `how` says what was done to it, empty where its name promised as much."""

    tensor: Tensor
    how: str = ""


# --- names ---


def alias_of(row: Intermediate, scheme: Scheme) -> Alias | None:
    """The name of a row in a scheme, its first where it has several. None in our own scheme, too."""
    for kind in ALIASES[scheme]:
        for alias in row.aliases:
            if alias.scheme == kind:
                return alias
    return None


def name_of(row: Intermediate, address: Address, scheme: Scheme) -> str | None:
    """What a scheme calls a tensor: `blocks.3.attn.hook_pattern@2`; None where it has no name for it."""
    if scheme is Scheme.SITE:
        return str(address)
    alias = alias_of(row, scheme)
    return None if alias is None else _spelled(alias.pattern, address.layer, address.step)


def resolve(catalogue: Catalogue, name: str) -> Resolved | Unresolved:
    """Which tensor a name means: a site, an address, another code's name, or OpenAI's expression."""
    known = _known(catalogue)
    match = _STEP.fullmatch(name)
    bare, step = (match["name"], int(match["step"])) if match else (name, 0)
    if row := catalogue.rows.get(bare):
        return _placed(name, row, None, step)
    if (address := _address(bare)) is not None and address.site in catalogue.rows:
        return Resolved(name, catalogue.rows[address.site], Address(address.site, address.layer, step))
    for pattern, layer in _patterns(bare):
        if pattern in known.aliases:
            row, alias = known.aliases[pattern]
            return _placed(name, row, layer, step, alias)
    rows = known.expressions.get(normal_expression(bare), ()) if len(bare) <= LONGEST else ()
    if len(rows) == 1:
        return _placed(name, rows[0], None, step)
    if rows:
        sites = tuple(row.site for row in rows)
        return Unresolved(name, f"It is the expression of {len(rows)} different tensors.", sites, ambiguous=True)
    return Unresolved(name, "There is no tensor of this name.", _near(catalogue, bare, step))


@dataclass(frozen=True, slots=True)
class _Known:
    """All names of a catalogue: by pattern, by expression, and folded for the search of near ones."""

    aliases: Mapping[str, tuple[Intermediate, Alias]]
    expressions: Mapping[str, tuple[Intermediate, ...]]
    folded: Mapping[str, str]


@lru_cache(maxsize=64)
def _known(catalogue: Catalogue) -> _Known:
    aliases: dict[str, tuple[Intermediate, Alias]] = {}
    expressions: dict[str, dict[str, Intermediate]] = {}
    for row in catalogue:
        for alias in row.aliases:
            aliases.setdefault(alias.pattern, (row, alias))
        for expression in (row.name, *(point.expression for point in row.points)):
            expressions.setdefault(normal_expression(expression), {})[row.site] = row
    patterns = [*(_pattern(row) for row in catalogue), *aliases]
    return _Known(
        aliases,
        {expression: tuple(rows.values()) for expression, rows in expressions.items()},
        {_fold(pattern): pattern for pattern in reversed(patterns)},
    )


def _placed(
    name: str, row: Intermediate, layer: int | None, step: int, alias: Alias | None = None
) -> Resolved | Unresolved:
    if is_layered(row.site) and layer is None:
        pattern = alias.pattern if alias else _pattern(row)
        return Unresolved(
            name, "It exists once in every layer, and no layer is named.", (_spelled(pattern, 0, step),)
        )
    return Resolved(name, row, Address(row.site, layer, step), alias)


def _patterns(name: str) -> list[tuple[str, int | None]]:
    """The name itself, and with each of its numbers taken for the layer."""
    found: list[tuple[str, int | None]] = [(name, None)]
    for number in _DIGITS.finditer(name[:LONGEST]):
        if len(number[0]) <= len(str(LARGEST)):
            found.append((name[: number.start()] + _LAYER + name[number.end() :], int(number[0])))
    return found


def _near(catalogue: Catalogue, name: str, step: int) -> tuple[str, ...]:
    if len(name) > LONGEST:
        return ()
    folded = _known(catalogue).folded
    numbers = _DIGITS.findall(name)
    layer = int(numbers[0]) if numbers and int(numbers[0]) <= LARGEST else 0
    close = difflib.get_close_matches(_fold(name), folded, n=_NEAR, cutoff=0.7)
    return tuple(_spelled(folded[match], layer, step) for match in close)


def _fold(name: str) -> str:
    return _DIGITS.sub("#", name.replace(_LAYER, "#")).lower()


def _pattern(row: Intermediate) -> str:
    return row.site.replace(BLOCK, f"{BLOCK}{_LAYER}.", 1) if is_layered(row.site) else row.site


def _spelled(pattern: str, layer: int | None, step: int) -> str:
    spelled = pattern if layer is None else pattern.replace(_LAYER, str(layer))
    return f"{spelled}@{step}" if step else spelled


def _address(text: str) -> Address | None:
    try:
        return Address.parse(text)
    except InvalidAddress:
        return None


# --- layouts ---


def laid_out(tensor: Tensor, row: Intermediate, alias: Alias | None, visible: Tensor | None = None) -> Tensor:
    """Our tensor as another name has it: its axes in that order, −∞ at the masked cells where it says so.

    `visible` is True at the cells that are not masked, broadcast over leading axes.
    """
    if alias is None:
        return tensor
    if alias.hides and visible is not None:
        tensor = tensor.masked_fill(~visible, -torch.inf)
    if alias.axes:
        tensor = tensor.permute(*_order(row, alias))
    return tensor.squeeze(0) if _drops_one(row, alias) else tensor


def fitted(tensor: Tensor, row: Intermediate, alias: Alias | None, expected: Sequence[int]) -> Fitted | str:
    """A tensor of a file in our layout, whose shape is `expected`; or one sentence on why it does not fit.

    It may lie as its name implies, or as ours does; leading axes of one may be missing or too many. Axes
    are never exchanged by trial: where two are equally long, the name decides.
    """
    ours = tuple(expected)
    theirs = shape_of(ours, row, alias)
    shape = tuple(tensor.shape)
    if _without_ones(shape) == _without_ones(theirs):
        how = "" if shape == theirs else f"leading axes of 1 added or left out: {list(shape)} for {list(theirs)}"
        return Fitted(_restored(tensor.reshape(theirs), row, alias), how)
    if _without_ones(shape) == _without_ones(ours):
        how = f"taken as our layout, {_named(ours, row)}; the name implies {list(theirs)}"
        return Fitted(tensor.reshape(ours), how)
    wanted = f"{list(theirs)}" if theirs != ours else _named(ours, row)
    if lacking := _lacking(shape, ours, row):
        return f"Its shape {list(shape)} lacks the axis {lacking}: {wanted} is expected."
    other = f", or in our layout {_named(ours, row)}" if theirs != ours else ""
    return f"Its shape {list(shape)} does not fit: {wanted} is expected{other}."


def shape_of(ours: Sequence[int], row: Intermediate, alias: Alias | None) -> tuple[int, ...]:
    """The shape that one of our tensors has under another name."""
    shape = tuple(ours)
    if alias is None:
        return shape
    if alias.axes:
        return tuple(shape[axis] for axis in _order(row, alias))
    return shape[1:] if _drops_one(row, alias) else shape


def _restored(tensor: Tensor, row: Intermediate, alias: Alias | None) -> Tensor:
    """The inverse of `laid_out`."""
    if alias is None:
        return tensor
    if alias.axes:
        order = _order(row, alias)
        return tensor.permute(*(order.index(axis) for axis in range(len(order))))
    return tensor.unsqueeze(0) if _drops_one(row, alias) else tensor


def _order(row: Intermediate, alias: Alias) -> tuple[int, ...]:
    return tuple(row.shape.index(symbol) for symbol in alias.axes)


def _drops_one(row: Intermediate, alias: Alias) -> bool:
    """Checkpoints store a projection without the leading axis of one that it has in the cited code."""
    return alias.scheme == KEY and row.kind is Kind.PARAMETER and len(row.shape) == 3 and row.shape[0] == "1"


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    first = next((axis for axis, size in enumerate(shape) if size != 1), len(shape))
    return shape[first:]


def _lacking(shape: tuple[int, ...], ours: tuple[int, ...], row: Intermediate) -> str:
    """The one axis that is missing, as `H of 12`."""
    for axis, size in enumerate(ours):
        if size != 1 and _without_ones(ours[:axis] + ours[axis + 1 :]) == _without_ones(shape):
            return f"{row.shape[axis]}, of {size}"
    return ""


def _named(shape: tuple[int, ...], row: Intermediate) -> str:
    return "[" + ", ".join(f"{size} {symbol}" for size, symbol in zip(shape, row.shape, strict=True)) + "]"
