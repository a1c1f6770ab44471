"""Comparisons behind the explorer: two sides by their ids or files, kept while they are looked at."""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import cached_property
from pathlib import Path
from threading import Lock

from torch import Tensor

from provenance.catalogue import Catalogue
from provenance.catalogues import CATALOGUES
from provenance.compare import Comparison, How, Recorded, compare_files, compare_named, compare_traces
from provenance.compare_names import Progress
from provenance.errors import InvalidInput
from provenance.model import Model
from provenance.models import Models, catalogue_of_model
from provenance.names import Address
from provenance.recorder import Replayer, check_address
from provenance.schemes import Resolved, resolve
from provenance.storage import Store
from provenance.tensor_files import read_tensors
from provenance.trace import Trace

FILE = "file:"
"""What stands before the id of an uploaded file, in the place of a trace's id."""

Tensors = Mapping[str, Tensor]
Uploaded = Callable[[str], Tensors]
"""Gives the tensors of an uploaded file by its id."""

_KEPT = 16
_SAMPLE = 60
"""How many names of two files tell of which family they are."""


class _Reader:
    """Reads the tensors of one trace for one comparison: of its replays it keeps the last segment only.

    So two sides never push each other out of memory, nor what is being looked at.
    """

    def __init__(self, trace: Trace, models: Models, worker: Executor) -> None:
        self._trace = trace
        self._models = models
        self._worker = worker
        self._replayer = Replayer(budget_bytes=0)

    @cached_property
    def _model(self) -> Model:
        return self._models.of(self._trace.recipe)

    def tensor(self, address: Address) -> Tensor:
        check_address(catalogue_of_model(self._trace.recipe.model), self._trace, address)
        if (kept := self._trace.tensors.get(str(address))) is not None:
            return kept
        return self._worker.submit(self._replay, address).result()

    def _replay(self, address: Address) -> Tensor:
        return self._replayer.tensor(self._model, self._trace, address)


class Comparing(ABC):
    """Comparisons of a trace with another, or with tensors by name. Methods block."""

    @abstractmethod
    def recorded(self, trace: Trace) -> Recorded:
        """A trace as one side of a comparison."""

    @abstractmethod
    def compare(
        self,
        a: str,
        b: str,
        relative: float | None = None,
        how: How | None = None,
        progress: Progress | None = None,
    ) -> Comparison:
        """Compare a trace with another one, or with an uploaded file (`file:` and its id).

        Raises NotFound for what is not here, and InvalidInput for what cannot be compared.
        """

    def with_tensors(
        self,
        trace: Trace,
        tensors: Tensors,
        relative: float | None = None,
        how: How | None = None,
        progress: Progress | None = None,
    ) -> Comparison:
        """Compare a file's tensors with a trace. Raises InvalidInput for another way than by names."""
        _check_names(how)
        return compare_named(self.recorded(trace), tensors, relative=relative, progress=progress)

    def files(self, a: Path, b: Path, relative: float | None = None, how: How | None = None) -> Comparison:
        """Compare two files of named tensors. Raises UnreadableFile."""
        _check_names(how)
        one, other = read_tensors(a), read_tensors(b)
        return compare_files(one, other, _fitting([*one, *other]), relative=relative)


class Comparisons(Comparing):
    """Compares with the models of this process; the last few results are kept."""

    def __init__(self, store: Store, models: Models, worker: Executor, uploaded: Uploaded | None = None) -> None:
        self._store = store
        self._models = models
        self._worker = worker
        self._uploaded = uploaded
        self._results: OrderedDict[tuple[str, str, float | None, How | None], Comparison] = OrderedDict()
        self._lock = Lock()

    def recorded(self, trace: Trace) -> Recorded:
        reader = _Reader(trace, self._models, self._worker)
        catalogue = catalogue_of_model(trace.recipe.model)
        return Recorded(trace, catalogue, trace.layers, reader.tensor, trace.id[:12])

    def compare(
        self,
        a: str,
        b: str,
        relative: float | None = None,
        how: How | None = None,
        progress: Progress | None = None,
    ) -> Comparison:
        if a.startswith(FILE):
            raise InvalidInput("The first side is a file.", hint="Name the trace first: it is the reference.")
        one = self._store.open(a)
        tensors = self._tensors(b) if b.startswith(FILE) else None  # first: a file may be gone since
        key = (one.id, b if tensors is not None else self._store.full_id(b), relative, how)
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key]
        if tensors is not None:
            found = self.with_tensors(one, tensors, relative, how, progress)
        else:
            other = self._store.open(b)
            found = compare_traces(
                self.recorded(one), self.recorded(other), relative=relative, how=how, progress=progress
            )
        with self._lock:
            self._results[key] = found
            while len(self._results) > _KEPT:
                self._results.popitem(last=False)
        return found

    def _tensors(self, name: str) -> Tensors:
        if self._uploaded is None:
            raise InvalidInput("No files can be handed in here.")
        return self._uploaded(name.removeprefix(FILE))


def _fitting(names: list[str]) -> Catalogue:
    """The family to which most of the names belong, as far as a sample tells; the first one of several."""
    sample = names[:: -(-len(names) // _SAMPLE) or 1]

    def known(catalogue: Catalogue) -> int:
        return sum(isinstance(resolve(catalogue, name), Resolved) for name in sample)

    return max(CATALOGUES.values(), key=known)


def _check_names(how: How | None) -> None:
    if how not in (None, How.NAMES):
        raise InvalidInput("A file is compared by names.", hint="Leave the way out.")
