"""The application without its web pages: what the server's routes and the CLI both call."""

from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import torch

from app.jobs import Job, Jobs, State
from app.settings import Settings
from app.verifications import Verifications
from provenance import verify
from provenance.catalogue import Catalogue
from provenance.errors import InvalidInput, InvalidPrompt
from provenance.families import FAMILIES
from provenance.lens import Distribution, Lens, Position, distribution, logit_lens, sequence
from provenance.model import Model
from provenance.models import CATALOGUES, Models, catalogue_of_model
from provenance.names import Address
from provenance.recorder import Check, Progress, Replayer, check_address, plan, record
from provenance.showcase import Showcase, read_showcase
from provenance.sources import Sources, default_sources
from provenance.store import TraceStore
from provenance.summary import Summary, summarize
from provenance.trace import Recipe, Trace
from provenance.verdict import Report

EXAMPLE = "The quick brown fox jumps over the lazy dog"
EXAMPLE_STEPS = 3
_SUMMARIES = 4096
_LENSES = 32


class Explorer:
    """Traces, models and sources behind one door. Methods block; none may run on an event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = TraceStore(settings.data_directory / "traces")
        self.models = Models(settings.model_directories, settings.model_memory_mib << 20)
        self.sources: Sources = default_sources(
            settings.cache_directory / "sources", settings.source_directories, network=False
        )
        self.replayer = Replayer(settings.replay_cache_mib << 20)
        self.jobs = Jobs(self._record, settings.queue_length)
        self.verifications = Verifications(self.store, self.prove)
        self._replay_worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="replay")
        self._summaries: OrderedDict[tuple[str, str], Summary] = OrderedDict()
        self._lenses: OrderedDict[tuple[str, tuple[Position, ...], int], Lens] = OrderedDict()
        self._lock = Lock()

    def close(self) -> None:
        """Finish what runs, drop what waits."""
        self.jobs.close()
        self.verifications.close()
        self._replay_worker.shutdown(wait=True, cancel_futures=True)

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
    ) -> Recipe:
        """What a recording will be. Raises an InvalidInput with what is wrong, or UnknownModel."""
        name = model or self.settings.model
        if steps > self.settings.steps_limit:
            raise InvalidInput(f"{steps} decode steps are more than the {self.settings.steps_limit} allowed here.")
        if text is not None and len(text.encode(errors="surrogatepass")) > self.settings.prompt_limit_bytes:
            raise InvalidPrompt(
                f"The prompt is longer than the {self.settings.prompt_limit_bytes} bytes allowed here."
            )
        prompt = self.models.encode(name, text or "") if ids is None else self.models.decode(name, ids)
        loaded = self.models.get(name, dtype)
        return plan(loaded, prompt, steps=steps, temperature=temperature, seed=seed)

    def submit(self, recipe: Recipe) -> Job:
        """Record in the background; a trace that is stored already is done at once."""
        if recipe.id in self.store:
            return Job(recipe.id, recipe, State.DONE)
        return self.jobs.submit(recipe)

    def record(self, recipe: Recipe, progress: Progress | None = None) -> Trace:
        """Record now, in this thread, unless the trace is stored already."""
        if recipe.id not in self.store:
            self._record(recipe, progress or (lambda done, total: None))
        return self.store.open(recipe.id)

    def record_example(self) -> None:
        """Queue the example traces where no trace is stored yet."""
        if not self.settings.example or any(self.store.ids()):
            return
        self.submit(self.plan(EXAMPLE, steps=EXAMPLE_STEPS))
        if showcase := self.showcase():
            self.submit(self.plan(showcase.prompt, steps=showcase.steps))

    def showcase(self) -> Showcase | None:
        """What is worth seeing first in the default model, where its checkpoint says so."""
        return read_showcase(self.models.checkpoints.known(self.settings.model).directory)

    def _record(self, recipe: Recipe, progress: Progress) -> None:
        model = self.models.of(recipe)
        ids, tensors = record(model, recipe, progress)
        self.store.save(recipe, self.models.tokens(recipe.model.name, ids), tensors)

    def job(self, id: str) -> Job | None:
        """The recording of that id that has not become a readable trace, if there is one."""
        return self.jobs.get(id)

    def prove(self, trace: Trace, progress: verify.Progress) -> Report:
        """Prove all that can be proven about a trace, in this thread."""
        family = FAMILIES[trace.recipe.model.family]
        return verify.verify(family, self.models.of(trace.recipe), trace, self.sources, progress)

    # --- reading ---

    def catalogue(self, trace: Trace | None = None) -> Catalogue:
        """The catalogue of a trace's model, or the first family's."""
        return catalogue_of_model(trace.recipe.model) if trace else next(iter(CATALOGUES.values()))

    def tensor(self, trace: Trace, address: Address) -> torch.Tensor:
        """One tensor of a trace. Raises UnknownSite, OutOfRange, or UnknownModel where it is gone."""
        check_address(self.catalogue(trace), trace, address)
        if str(address) in trace.tensors:
            return trace.tensors[str(address)]
        return self._replay_worker.submit(self._replay, trace, address).result()

    def _replay(self, trace: Trace, address: Address) -> torch.Tensor:
        model: Model = self.models.of(trace.recipe)
        return self.replayer.tensor(model, trace, address)

    def check(self, trace: Trace, address: Address) -> Check:
        """Whether the replay around a tensor handed on exactly what the recording kept."""
        check_address(self.catalogue(trace), trace, address)

        def work() -> Check:
            return self.replayer.segment(self.models.of(trace.recipe), trace, address).check

        return self._replay_worker.submit(work).result()

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
            while len(self._summaries) > _SUMMARIES:
                self._summaries.popitem(last=False)
        return summary

    def summary_at_hand(self, trace: Trace, address: Address) -> Summary | None:
        """A tensor's summary where nothing must be replayed for it: the tensor is kept, or was looked at."""
        with self._lock:
            known = self._summaries.get((trace.id, str(address)))
        kept = str(address) in trace.tensors and not self.catalogue(trace).row(address.site).masked_by
        return self.summary(trace, address) if known is None and kept else known

    def logits(self, trace: Trace, position: Position) -> torch.Tensor:
        """The recorded logits (V) of one position. Raises UnknownModel where the model is gone."""
        return self.tensor(trace, Address("logits", None, position.step))[0, position.index]

    def distribution(self, trace: Trace, position: Position, top: int) -> Distribution:
        """What the model predicts at a position; the token that really follows is watched."""
        follows = sequence(trace)[position.number + 1]
        return distribution(self.logits(trace, position), top, follows.id)

    def lens(self, trace: Trace, positions: tuple[Position, ...], top: int) -> Lens:
        """What the residual stream predicts after every block, at some positions."""
        key = (trace.id, positions, top)
        with self._lock:
            if key in self._lenses:
                self._lenses.move_to_end(key)
                return self._lenses[key]
        recorded = torch.stack([self.logits(trace, position) for position in positions])
        model = self.models.of(trace.recipe)
        lens = self._replay_worker.submit(logit_lens, model, trace, positions, recorded, top).result()
        with self._lock:
            self._lenses[key] = lens
            while len(self._lenses) > _LENSES:
                self._lenses.popitem(last=False)
        return lens
