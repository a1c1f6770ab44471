"""The application without its web pages: what the server's routes and the CLI both call.

What needs a model is the engine's, in this process or another; reading and keeping what was read is here.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable
from threading import Lock

import torch

from app.engine import Engine, LocalEngine
from app.jobs import Job, State
from app.limits import check_room, client_now
from app.memory import Memory
from app.settings import Settings
from app.uploads import Uploads
from provenance.attribution import Attribution
from provenance.catalogue import Catalogue
from provenance.catalogues import catalogue_named, check_predicts
from provenance.compare import Comparison, How, Recorded
from provenance.effect import Effect
from provenance.errors import InvalidInput
from provenance.lens import Distribution, Lens, Position, distribution, sequence
from provenance.models import catalogue_of_model
from provenance.names import Address
from provenance.places import sources_below, traces_below
from provenance.recorder import Check, Progress
from provenance.showcase import Showcase, read_showcase
from provenance.sources import Sources, default_sources
from provenance.storage import Store
from provenance.store import TraceStore
from provenance.summary import Summary, summarize
from provenance.trace import Recipe, Trace
from provenance.vectors import Vectors

EXAMPLE = "The quick brown fox jumps over the lazy dog"
EXAMPLE_STEPS = 3
_SUMMARIES = 2048
_LENSES = 32


class Explorer:
    """Traces, models and sources behind one door. Methods block; none may run on an event loop.

    Without a store, traces are files below the data directory; without an engine, it is in this process.
    """

    def __init__(self, settings: Settings, store: Store | None = None, engine: Engine | None = None) -> None:
        self.settings = settings
        self.store: Store = store or TraceStore(traces_below(settings.data_directory))
        self.sources: Sources = default_sources(
            sources_below(settings.cache_directory), settings.source_directories, network=False
        )
        self.uploads = Uploads(
            settings.data_directory / "uploads", settings.upload_limit_mib << 20, settings.uploads_total_mib << 20
        )
        self.engine: Engine = engine or LocalEngine(settings, self.store, self.uploads, self.sources)
        self.models = self.engine.models
        self.jobs = self.engine.jobs
        self.verifications = self.engine.verifications
        self.comparisons = self.engine.comparisons
        self._summaries: OrderedDict[tuple[str, str], Summary] = OrderedDict()
        self._lenses: OrderedDict[tuple[str, tuple[Position, ...], int], Lens] = OrderedDict()
        self._effects: OrderedDict[tuple[str, int], Effect] = OrderedDict()
        self._summed_up: Counter[str] = Counter()
        self._lock, self._submitting = Lock(), Lock()

    def close(self) -> None:
        """Finish what runs, drop what waits."""
        self.engine.close()

    # --- recording ---

    def plan(
        self,
        text: str | None = None,
        *,
        ids: Iterable[int] | None = None,
        steps: int = 0,
        model: str | None = None,
        dtype: str = "float32",
        seed: int = 0,
        temperature: float = 0.0,
        edits: Iterable[str] = (),
        vectors: Vectors | None = None,
    ) -> Recipe:
        """What a recording will be. Raises an InvalidInput with what is wrong, or NotFound."""
        name = model or self.settings.model
        return self.engine.plan(text, ids, steps, name, dtype, seed, temperature, edits, vectors or Vectors())

    def plan_edited(self, trace: Trace, text: str) -> Recipe:
        """A stored trace with one more edit. Raises as `plan` does, and UnknownModel where its model is gone."""
        return self.engine.plan_edited(trace, text)

    def submit(self, recipe: Recipe) -> Job:
        """Record in the background; a trace that is stored already is done at once. Raises Busy, LimitReached."""
        if recipe.id in self.store:
            return Job(recipe.id, recipe, State.DONE)
        with self._submitting:  # two at once would both find the last place free
            known = self.jobs.get(recipe.id)
            if known is None or known.state not in (State.QUEUED, State.RUNNING):
                check_room(self.store, [job.id for job in self.jobs.waiting()], self.settings)
            return self.jobs.submit(recipe, client_now())

    def record(self, recipe: Recipe, progress: Progress | None = None) -> Trace:
        """Record now, in this thread, unless the trace is stored already."""
        if recipe.id not in self.store:
            self.engine.record(recipe, progress)
        return self.store.open(recipe.id)

    def record_example(self) -> None:
        """Queue the example traces where no trace is stored yet."""
        if not self.settings.example or self.settings.read_only or any(self.store.ids()):
            return
        self.submit(self.plan(EXAMPLE, steps=EXAMPLE_STEPS))
        if showcase := self.showcase():
            self.submit(self.plan(showcase.prompt, steps=showcase.steps))

    def showcase(self) -> Showcase | None:
        """What is worth seeing first in the default model, where its checkpoint says so."""
        return read_showcase(self.models.known(self.settings.model).directory)

    def job(self, id: str) -> Job | None:
        """The recording of that id that has not become a readable trace, if there is one."""
        return self.jobs.get(id)

    def memory(self) -> Memory:
        """What is held in memory and can be forgotten."""
        return self.engine.memory()

    # --- reading ---

    def catalogue(self, trace: Trace | None = None, family: str = "") -> Catalogue:
        """The catalogue of a trace's model; without a trace that of a family, or the first one's."""
        return catalogue_of_model(trace.recipe.model) if trace else catalogue_named(family)

    def tensor(self, trace: Trace, address: Address) -> torch.Tensor:
        """One tensor of a trace. Raises UnknownSite, OutOfRange, or UnknownModel where it is gone."""
        kept = trace.tensors.get(str(address))
        return self.engine.tensor(trace, address) if kept is None else kept

    def check(self, trace: Trace, address: Address) -> Check:
        """Whether the replay around a tensor handed on exactly what the recording kept."""
        return self.engine.check(trace, address)

    def masked(self, trace: Trace, address: Address) -> torch.Tensor | None:
        """Where a tensor's cells are masked (True), broadcastable to it; None where none are."""
        by = self.catalogue(trace).row(address.site).masked_by
        if by is None:
            return None
        return ~self.tensor(trace, Address(by, address.layer, address.step))

    def summary(self, trace: Trace, address: Address) -> Summary:
        """Shape, dtype and statistics of one tensor."""
        key = (trace.id, str(address))
        with self._lock:
            if key in self._summaries:
                self._summaries.move_to_end(key)
                return self._summaries[key]
        summary = summarize(self.tensor(trace, address), self.masked(trace, address))
        with self._lock:
            self._summaries[key] = summary
            self._summed_up[trace.id] += 1
            while len(self._summaries) > _SUMMARIES:
                self._summaries.popitem(last=False)
        return summary

    def summary_at_hand(self, trace: Trace, address: Address) -> Summary | None:
        """A tensor's summary where nothing must be replayed for it: the tensor is kept, or was looked at."""
        with self._lock:
            known = self._summaries.get((trace.id, str(address)))
        kept = str(address) in trace.tensors and not self.catalogue(trace).row(address.site).masked_by
        return self.summary(trace, address) if known is None and kept else known

    def summed_up(self, id: str) -> int:
        """How often a tensor of a trace was summed up: what is at hand has not changed while this has not."""
        with self._lock:
            return self._summed_up.get(id, 0)

    @property
    def missing(self) -> int:
        """How often a model or a cited file was asked for and not here: each may be at the next time."""
        return self.models.refused + self.sources.missed

    def logits(self, trace: Trace, position: Position) -> torch.Tensor:
        """The recorded logits (V) of one position. Raises UnknownModel where the model is gone.

        This, and all that rests on logits, raises InvalidInput for a model that does not predict.
        """
        check_predicts(trace.recipe.model)
        return self.engine.logits(trace, position)

    def distribution(self, trace: Trace, position: Position, top: int) -> Distribution:
        """What the model predicts at a position; the token that really follows is watched."""
        logits = self.logits(trace, position)
        return distribution(logits, top, sequence(trace)[position.number + 1].id)

    def attribution(
        self, trace: Trace, position: Position, token: int | None = None, against: int | None = None
    ) -> Attribution:
        """What wrote a logit at a position: that of the most likely token where none is named."""
        check_predicts(trace.recipe.model)
        return self.engine.attribution(trace, position, token, against)

    def recorded(self, trace: Trace) -> Recorded:
        """A trace as one side of a comparison."""
        return self.comparisons.recorded(trace)

    def compare(
        self,
        a_id: str,
        b_id: str,
        relative: float | None = None,
        how: How | None = None,
        progress: Progress | None = None,
    ) -> Comparison:
        """Compare a trace with another, or with an uploaded file (`file:` and its id)."""
        return self.comparisons.compare(a_id, b_id, relative, how, progress)

    def lens(self, trace: Trace, positions: tuple[Position, ...], top: int) -> Lens:
        """What the residual stream predicts after every block, at some positions."""
        check_predicts(trace.recipe.model)
        key = (trace.id, positions, top)
        with self._lock:
            if key in self._lenses:
                self._lenses.move_to_end(key)
                return self._lenses[key]
        lens = self.engine.lens(trace, positions, top)
        with self._lock:
            self._lenses[key] = lens
            while len(self._lenses) > _LENSES:
                self._lenses.popitem(last=False)
        return lens

    def effect(self, trace: Trace, top: int = 5) -> Effect:
        """What the edits of a trace did. Raises InvalidInput without edits, UnknownTrace without its original."""
        if not trace.recipe.edits:
            raise InvalidInput(f"Trace {trace.id[:12]} has no edits, so there is no effect of them.")
        check_predicts(trace.recipe.model)
        key = (trace.id, top)
        with self._lock:
            if key in self._effects:
                self._effects.move_to_end(key)
                return self._effects[key]
        effect = self.engine.effect(trace, top)
        with self._lock:
            self._effects[key] = effect
            while len(self._effects) > _LENSES:
                self._effects.popitem(last=False)
        return effect
