"""Recording and opening traces from Python, in the same store that the explorer shows."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import overload

import torch

from provenance import places
from provenance.edits import parse_edit
from provenance.inputs import unquoted
from provenance.models import Models
from provenance.names import Address
from provenance.notebook.cards import card, code, plural, table
from provenance.notebook.results import Verification
from provenance.notebook.run import Run, own_threads
from provenance.notebook.trace import Trace
from provenance.recorder import Replayer, plan
from provenance.recording import record_into
from provenance.store import Listed, TraceStore
from provenance.trace import Trace as Stored
from provenance.vectors import Vectors

_SHOWN = 12


class Traces(Sequence[Trace]):
    """Stored traces, the newest first; each is read when it is asked for."""

    def __init__(self, listed: Iterable[Listed], workspace: "Workspace") -> None:
        self._listed = tuple(entry for entry in listed if entry.record is not None)
        self._workspace = workspace

    @overload
    def __getitem__(self, index: int) -> Trace: ...

    @overload
    def __getitem__(self, index: slice) -> "Traces": ...

    def __getitem__(self, index: int | slice) -> "Trace | Traces":
        if isinstance(index, slice):
            return Traces(self._listed[index], self._workspace)
        return self._workspace.open_trace(self._listed[index].id)

    def __len__(self) -> int:
        return len(self._listed)

    def _rows(self) -> Iterator[tuple[str, str, str, str]]:
        for entry in self._listed:
            assert entry.record is not None
            recipe = entry.record.recipe
            yield entry.id[:12], recipe.model.name, unquoted(recipe), str(recipe.steps)

    def __repr__(self) -> str:
        rows = list(self._rows())
        shown = [f"  {id} {model}: {text[:60]!r}" for id, model, text, _ in rows[:_SHOWN]]
        more = [f"  and {len(rows) - _SHOWN} more"] if len(rows) > _SHOWN else []
        return "\n".join([f"<{plural(len(rows), 'trace')}>", *shown, *more])

    def _repr_html_(self) -> str:
        rows = ((code(id), model, text[:90], steps) for id, model, text, steps in self._rows())
        return card(table(("Trace", "Model", "Prompt", "Steps"), rows))


class Workspace:
    """Traces in one directory, and the models of this process. The functions of `provenance` use a usual one."""

    def __init__(self, data: Path, model_directories: Iterable[Path] = ()) -> None:
        self.store = TraceStore(places.traces_below(data))
        self.models = Models(model_directories)
        self._replayer = Replayer()

    def record(
        self,
        prompt: str | Iterable[int] | None = None,
        *,
        model: str = "demo",
        steps: int = 0,
        dtype: str = "float32",
        temperature: float = 0.0,
        seed: int = 0,
        edits: Iterable[str] = (),
        length: int | None = None,
        batch: int | None = None,
        input_seed: int | None = None,
    ) -> Trace:
        """Run a prompt, or seeded vectors; see `provenance.record`."""
        text, ids = (prompt, None) if isinstance(prompt, str) else (None, prompt)
        encoded, drawn = self.models.prompt(model, text, ids, Vectors(length, batch, input_seed))
        loaded = self.models.get(model, dtype)
        changes = [parse_edit(loaded.catalogue, loaded.layers, steps, text, self.store.full_id) for text in edits]
        recipe = plan(loaded, encoded, steps=steps, temperature=temperature, seed=seed, edits=changes, drawn=drawn)
        if recipe.id not in self.store:
            with own_threads():
                record_into(self.store, self.models, recipe, self._read)
        return self.open_trace(recipe.id)

    def _read(self, id: str, address: Address) -> tuple[Stored, torch.Tensor]:
        run = self._run(id)
        return run.stored, run.tensor(address)

    def _run(self, id: str) -> Run:
        return Run(self.store.open(id), self.store, self.models, self._replayer)

    def open_trace(self, id: str) -> Trace:
        """A stored trace; see `provenance.open_trace`."""
        return Trace(self._run(id))

    def traces(self) -> Traces:
        """All stored traces that can be read, the newest first."""
        return Traces(self.store.list(), self)


def record(
    prompt: str | Iterable[int] | None = None,
    *,
    model: str = "demo",
    steps: int = 0,
    dtype: str = "float32",
    temperature: float = 0.0,
    seed: int = 0,
    edits: Iterable[str] = (),
    length: int | None = None,
    batch: int | None = None,
    input_seed: int | None = None,
) -> Trace:
    """Run a text, or token ids, on a model, and keep the trace; one that is stored already is opened.

    A model that reads no text runs on vectors drawn from `input_seed`, `length` of them in each of `batch`
    entries; ids are their numbers then. `steps` are decode steps after the prompt. `edits` change tensors on the
    way, each written as `h.3.attn.pattern[head=2]=0`. Raises UnknownModel, InvalidPrompt, PromptTooLong or
    InvalidInput, and what an edit can raise.
    """
    return _usual().record(
        prompt, model=model, steps=steps, dtype=dtype, temperature=temperature, seed=seed, edits=edits,
        length=length, batch=batch, input_seed=input_seed,
    )  # fmt: skip


def open_trace(id: str) -> Trace:
    """A stored trace by its id, or by its first digits, 6 or more. Raises UnknownTrace or CorruptTrace."""
    return _usual().open_trace(id)


def traces() -> Traces:
    """All stored traces that can be read, the newest first."""
    return _usual().traces()


def verify(trace: Trace) -> Verification:
    """Prove all that can be proven about a trace: its cited files are run, and every value is recomputed."""
    return trace.verify()


def _usual() -> Workspace:
    return _workspace(places.data_directory(), places.model_directories())


@lru_cache(maxsize=4)
def _workspace(data: Path, model_directories: tuple[Path, ...]) -> Workspace:
    return Workspace(data, model_directories)
