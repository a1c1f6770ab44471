"""A file of named tensors against a trace, or against another file."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import dropwhile

from torch import Tensor

from provenance.catalogue import Catalogue, Kind
from provenance.comparison import UNPLACED, Comparison, How, Recorded, UnknownName, check_tolerance
from provenance.difference import Difference, Status, difference
from provenance.errors import OutOfRange
from provenance.names import Address, slug
from provenance.order import computation_order
from provenance.recorder import check_address
from provenance.schemes import Fitted, Resolved, Unresolved, fitted, resolve

Progress = Callable[[int, int], None]
"""Called with the number of tensors compared and the number of all."""


def compare_named(
    a: Recorded,
    tensors: Mapping[str, Tensor],
    *,
    label: str = "the file",
    relative: float | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare what a file holds with a trace, in computation order; any subset, by any name, in its layout."""
    check_tolerance(relative)
    found, unknown = _resolved(a.catalogue, tensors)
    wanted: dict[Address, list[Resolved]] = {}
    for name in found:
        try:
            check_address(a.catalogue, a.trace, name.address)
        except OutOfRange as error:
            unknown.append(UnknownName(name.name, (), error.message))
            continue
        wanted.setdefault(_fixed(a.catalogue, name.address), []).append(name)
    order = [at for step in range(a.trace.last_step + 1) for at in a.order(step)]
    rows: list[Difference] = []
    for address in (at for at in order if at in wanted):
        for name in wanted[address]:
            rows.append(_compare(a, address, name, tensors[name.name], relative))
            if progress:
                progress(len(rows), sum(map(len, wanted.values())))
    notes = [f"{len(wanted)} of the trace's {len(order):,} tensors have a counterpart in {label}."]
    if unknown:
        notes.append(f"{_count(len(unknown))} of {label} {'is' if len(unknown) == 1 else 'are'} not compared.")
    only_a = tuple(str(address) for address in order if address not in wanted)
    return Comparison(How.NAMES, tuple(rows), only_a, (), tuple(unknown), tuple(notes), relative)


def compare_files(
    a: Mapping[str, Tensor],
    b: Mapping[str, Tensor],
    catalogue: Catalogue,
    *,
    relative: float | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare two files: by what their names mean where both are known, else by equal names.

    Names that mean no tensor of the catalogue are compared with their equals, and stand last.
    """
    check_tolerance(relative)
    known_a, unknown_a = _resolved(catalogue, a)
    known_b, unknown_b = _resolved(catalogue, b)
    by_address_a = {_fixed(catalogue, name.address): name for name in reversed(known_a)}
    by_address_b = {_fixed(catalogue, name.address): name for name in reversed(known_b)}
    shared = by_address_a.keys() & by_address_b.keys()
    rows: list[Difference] = []
    for address in _in_order(catalogue, shared):
        one, other = by_address_a[address], by_address_b[address]
        rows.append(_compare_files(address, one, other, a[one.name], b[other.name], relative))
        if progress:
            progress(len(rows), len(shared))
    lost = {name.name: name for name in unknown_a}
    same = [name.name for name in unknown_b if name.name in lost]
    rows += [difference(_unplaced(name), a[name], b[name], name=name, relative=relative) for name in same]
    notes = []
    if same:
        notes.append(
            f"{_count(len(same))} in both files {'means' if len(same) == 1 else 'mean'} no tensor known here: "
            "compared by equal name, and listed last, since no order of computation is known."
        )
    only_a = tuple(name.name for at, name in by_address_a.items() if at not in shared)
    only_b = tuple(name.name for at, name in by_address_b.items() if at not in shared)
    unknown = {name.name: name for name in (*unknown_a, *unknown_b) if name.name not in same}
    return Comparison(How.NAMES, tuple(rows), only_a, only_b, tuple(unknown.values()), tuple(notes), relative)


def _unplaced(name: str) -> Address:
    """An address for a name that means no tensor; it only has the form of one."""
    return Address(f"{UNPLACED}n{slug(name).replace('-', '_')}" if slug(name).isascii() else f"{UNPLACED}name")


def _resolved(catalogue: Catalogue, tensors: Mapping[str, Tensor]) -> tuple[list[Resolved], list[UnknownName]]:
    found: list[Resolved] = []
    unknown: list[UnknownName] = []
    for name in tensors:
        match resolve(catalogue, name):
            case Resolved() as known:
                found.append(known)
            case Unresolved() as lost:
                unknown.append(UnknownName(name, lost.near, lost.reason))
    return found, unknown


def _fixed(catalogue: Catalogue, address: Address) -> Address:
    """A parameter is the same in every step: it stands in step 0."""
    if catalogue.row(address.site).kind is Kind.PARAMETER:
        return Address(address.site, address.layer)
    return address


def _in_order(catalogue: Catalogue, addresses: set[Address]) -> list[Address]:
    layers = 1 + max((at.layer or 0 for at in addresses), default=0)
    steps = sorted({at.step for at in addresses})
    return [at for step in steps for at in computation_order(catalogue, layers, step) if at in addresses]


def _compare(a: Recorded, address: Address, name: Resolved, tensor: Tensor, relative: float | None) -> Difference:
    ours = a.tensor(address)
    fit = fitted(tensor, name.row, name.alias, tuple(ours.shape))
    if not isinstance(fit, Fitted):
        return _unfit(address, name.name, ours, tensor, fit)
    visible = a.visible(address)
    found = difference(
        address,
        ours,
        fit.tensor,
        name=name.name,
        visible=visible,
        relative=relative,
        hidden=visible is not None,
        scale=a.scale(address),
    )
    return replace(found, note="; ".join(filter(None, (found.note, fit.how))))


def _compare_files(
    address: Address, one: Resolved, other: Resolved, a: Tensor, b: Tensor, relative: float | None
) -> Difference:
    name = one.name if one.name == other.name else f"{one.name} / {other.name}"
    if one.alias == other.alias:
        # Leading axes of one may be missing on either side.
        b = b.reshape(a.shape) if _without_ones(a) == _without_ones(b) else b
        return difference(address, a, b, name=name, relative=relative)
    # One that lies as ours does says how large the tensor is, and the other is brought into its layout.
    if _lies_as_ours(one, a):
        fit = fitted(b, other.row, other.alias, tuple(a.shape))
        pair = (a, fit.tensor) if isinstance(fit, Fitted) else None
    elif _lies_as_ours(other, b):
        fit = fitted(a, one.row, one.alias, tuple(b.shape))
        pair = (fit.tensor, b) if isinstance(fit, Fitted) else None
    else:
        pair = None
    if pair is None:
        return _unfit(address, name, a, b, f"{list(a.shape)} and {list(b.shape)} cannot be brought into one layout.")
    hiding = [tensor for tensor, side in zip(pair, (one, other), strict=True) if side.alias and side.alias.hides]
    visible = ~hiding[0].isneginf() if hiding else None
    hidden = visible is not None
    return difference(address, *pair, name=name, visible=visible, relative=relative, hidden=hidden)


def _without_ones(tensor: Tensor) -> tuple[int, ...]:
    return tuple(dropwhile(lambda size: size == 1, tensor.shape))


def _lies_as_ours(name: Resolved, tensor: Tensor) -> bool:
    return not (name.alias and name.alias.axes) and tensor.ndim == len(name.row.shape)


def _unfit(address: Address, name: str, a: Tensor, b: Tensor, why: str) -> Difference:
    shapes, dtypes = (tuple(a.shape), tuple(b.shape)), (_dtype(a), _dtype(b))
    return Difference(address, name, shapes, dtypes, Status.UNFIT, note=why)


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _count(number: int) -> str:
    return f"{number:,} name{'' if number == 1 else 's'}"
