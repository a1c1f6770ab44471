"""Comparing one tensor with a reference, within the tolerance of fp32 on a CPU."""

from dataclasses import dataclass

import torch

from provenance.names import Address
from provenance.verdict import TOLERANCE, Parity


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a reference comes from: a source, and of a witness the line, expression and layout."""

    source: str
    line: int | None = None
    expression: str = ""
    layout: str = ""


def parity(
    address: Address,
    ours: torch.Tensor,
    reference: torch.Tensor,
    visible: torch.Tensor | None,
    origin: Origin,
) -> Parity:
    """Compare all cells, or those that are True in `visible` (broadcast over the leading axes)."""

    def verdict(difference: float, largest: float, note: str = "") -> Parity:
        tolerance = TOLERANCE * max(1.0, largest)
        return Parity(
            address=str(address),
            source=origin.source,
            line=origin.line,
            expression=origin.expression,
            layout=origin.layout,
            visible_only=visible is not None,
            largest_difference=difference,
            largest_reference=largest,
            tolerance=tolerance,
            holds=not note and difference <= tolerance,
            note=note,
        )

    if ours.shape != reference.shape:
        return verdict(0.0, 0.0, f"shapes differ: {list(ours.shape)} and {list(reference.shape)}")
    if visible is not None:
        cells = visible.expand(ours.shape)
        ours, reference = ours[cells], reference[cells]
    if ours.dtype == reference.dtype and torch.equal(ours, reference):
        return verdict(0.0, _largest(reference))
    wide = torch.float64 if torch.float64 in (ours.dtype, reference.dtype) else torch.float32
    ours, reference = ours.to(wide), reference.to(wide)
    if not (torch.isfinite(ours).all() and torch.isfinite(reference).all()):
        same = torch.equal(torch.isfinite(ours), torch.isfinite(reference))
        return verdict(0.0, 0.0, "values are not finite" if same else "finite in one of the two only")
    return verdict(_largest(ours - reference), _largest(reference))


def _largest(tensor: torch.Tensor) -> float:
    if not tensor.numel():
        return 0.0
    return float((tensor if tensor.is_floating_point() else tensor.double()).abs().max())
