"""A stored trace with its model at hand: any tensor of it, and what is known about each."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache

import torch

from provenance.catalogue import Catalogue
from provenance.errors import InvalidAddress, UnknownSite
from provenance.lookup import find
from provenance.model import Model
from provenance.models import Models, catalogue_of_model, constants_of
from provenance.names import Address, is_layered
from provenance.recorder import Replayer, check_address
from provenance.store import TraceStore
from provenance.summary import Summary, summarize
from provenance.trace import Trace as Stored


class Run:
    """One stored trace, its store, and the models of this process."""

    def __init__(self, stored: Stored, store: TraceStore, models: Models, replayer: Replayer) -> None:
        self.stored = stored
        self.store = store
        self.models = models
        self._replayer = replayer
        self.constants = constants_of(stored.recipe.model)

    @cached_property
    def catalogue(self) -> Catalogue:
        """The catalogue of the model that was run."""
        return catalogue_of_model(self.stored.recipe.model)

    @property
    def model(self) -> Model:
        """The model that was run. Raises UnknownModel where it is gone or has other weights."""
        return self.models.of(self.stored.recipe)

    def tensor(self, address: Address) -> torch.Tensor:
        """One tensor, not to be changed. Raises UnknownSite, OutOfRange, or UnknownModel."""
        check_address(self.catalogue, self.stored, address)
        if str(address) in self.stored.tensors:
            return self.stored.tensors[str(address)]
        with own_threads():
            return self._replayer.tensor(self.model, self.stored, address)

    def masked(self, address: Address) -> torch.Tensor | None:
        """Where a tensor's cells are masked (True), broadcastable to it; None where none are."""
        by = self.catalogue.row(address.site).masked_by
        return None if by is None else ~self.tensor(Address(by, address.layer, address.step))

    def summary(self, address: Address) -> Summary:
        """Shape, dtype and statistics of one tensor."""
        return _summary(self, address)

    def locate(self, name: str, layer: int | None = None, step: int | None = None) -> Address:
        """The tensor of that name: an address, or another name with the layer and step that it leaves open.

        Every name may end in `@` and the step. Without a step, the first one in which the site exists is
        meant. Raises UnknownSite, AmbiguousName, InvalidAddress, or OutOfRange.
        """
        name, named_step = _with_step(name, self.catalogue)
        row, named = find(self.catalogue, name)
        named_layer = named.layer if named else None
        for word, said, given in (("layer", named_layer, layer), ("step", named_step, step)):
            if None not in (said, given) and said != given:
                raise InvalidAddress(f"The name {name!r} says {word} {said}, and {word}= says {given}.")
        layer = named_layer if layer is None else layer
        if layer is None and is_layered(row.site):
            raise InvalidAddress(
                f"{name!r} exists once in every layer.",
                hint=f"Say which: layer=0 to layer={self.stored.layers - 1}.",
            )
        step = named_step if step is None else step
        if step is None:
            step = next((n for n in range(self.stored.last_step + 1) if row.steps.cover(n)), 0)
        address = Address(row.site, layer, step)
        check_address(self.catalogue, self.stored, address)
        return address


@lru_cache(maxsize=1024)
def _summary(run: Run, address: Address) -> Summary:
    return summarize(run.tensor(address), run.masked(address))


def _with_step(name: str, catalogue: Catalogue) -> tuple[str, int | None]:
    """A name without the step at its end, and that step; the whole name where it is one that is known."""
    head, mark, tail = name.rpartition("@")
    if not mark or not (tail.isascii() and tail.isdigit() and len(tail) < 7):
        return name, None
    try:
        find(catalogue, head)
    except UnknownSite:
        return name, None
    return head, int(tail)


@contextmanager
def own_threads() -> Iterator[None]:
    """Give torch back the number of threads that the person's own work has."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
