"""The engine of another process, asked over a channel: what a web worker without models has."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from threading import Lock
from typing import Any

import torch

from app.channel import Answering, Asking, Endpoint
from app.comparing import Comparing
from app.engine import Engine
from app.jobs import Job, Tally
from app.memory import Memory
from app.settings import Settings
from app.verifications import Reports, Verification
from provenance.attribution import Attribution
from provenance.compare import Comparison, How, Recorded
from provenance.edits import Edit
from provenance.effect import Effect
from provenance.errors import Unavailable, UnknownModel
from provenance.lens import Lens, Position
from provenance.model import Model, ModelInfo
from provenance.models import Models, catalogue_of_model
from provenance.names import Address
from provenance.recorder import Check, Progress
from provenance.storage import Store
from provenance.trace import Recipe, Trace
from provenance.vectors import Vectors
from provenance.verdict import Report
from provenance.verification import Progress as Proving

CALLS = (
    "plan", "plan_edited", "record", "tensor", "logits", "check", "lens", "effect", "attribution", "output_edits",
    "loaded", "memory", "jobs.get", "jobs.submit", "jobs.waiting", "jobs.cancel", "jobs.tally",
    "verifications.under_way", "verifications.state", "verifications.submit", "verifications.verify",
    "comparisons.compare",
)  # fmt: skip
"""What an engine answers. Whatever else it has stays in its process."""


def answering(engine: Engine, endpoint: Endpoint, store: Store) -> Answering:
    """Let other processes ask an engine, until it is closed."""
    calls: Mapping[str, Callable[..., object]] = {name: attrgetter(name)(engine) for name in CALLS}
    return Answering(endpoint, calls, store)


class RemoteEngine:
    """An engine in another process. Tensors that were asked for are kept for a while."""

    def __init__(self, settings: Settings, store: Store, endpoint: Endpoint, cache_bytes: int = 0) -> None:
        self._asking = Asking(endpoint, store)
        self._tensors = _Tensors(cache_bytes)
        self.models: Models = _Names(settings.model_directories)
        self.jobs = _Recordings(self._ask)
        self.verifications = _Proofs(store, self._ask)
        self.comparisons = _Comparisons(self)

    def close(self) -> None:
        self._asking.close()

    def _ask(self, name: str, *args: object) -> Any:
        try:
            return self._asking.call(name, *args)
        except UnknownModel:
            self.models.refused += 1
            raise

    def plan(
        self,
        text: str | None,
        ids: Iterable[int] | None,
        steps: int,
        model: str,
        dtype: str,
        seed: int,
        temperature: float,
        edits: Iterable[str],
        vectors: Vectors,
    ) -> Recipe:
        given = None if ids is None else tuple(ids)
        recipe: Recipe = self._ask("plan", text, given, steps, model, dtype, seed, temperature, tuple(edits), vectors)
        return recipe

    def plan_edited(self, trace: Trace, text: str) -> Recipe:
        recipe: Recipe = self._ask("plan_edited", trace, text)
        return recipe

    def record(self, recipe: Recipe, progress: Progress | None = None) -> None:
        self._ask("record", recipe)

    def tensor(self, trace: Trace, address: Address) -> torch.Tensor:
        return self._tensors.get((trace.id, str(address)), lambda: self._ask("tensor", trace, address))

    def logits(self, trace: Trace, position: Position) -> torch.Tensor:
        logits: torch.Tensor = self._ask("logits", trace, position)
        return logits

    def check(self, trace: Trace, address: Address) -> Check:
        check: Check = self._ask("check", trace, address)
        return check

    def lens(self, trace: Trace, positions: tuple[Position, ...], top: int) -> Lens:
        lens: Lens = self._ask("lens", trace, positions, top)
        return lens

    def effect(self, trace: Trace, top: int) -> Effect:
        effect: Effect = self._ask("effect", trace, top)
        return effect

    def attribution(self, trace: Trace, position: Position, token: int | None, against: int | None) -> Attribution:
        found: Attribution = self._ask("attribution", trace, position, token, against)
        return found

    def output_edits(self, trace: Trace) -> tuple[Edit, ...]:
        edits: tuple[Edit, ...] = self._ask("output_edits", trace)
        return edits

    def loaded(self) -> tuple[ModelInfo, ...]:
        models: tuple[ModelInfo, ...] = self._ask("loaded")
        return models

    def memory(self) -> Memory:
        memory: Memory = self._ask("memory")
        return memory

    def compare(self, a: str, b: str, relative: float | None, how: How | None) -> Comparison:
        """Compare where the models are; its results are kept there."""
        found: Comparison = self._ask("comparisons.compare", a, b, relative, how)
        return found


class _Names(Models):
    """The models by name, with their tokenizers; none is ever loaded here."""

    def get(self, name: str, dtype: str = "float32") -> Model:
        raise Unavailable("Models are in the engine's memory, not in this process.")


class _Recordings:
    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    def get(self, id: str) -> Job | None:
        job: Job | None = self._ask("jobs.get", id)
        return job

    def submit(self, recipe: Recipe, client: str = "") -> Job:
        job: Job = self._ask("jobs.submit", recipe, client)
        return job

    def tally(self) -> Tally:
        tally: Tally = self._ask("jobs.tally")
        return tally

    def waiting(self) -> tuple[Job, ...]:
        jobs: tuple[Job, ...] = self._ask("jobs.waiting")
        return jobs

    def cancel(self, id: str) -> Job | None:
        job: Job | None = self._ask("jobs.cancel", id)
        return job


class _Proofs(Reports):
    """Reports are read here, from the store; proving is the engine's."""

    def __init__(self, store: Store, ask: Callable[..., Any]) -> None:
        super().__init__(store)
        self._ask = ask

    def under_way(self, id: str) -> Verification | None:
        under_way: Verification | None = self._ask("verifications.under_way", id)
        return under_way

    def state(self, trace: Trace) -> Verification | None:
        state: Verification | None = self._ask("verifications.state", trace)
        return state

    def submit(self, trace: Trace) -> Verification:
        asked: Verification = self._ask("verifications.submit", trace)
        return asked

    def verify(self, trace: Trace, progress: Proving) -> Report:
        report: Report = self._ask("verifications.verify", trace)
        return report


class _Comparisons(Comparing):
    def __init__(self, engine: RemoteEngine) -> None:
        self._engine = engine

    def recorded(self, trace: Trace) -> Recorded:
        def tensor(address: Address) -> torch.Tensor:
            return self._engine.tensor(trace, address)

        catalogue = catalogue_of_model(trace.recipe.model)
        return Recorded(trace, catalogue, trace.layers, tensor, trace.id[:12])

    def compare(
        self,
        a: str,
        b: str,
        relative: float | None = None,
        how: How | None = None,
        progress: Progress | None = None,
    ) -> Comparison:
        return self._engine.compare(a, b, relative, how)


class _Tensors:
    """The tensors that were used last, within a budget of bytes. A trace's id determines them."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._bytes = 0
        self._kept: OrderedDict[tuple[str, str], torch.Tensor] = OrderedDict()
        self._lock = Lock()

    def get(self, key: tuple[str, str], ask: Callable[[], torch.Tensor]) -> torch.Tensor:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        tensor = ask()
        if tensor.nbytes > self._budget_bytes:
            return tensor
        with self._lock:
            if key not in self._kept:
                self._kept[key] = tensor
                self._bytes += tensor.nbytes
            while self._bytes > self._budget_bytes:
                self._bytes -= self._kept.popitem(last=False)[1].nbytes
        return tensor
