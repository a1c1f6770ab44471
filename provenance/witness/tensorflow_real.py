"""Runs source bytes on real TensorFlow, as a check of the stand-in for it.

TensorFlow notes for every operation of a graph which lines were running when it was made. What a
line computed is read from these notes, and not from a trace of our own. TensorFlow is imported when
a `Program` is made, never before, and then behaves as version 1 in the whole process.
"""

import importlib.util
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace, TracebackType
from typing import Any, Protocol, Self, TypeVar

import numpy
import torch

from provenance.errors import Unavailable, UnsupportedCheckpoint
from provenance.witness.execute import load
from provenance.witness.tensorflow_standin import HParams
from provenance.witness.tracer import Stack, watch

_FETCHED_AT_ONCE = 128

_Result = TypeVar("_Result")


class Frame(Protocol):
    """One line of TensorFlow's note of where an operation was made."""

    @property
    def filename(self) -> str: ...
    @property
    def lineno(self) -> int: ...
    @property
    def name(self) -> str: ...


class Operation(Protocol):
    """An operation of a graph: its type, what it gives, and the frames that made it, outermost first."""

    @property
    def type(self) -> str: ...
    @property
    def outputs(self) -> Sequence[Any]: ...
    @property
    def traceback(self) -> Iterable[Frame]: ...


@dataclass(frozen=True, slots=True)
class Extent:
    """The operations made in succession while one line ran, those of the functions it called included.

    The last one is the line's value. `trail` holds the (function, line) pairs within the file,
    outermost first, and ends with the line; `occurrence` counts from 0 how often the same trail came
    before. Two runs of a line with no operation between them are one extent.
    """

    trail: Stack
    occurrence: int
    operations: tuple[Operation, ...]

    def of_type(self, name: str) -> list[Operation]:
        """The operations of one type, in the order in which they were made."""
        return [operation for operation in self.operations if operation.type == name]


def extents(operations: Iterable[Operation], filename: str) -> list[Extent]:
    """What each line of the file made, in order of its first operation."""
    runs: list[tuple[Stack, list[Operation]]] = []
    running: dict[Stack, list[Operation]] = {}
    for operation in operations:
        trail = tuple((frame.name, frame.lineno) for frame in operation.traceback if frame.filename == filename)
        prefixes = [trail[:length] for length in range(1, len(trail) + 1)]
        running = {prefix: running.get(prefix, []) for prefix in prefixes}
        for prefix, made in running.items():
            if not made:
                runs.append((prefix, made))
            made.append(operation)
    counts: Counter[Stack] = Counter()
    found = []
    for trail, made in runs:
        found.append(Extent(trail, counts[trail], tuple(made)))
        counts[trail] += 1
    return found


def require() -> None:
    """Raises Unavailable where TensorFlow is not installed."""
    if importlib.util.find_spec("tensorflow") is None:
        raise Unavailable(
            "TensorFlow is not installed, so the cited file cannot run on it.",
            hint="Install it: pip install 'tensor-provenance[tensorflow]'.",
        )


class Program:
    """A source's functions, a graph for what they make, and a session that runs it; used in a `with`.

    `functions` is the source's namespace. Raises Unavailable where TensorFlow is not installed or
    cannot be loaded, and what `execute.load` raises.
    """

    def __init__(self, source: bytes, filename: str) -> None:
        self._tf = _tensorflow()
        self._source = source
        self._filename = filename
        self.functions = load(
            source,
            filename,
            {
                "numpy": numpy,
                "tensorflow": self._tf,
                "tensorflow.contrib.training": SimpleNamespace(HParams=HParams),
            },
        )
        self._graph = self._tf.Graph()
        threads = torch.get_num_threads()
        config = self._tf.ConfigProto(
            intra_op_parallelism_threads=threads, inter_op_parallelism_threads=1, device_count={"GPU": 0}
        )
        self._session = self._tf.Session(graph=self._graph, config=config)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    def placeholder(self, dtype: str, shape: Sequence[int | None]) -> Any:
        """An input of the graph; sizes that are None may differ from run to run."""
        with self._graph.as_default():
            return self._tf.placeholder(dtype, shape)

    def build(self, run: Callable[[], _Result], lines: set[int]) -> tuple[_Result, list[Extent]]:
        """What `run()` returns, and what each line made; the lines that ran are added to `lines`."""
        before = len(self._graph.get_operations())
        with self._graph.as_default():
            result = watch(run, self._filename, self._source, lambda _: None, lines=lines)
        return result, extents(self._graph.get_operations()[before:], self._filename)

    def assign(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Give every variable its weight. Raises UnsupportedCheckpoint if one is missing or has another shape."""
        with self._graph.as_default():
            variables = self._tf.global_variables()
        for variable in variables:
            name, shape = variable.op.name, variable.shape.as_list()
            weight = weights.get(name)
            if weight is None or list(weight.shape) != shape:
                raise UnsupportedCheckpoint(f"The cited code asks for a weight {name!r} of the shape {shape}.")
            # The initialiser's second input is the value that it stores.
            self._session.run(variable.initializer, {variable.initializer.inputs[1]: weight.numpy()})

    def values(self, wanted: Sequence[Any], given: Mapping[Any, torch.Tensor]) -> Iterator[torch.Tensor]:
        """The values of the graph's tensors for these inputs, in order; few of them are held at once."""
        feed = {placeholder: value.numpy() for placeholder, value in given.items()}
        for start in range(0, len(wanted), _FETCHED_AT_ONCE):
            for value in self._session.run(list(wanted[start : start + _FETCHED_AT_ONCE]), feed):
                yield torch.from_numpy(numpy.require(value, requirements="W"))


def _tensorflow() -> Any:
    """TensorFlow's version 1, with everything of version 2 that its old code would notice switched off."""
    require()
    # Read when its library is loaded: notes on the processor are nothing that a person asked for.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        import tensorflow
    except ImportError as error:
        raise Unavailable(f"TensorFlow is installed but cannot be loaded: {error}.") from error
    tensorflow.get_logger().setLevel("ERROR")
    one = tensorflow.compat.v1
    one.disable_v2_behavior()
    one.disable_v2_tensorshape()
    return one
