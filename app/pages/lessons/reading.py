"""Runs as the lessons read them: tensors in float64, each number with a link to what it was computed from."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from app.explorer import EXAMPLE, EXAMPLE_STEPS, Explorer
from app.jobs import Job, State
from app.pages.links import tensor_url, trace_url, values_url
from app.pages.numbers import Number
from app.pages.scope import Link, Scope
from provenance.errors import Busy, InvalidInput, Unavailable, UnknownModel
from provenance.lessons.options import Options
from provenance.names import Address, is_layered
from provenance.pictures.cells import array_of
from provenance.trace import Recipe, Trace
from provenance.vectors import Vectors

Array = NDArray[np.float64]

Check = Callable[[], None]
"""Raises where the reader may not record."""

_MAY_RECORD: ContextVar[Check] = ContextVar("may_record", default=lambda: None)
_PATIENCE_SECONDS = 20.0
_POLL_SECONDS = 0.005


@contextmanager
def recording_if(may_record: Check) -> Iterator[None]:
    """While a page is made, in this thread: what is asked before a run is recorded for it."""
    token = _MAY_RECORD.set(may_record)
    try:
        yield
    finally:
        _MAY_RECORD.reset(token)


@dataclass(frozen=True, slots=True)
class Live:
    """A number that was computed when the page was made, and the tensor that it was computed from."""

    number: Number
    url: str
    site: str
    says: str


@dataclass(frozen=True, slots=True)
class Reading:
    """One run as a lesson reads it. Without a layer, a site of the block is that of layer 0."""

    explorer: Explorer
    trace: Trace
    _kept: dict[Address, Array] = field(default_factory=dict, compare=False, repr=False)

    @property
    def trace_url(self) -> str:
        """The page of the run."""
        return trace_url(self.trace.id)

    def address(self, site: str, layer: int | None = None, step: int = 0) -> Address:
        """The address of a site in this run."""
        return Address(site, (layer or 0) if is_layered(site) else None, step)

    def array(self, site: str, layer: int | None = None, step: int = 0) -> Array:
        """A recorded tensor, exactly, in float64; not to be written to.

        Raises UnknownSite for what this run's variant does not have, OutOfRange, UnknownModel.
        """
        address = self.address(site, layer, step)
        if address not in self._kept:
            tensor = self.explorer.tensor(self.trace, address)
            cells = array_of(tensor).astype(np.float64)
            cells.setflags(write=False)
            self._kept[address] = cells
        return self._kept[address]

    def has(self, site: str) -> bool:
        """Whether this run's model has a site; what another variant has it has not."""
        return site in self.explorer.catalogue(self.trace).rows

    def url(self, site: str, layer: int | None = None, step: int = 0, head: int | None = None) -> str:
        """The page of a tensor."""
        return tensor_url(self.trace.id, self.address(site, layer, step), head)

    def npy_url(self, site: str, layer: int | None = None, step: int = 0) -> str:
        """The API's address of a tensor's values."""
        return values_url(self.trace.id, self.address(site, layer, step), ".npy")

    def link(self, site: str, layer: int | None = None, step: int = 0) -> Link:
        """A link to a tensor's page, with its expression and title."""
        scope = Scope.of(self.explorer, self.trace)
        return scope.link_to(self.address(site, layer, step))

    def live(self, number: Number, site: str, layer: int | None = None, step: int = 0) -> Live:
        """A number with the tensor that it was computed from."""
        address = self.address(site, layer, step)
        return Live(number, tensor_url(self.trace.id, address), site, f"computed from {address}")


@dataclass(frozen=True, slots=True)
class Readings:
    """Gets the runs of the lessons; one that is not stored is recorded, which takes milliseconds."""

    explorer: Explorer

    def textbook(self, options: Options, ids: Iterable[int] | None = None) -> Reading:
        """The textbook model's run with these options; `ids` are other vectors than 0, 1, 2 … of its table.

        Raises Unavailable where it is not stored and cannot be recorded here, and Busy.
        """
        numbers = None if ids is None else list(ids)
        vectors = Vectors(options.length if numbers is None else None, options.batch, options.seed)
        recipe = self.explorer.plan(ids=numbers, model=options.config.name, vectors=vectors)
        return self._read(recipe)

    def gpt2(self, text: str | None = None, ids: Iterable[int] | None = None, steps: int | None = None) -> Reading:
        """The default model's run of a prompt; without one, of the example, with its decode steps.

        Raises UnknownModel where the model is not here, and as `textbook`.
        """
        if text is None and ids is None:
            text, steps = EXAMPLE, EXAMPLE_STEPS if steps is None else steps
        return self._read(self.explorer.plan(text, ids=None if ids is None else list(ids), steps=steps or 0))

    def gpt2_if_here(self) -> Reading | None:
        """The default model's example run, or None where it cannot be had: what leads there is left out then."""
        try:
            return self.gpt2()
        except (UnknownModel, InvalidInput, Unavailable):
            return None

    def _read(self, recipe: Recipe) -> Reading:
        if recipe.id not in self.explorer.store:
            self._record(recipe)
        return Reading(self.explorer, self.explorer.store.open(recipe.id))

    def _record(self, recipe: Recipe) -> None:
        """Record through the queue, so that all limits hold; wait until it is done."""
        if self.explorer.settings.read_only:
            raise Unavailable(
                "The run that this page reads is not stored here, and this server only shows what is.",
                hint="Open the lesson with its usual options, or run your own server.",
            )
        _MAY_RECORD.get()()
        job = self.explorer.submit(recipe)
        end = time.monotonic() + _PATIENCE_SECONDS
        while job.state in (State.QUEUED, State.RUNNING):
            if time.monotonic() > end:
                raise Busy("The run that this page reads waits behind others.", hint="Load the page again.")
            time.sleep(_POLL_SECONDS)
            job = self.explorer.job(recipe.id) or Job(recipe.id, recipe, State.DONE)
        if job.state is State.FAILED:
            raise Unavailable(f"The run that this page reads could not be recorded. {job.error}")
