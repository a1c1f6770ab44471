"""Two ways of one arithmetic: results in new tensors, or in the place of the first operand.

Where a tap looks on, every result must be a tensor of its own. Where nobody does, working in place spares
the memory traffic of fresh pages. Both run the same kernels on the same numbers, so the bits are the same.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, add, div, exp, mul, ops, sub
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
    exp: Callable[[Tensor], Tensor]
    gelu: Callable[[Tensor], Tensor]


FRESH = Arithmetic(True, add, sub, mul, div, exp, lambda x: gelu(x, approximate="tanh"))

IN_PLACE = Arithmetic(
    False,
    Tensor.add_,
    Tensor.sub_,
    Tensor.mul_,
    Tensor.div_,
    Tensor.exp_,
    lambda x: ops.aten.gelu_.default(x, approximate="tanh"),
)
