"""The few TensorFlow 1 functions that OpenAI's model files call, computed by PyTorch.

A `TensorFlow` object takes the place of the module. Its tensors are torch tensors with TensorFlow's
`shape`; they share memory with plain ones. Sizes that TensorFlow would keep symbolic are integers.
"""

import builtins
from collections.abc import Mapping, Sequence
from types import SimpleNamespace, TracebackType
from typing import Self

import torch

from provenance.errors import InvalidInput, UnsupportedCheckpoint

CODE_FILENAME: str = (lambda: None).__code__.co_filename
"""The name that this file's code carries: a tracer that watches it sees every stand-in call."""


class Dimension(int):
    """One size of a shape: an integer that has a `value` too."""

    @property
    def value(self) -> int:
        """The size as a plain integer."""
        return int(self)


class Shape(tuple[Dimension, ...]):
    """A static shape as TensorFlow 1 gives it."""

    __slots__ = ()

    @property
    def ndims(self) -> int:
        """The number of axes."""
        return len(self)

    def as_list(self) -> list[int]:
        """The sizes as plain integers."""
        return [int(size) for size in self]


class Tensor(torch.Tensor):
    """A torch tensor with TensorFlow's `shape`; what is computed from it is one too."""

    @property
    def shape(self) -> Shape:  # type: ignore[override]
        """The static shape."""
        return Shape(Dimension(size) for size in self.size())


def wrap(tensor: torch.Tensor) -> Tensor:
    """The same memory as a tensor of the stand-in."""
    return tensor.detach().as_subclass(Tensor)


def unwrap(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a plain torch tensor."""
    return tensor.as_subclass(torch.Tensor)


class HParams(SimpleNamespace):
    """Named hyperparameters, as `tensorflow.contrib.training.HParams`."""

    def override_from_dict(self, values: Mapping[str, int]) -> Self:
        """Set some of them. Raises InvalidInput for a name that is not there yet."""
        for name, value in values.items():
            if not hasattr(self, name):
                raise InvalidInput(f"The cited code has no hyperparameter {name!r}.")
            setattr(self, name, value)
        return self


class Initializer:
    """Kept for its signature alone: every variable has a weight, so none is ever initialised."""

    def __init__(self, value: float = 0, *, stddev: float = 1) -> None:
        self.value = value
        self.stddev = stddev


class VariableScope:
    """A `with` block that puts its name before the variables made inside; reuse is inherited."""

    def __init__(self, scopes: list[tuple[str, bool]], name: str, reuse: bool | None) -> None:
        self._scopes = scopes
        self._name = name
        self._reuse = bool(reuse)

    def __enter__(self) -> Self:
        outer, reuse = self._scopes[-1] if self._scopes else ("", False)
        self._scopes.append((f"{outer}{self._name}/", self._reuse or reuse))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scopes.pop()


class TensorFlow:
    """Stands where the module `tensorflow` is expected; one object serves one run at a time.

    `weights` holds every variable by its full name, `model/h0/attn/c_attn/w`, in the shape that the
    cited code asks for. Tensors that are passed to the cited code must be wrapped by `wrap`.
    """

    contrib = SimpleNamespace(training=SimpleNamespace(HParams=HParams))
    constant_initializer = Initializer
    random_normal_initializer = Initializer

    def __init__(self, weights: Mapping[str, torch.Tensor]) -> None:
        self._weights = weights
        self._scopes: list[tuple[str, bool]] = []
        self._made: set[str] = set()

    # Variables

    def variable_scope(self, name: str, reuse: bool | None = None) -> VariableScope:
        """A scope inside the current one."""
        return VariableScope(self._scopes, name, reuse)

    def get_variable(self, name: str, shape: Sequence[int], initializer: Initializer | None = None) -> Tensor:
        """The weight of that name in the current scope.

        Raises UnsupportedCheckpoint if it is missing or has another shape, and InvalidInput where
        TensorFlow refuses: making a variable twice without reuse, reusing one that was never made.
        """
        prefix, reuse = self._scopes[-1] if self._scopes else ("", False)
        full = prefix + name
        if reuse and full not in self._made:
            raise InvalidInput(f"The cited code reuses the variable {full!r} before it was made.")
        if full in self._made and not reuse:
            raise InvalidInput(
                f"The cited code makes the variable {full!r} twice.",
                hint="Every run after the first needs reuse=True.",
            )
        weight = self._weights.get(full)
        if weight is None:
            raise UnsupportedCheckpoint(f"No weight is named {full!r}, which the cited code asks for.")
        if list(weight.size()) != list(shape):
            raise UnsupportedCheckpoint(
                f"The weight {full!r} has the shape {list(weight.size())}; the cited code asks for {list(shape)}."
            )
        self._made.add(full)
        return wrap(weight)

    # Shapes

    def shape(self, x: Tensor) -> list[int]:
        """The sizes, as integers."""
        return list(x.size())

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """The same values in another shape; -1 stands for what remains."""
        return _ours(torch.reshape(x, tuple(shape)))

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        """Axes in another order."""
        return _ours(x.permute(*perm))

    def expand_dims(self, x: Tensor, axis: int) -> Tensor:
        """A new axis of size 1."""
        return _ours(x.unsqueeze(axis))

    def tile(self, x: Tensor, multiples: Sequence[int]) -> Tensor:
        """Every axis repeated as often as `multiples` says."""
        if len(multiples) != x.dim():
            raise InvalidInput(f"tile needs {x.dim()} multiples, one for each axis, and got {len(multiples)}.")
        return _ours(x.repeat(*multiples))

    def split(self, value: Tensor, num_or_size_splits: int, axis: int = 0) -> list[Tensor]:
        """Equal parts along an axis."""
        size, over = divmod(value.size(axis), num_or_size_splits)
        if over:
            raise InvalidInput(
                f"An axis of size {value.size(axis)} does not split into {num_or_size_splits} equal parts."
            )
        return [_ours(value.narrow(axis, part * size, size)) for part in builtins.range(num_or_size_splits)]

    def stack(self, values: Sequence[Tensor], axis: int = 0) -> Tensor:
        """Tensors of one shape along a new axis."""
        return _ours(torch.stack(tuple(values), dim=axis))

    def unstack(self, value: Tensor, axis: int = 0) -> list[Tensor]:
        """The parts along an axis, which goes away."""
        return [_ours(part) for part in torch.unbind(value, dim=axis)]

    def concat(self, values: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors one behind the other along an axis."""
        return _ours(torch.cat(tuple(values), dim=axis))

    # Making tensors

    def convert_to_tensor(self, value: torch.Tensor, name: str | None = None) -> Tensor:
        """A tensor as it is."""
        return value if isinstance(value, Tensor) else wrap(value)

    def cast(self, x: Tensor | float, dtype: torch.dtype) -> Tensor:
        """A tensor or a number as another dtype."""
        return _ours(x.to(dtype)) if isinstance(x, Tensor) else wrap(torch.tensor(x, dtype=dtype))

    def range(self, limit: int) -> Tensor:
        """The integers from 0 below `limit`, as int32."""
        return wrap(torch.arange(limit, dtype=torch.int32, device=self._device()))

    # Arithmetic

    def gather(self, params: Tensor, indices: Tensor) -> Tensor:
        """Rows of `params` by number: the shape of `indices`, then that of one row."""
        rows = params.index_select(0, indices.reshape(-1))
        return _ours(rows.reshape(tuple(indices.size()) + tuple(params.size())[1:]))

    def matmul(self, a: Tensor, b: Tensor, transpose_b: bool = False) -> Tensor:
        """The matrix product over the last two axes."""
        return _ours(torch.matmul(a, b.transpose(-1, -2) if transpose_b else b))

    def reduce_max(self, x: Tensor, axis: int, keepdims: bool = False) -> Tensor:
        """The greatest value along an axis."""
        return _ours(torch.amax(x, dim=axis, keepdim=keepdims))

    def reduce_mean(self, x: Tensor, axis: int, keepdims: bool = False) -> Tensor:
        """The mean along an axis."""
        return _ours(torch.mean(x, dim=axis, keepdim=keepdims))

    def reduce_sum(self, x: Tensor, axis: int, keepdims: bool = False) -> Tensor:
        """The sum along an axis."""
        return _ours(torch.sum(x, dim=axis, keepdim=keepdims))

    def square(self, x: Tensor) -> Tensor:
        """x²."""
        return _ours(torch.square(x))

    def pow(self, x: Tensor, y: float) -> Tensor:
        """x to the power y."""
        return _ours(torch.pow(x, y))

    def rsqrt(self, x: Tensor) -> Tensor:
        """1/√x."""
        return _ours(torch.rsqrt(x))

    def exp(self, x: Tensor) -> Tensor:
        """e to the power x."""
        return _ours(torch.exp(x))

    def tanh(self, x: Tensor) -> Tensor:
        """The hyperbolic tangent."""
        return _ours(torch.tanh(x))

    def _device(self) -> torch.device:
        return next((weight.device for weight in self._weights.values()), torch.device("cpu"))


def _ours(result: torch.Tensor) -> Tensor:
    # PyTorch hands results on in the class of their inputs; a mismatch is a mistake of this file.
    assert isinstance(result, Tensor)
    return result
