"""The engine: everything that needs a model. One process has one; web workers without models ask it."""

from collections.abc import Iterable
from typing import Protocol

import torch

from app.comparing import Comparing, Comparisons
from app.jobs import Job, Jobs, Tally
from app.memory import Memory, memory_of
from app.one_thread import OneThread
from app.settings import Settings
from app.uploads import Uploads
from app.verifications import Verification, Verifications
from provenance import verification
from provenance.attribution import Attribution, attribute
from provenance.catalogue import Kind
from provenance.editing import Editor, patches_of
from provenance.edits import Edit, parse_edit
from provenance.effect import Effect, effect_of
from provenance.errors import InvalidInput, InvalidPrompt
from provenance.families import FAMILIES
from provenance.lens import Lens, Position, logit_lens
from provenance.model import Model, ModelInfo
from provenance.models import Models, catalogue_of_model
from provenance.names import Address, is_layered
from provenance.recorder import Check, Progress, Replayer, check_address, plan
from provenance.recording import record_into
from provenance.sources import Sources
from provenance.storage import Store
from provenance.trace import Recipe, Trace
from provenance.vectors import Vectors
from provenance.verdict import Report


class Recordings(Protocol):
    """Recordings that wait, run, or failed."""

    def get(self, id: str) -> Job | None:
        """The recording of that trace id, if there is one."""

    def submit(self, recipe: Recipe, client: str = "") -> Job:
        """Queue a recording; the same one is queued once. Raises Busy, or LimitReached for one client."""

    def tally(self) -> Tally:
        """How many wait, run, and have ended."""

    def waiting(self) -> tuple[Job, ...]:
        """Recordings that have not ended, in the order in which they run."""

    def cancel(self, id: str) -> Job | None:
        """Stop a recording; it ends as failed, with the error "cancelled"."""


class Proofs(Protocol):
    """Verifications that wait, run or failed, and their reports."""

    def report(self, trace: Trace) -> Report | None:
        """The stored report, or None where the trace was not verified by this version."""

    def under_way(self, id: str) -> Verification | None:
        """The verification of that trace that has not become a report, if there is one."""

    def state(self, trace: Trace) -> Verification | None:
        """What became of the verification of a trace; None where nobody asked for one."""

    def submit(self, trace: Trace) -> Verification:
        """Verify in the background. Raises Unavailable."""

    def verify(self, trace: Trace, progress: verification.Progress) -> Report:
        """Verify now and store the report; an engine in another process tells of no progress."""


class Engine(Protocol):
    """Everything that needs a model. Methods block; none may run on an event loop.

    Where the engine is not there, every method raises Unavailable.
    """

    @property
    def models(self) -> Models:
        """Models by name, and their tokens; whether it can load them is the engine's own matter."""

    @property
    def jobs(self) -> Recordings:
        """Its recordings."""

    @property
    def verifications(self) -> Proofs:
        """Its verifications."""

    @property
    def comparisons(self) -> Comparing:
        """Its comparisons."""

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
        """What a recording will be. Raises an InvalidInput with what is wrong, or NotFound."""

    def plan_edited(self, trace: Trace, text: str) -> Recipe:
        """A stored trace with one more edit. Raises as `plan`, and UnknownModel where its model is gone."""

    def record(self, recipe: Recipe, progress: Progress | None = None) -> None:
        """Record now and store the trace; an engine in another process tells of no progress."""

    def tensor(self, trace: Trace, address: Address) -> torch.Tensor:
        """One tensor of a trace. Raises UnknownSite, OutOfRange, or UnknownModel where it is gone."""

    def logits(self, trace: Trace, position: Position) -> torch.Tensor:
        """The recorded logits (V) of one position."""

    def check(self, trace: Trace, address: Address) -> Check:
        """Whether the replay around a tensor handed on exactly what the recording kept."""

    def lens(self, trace: Trace, positions: tuple[Position, ...], top: int) -> Lens:
        """What the residual stream predicts after every block, at some positions."""

    def effect(self, trace: Trace, top: int) -> Effect:
        """What the edits of a trace did. Raises UnknownTrace without its original."""

    def attribution(self, trace: Trace, position: Position, token: int | None, against: int | None) -> Attribution:
        """What wrote a logit at a position: that of the most likely token where none is named."""

    def output_edits(self, trace: Trace) -> tuple[Edit, ...]:
        """The edits that act where the residual stream becomes logits. Raises UnknownModel."""

    def loaded(self) -> tuple[ModelInfo, ...]:
        """The models in memory, the most recently used last."""

    def memory(self) -> Memory:
        """What is held in memory and can be forgotten."""

    def close(self) -> None:
        """Finish what runs, drop what waits."""


class LocalEngine:
    """The engine in this process."""

    def __init__(self, settings: Settings, store: Store, uploads: Uploads, sources: Sources) -> None:
        self._settings = settings
        self._store = store
        self._sources = sources
        self.models = Models(settings.model_directories, settings.model_memory_mib << 20)
        self.replayer = Replayer(settings.replay_cache_mib << 20)
        self.jobs = Jobs(
            self.record, settings.queue_length, settings.client_traces_waiting, settings.client_traces_per_hour
        )
        self.verifications = Verifications(store, self.prove)
        self._worker = OneThread("replay")
        self.comparisons = Comparisons(store, self.models, self._worker, uploads.open)

    def close(self) -> None:
        self.jobs.close(self._settings.shutdown_seconds)
        self.verifications.close()
        self._worker.close()

    # --- recording ---

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
        limit = self._settings.prompt_limit_bytes
        if steps > self._settings.steps_limit:
            raise InvalidInput(f"{steps} decode steps are more than the {self._settings.steps_limit} allowed here.")
        if text is not None and len(text.encode(errors="surrogatepass")) > limit:
            raise InvalidPrompt(f"The prompt is longer than the {limit} bytes allowed here.")
        prompt, drawn = self.models.prompt(model, text, ids, vectors)
        loaded = self.models.get(model, dtype)
        read = self._edits(loaded, steps, edits)
        return plan(loaded, prompt, steps=steps, temperature=temperature, seed=seed, edits=read, drawn=drawn)

    def plan_edited(self, trace: Trace, text: str) -> Recipe:
        model, recipe = self.models.of(trace.recipe), trace.recipe
        edits = (*recipe.edits, *self._edits(model, recipe.steps, [text]))
        changed = plan(
            model, recipe.prompt, steps=recipe.steps, temperature=recipe.temperature, seed=recipe.seed,
            threads=recipe.threads, edits=edits, drawn=recipe.drawn,
        )  # fmt: skip
        patches = patches_of(model.catalogue, changed, self._read)
        editor = Editor.of(model.catalogue, changed, patches)
        for step in {int(key.partition("@")[2]) for key in patches if key.startswith(f"{len(recipe.edits)}@")}:
            # What does not fit is said now, and not in the middle of the recording.
            address = Address.parse(f"{edits[-1].place}@{step}")
            editor.changed(address, self.tensor(trace, address))
        return changed

    def _edits(self, model: Model, steps: int, texts: Iterable[str]) -> list[Edit]:
        return [parse_edit(model.catalogue, model.layers, steps, text, self._store.full_id) for text in texts]

    def record(self, recipe: Recipe, progress: Progress | None = None) -> None:
        record_into(self._store, self.models, recipe, self._read, progress)

    def _read(self, id: str, address: Address) -> tuple[Trace, torch.Tensor]:
        trace = self._store.open(id)
        return trace, self.tensor(trace, address)

    def prove(self, trace: Trace, progress: verification.Progress) -> Report:
        """Prove all that can be proven about a trace, in this thread."""
        family = FAMILIES[trace.recipe.model.family]
        return verification.verify(family, self.models.of(trace.recipe), trace, self._sources, progress)

    # --- reading ---

    def tensor(self, trace: Trace, address: Address) -> torch.Tensor:
        check_address(catalogue_of_model(trace.recipe.model), trace, address)
        if str(address) in trace.tensors:
            return trace.tensors[str(address)]
        return self._worker.submit(self._replay, trace, address).result()

    def _replay(self, trace: Trace, address: Address) -> torch.Tensor:
        return self.replayer.tensor(self.models.of(trace.recipe), trace, address)

    def logits(self, trace: Trace, position: Position) -> torch.Tensor:
        return self.tensor(trace, Address("logits", None, position.step))[0, position.index]

    def check(self, trace: Trace, address: Address) -> Check:
        check_address(catalogue_of_model(trace.recipe.model), trace, address)

        def work() -> Check:
            return self.replayer.segment(self.models.of(trace.recipe), trace, address).check

        return self._worker.submit(work).result()

    def lens(self, trace: Trace, positions: tuple[Position, ...], top: int) -> Lens:
        recorded = torch.stack([self.logits(trace, position) for position in positions])
        model = self.models.of(trace.recipe)
        return self._worker.submit(logit_lens, model, trace, positions, recorded, top).result()

    def effect(self, trace: Trace, top: int) -> Effect:
        original = self._store.open(trace.recipe.unedited.id)
        model = self.models.of(trace.recipe)
        return self._worker.submit(effect_of, model, original, trace, self._replay, top).result()

    def attribution(self, trace: Trace, position: Position, token: int | None, against: int | None) -> Attribution:
        model = self.models.of(trace.recipe)
        return attribute(model, trace, position, token, lambda address: self.tensor(trace, address), against)

    def output_edits(self, trace: Trace) -> tuple[Edit, ...]:
        if not trace.recipe.edits:
            return ()
        model = self.models.of(trace.recipe)
        return tuple(edit for edit in trace.recipe.edits if _in_output(model, edit))

    def loaded(self) -> tuple[ModelInfo, ...]:
        return tuple(model.info for model in self.models.loaded())

    def memory(self) -> Memory:
        return memory_of(self.models, self.replayer)


def _in_output(model: Model, edit: Edit) -> bool:
    last = model.segments[-1]
    if model.segment_of(edit.address) == last:
        return True
    row = model.catalogue.row(edit.address.site)
    if row.kind is not Kind.PARAMETER or edit.address.layer is not None:
        return False
    readers = (reader for reader in model.catalogue.readers(row.site) if not is_layered(reader.site))
    return any(model.segment_of(Address(reader.site)) == last for reader in readers)
