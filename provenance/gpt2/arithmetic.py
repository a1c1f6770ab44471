"""Two ways of one arithmetic: results in new tensors, or in the place of the first operand.

Where a tap looks on, every result must be a tensor of its own. Where nobody does, working in place spares
the memory traffic of fresh pages. Both run the same kernels on the same numbers, so the bits are the same.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, add, div, mul, ops, sub
from torch.nn.functional import gelu

Binary = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The elementwise operations; each may overwrite its first operand where `fresh` is False."""

    fresh: bool
    add: Binary
    sub: Binary
    mul: Binary
    div: Binary
    exp: Binary
    """exp(x); the second operand is 0 where x is masked, and 1 elsewhere"""
    gelu: Callable[[Tensor], Tensor]


_NOTHING = -104.0
"""From here down float32's exp is 0."""


def _exp(x: Tensor, _: Tensor) -> Tensor:
    # The library's exp takes seven times as long for what comes out as 0, which masked scores all do.
    gone = x <= _NOTHING
    return x.masked_fill(gone, 0).exp_().masked_fill_(gone, 0)


def _exp_in_place(x: Tensor, visible: Tensor) -> Tensor:
    return x.mul_(visible).exp_().mul_(visible)


FRESH = Arithmetic(True, add, sub, mul, div, _exp, lambda x: gelu(x, approximate="tanh"))

IN_PLACE = Arithmetic(
    False,
    Tensor.add_,
    Tensor.sub_,
    Tensor.mul_,
    Tensor.div_,
    _exp_in_place,
    lambda x: ops.aten.gelu_.default(x, approximate="tanh"),
)
