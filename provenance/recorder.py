"""Recording a model's run, and giving back every tensor of it.

Recording keeps little: what enters and leaves each segment. Any other tensor is computed again
by running its segment alone, from exactly the inputs it had, under the same number of threads.
What such a replay hands on is compared with what was kept, bit for bit.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from pydantic import ValidationError

from provenance.axes import Counts
from provenance.catalogue import Catalogue, Kind
from provenance.editing import Editor
from provenance.edits import MOST_EDITS, Edit
from provenance.errors import InvalidInput, InvalidPrompt, OutOfRange, PromptTooLong
from provenance.model import Model
from provenance.names import Address
from provenance.prompt import Drawn, Prompt
from provenance.selection import check_picks
from provenance.trace import Recipe, TokenRecord, Trace

Progress = Callable[[int, int], None]
"""Called with the number of segments done and the number of all."""


MOST_BYTES = 64 << 20
"""The largest tensor that a run on vectors may have, at 4 bytes a value: batch and length multiply in it."""


@dataclass(frozen=True, slots=True)
class Check:
    """Whether a replay handed on what the recording kept.

    `largest_difference` is 0.0 where all of it is equal bit for bit. `compared` counts the
    tensors that were compared; 0 for a segment whose results no trace keeps.
    """

    compared: int
    bit_for_bit: bool
    largest_difference: float


@dataclass(frozen=True, slots=True)
class Replayed:
    """All tensors of one segment at one step, by place, and the check of the replay."""

    tensors: Mapping[str, torch.Tensor]
    check: Check
    bytes: int


def plan(
    model: Model,
    prompt: Prompt,
    *,
    steps: int = 0,
    temperature: float = 0.0,
    seed: int = 0,
    threads: int | None = None,
    edits: Sequence[Edit] = (),
    drawn: Drawn | None = None,
) -> Recipe:
    """What a recording will be, with its id, before it runs. `drawn` is for a model that reads no tokens.

    Raises InvalidPrompt for ids outside the vocabulary, PromptTooLong with the counts, InvalidInput for
    steps, a temperature, a seed, threads or a size out of range, and OutOfRange for an edit outside the run.
    """
    if not prompt.tokens:
        raise InvalidPrompt("The prompt is empty.", hint="Give at least one token of text.")
    outside = [id for id in prompt.ids if not 0 <= id < model.vocabulary]
    if outside and drawn is not None:
        raise InvalidPrompt(f"There is no vector #{outside[0]}: each batch entry has {model.vocabulary}, from #0 on.")
    if outside:
        raise InvalidPrompt(f"Token id {outside[0]} lies outside this model's vocabulary of {model.vocabulary}.")
    if not model.predicts and (steps or temperature):
        lacks, hint = ("decode steps", "0 steps") if steps else ("temperature of its choices", "a temperature of 0")
        raise InvalidInput(f"{model.info.name!r} predicts nothing, so it has no {lacks}.", hint=f"Ask for {hint}.")
    if drawn is not None and len(prompt.tokens) > model.context:
        raise InvalidInput(f"{len(prompt.tokens)} vectors are more than the {model.context} that this model reads.")
    if drawn is not None:
        _check_size(model, len(prompt.tokens), drawn.batch)
    if len(prompt.tokens) + steps > model.context:
        raise PromptTooLong(len(prompt.tokens), steps, model.context)
    if len(edits) > MOST_EDITS:
        raise InvalidInput(f"{len(edits)} edits are more than the {MOST_EDITS} that one run can have.")
    for edit in edits:
        row = model.catalogue.row(edit.address.site)
        batch = drawn.batch if drawn else 1
        check_picks(model.catalogue, row, edit.picks, model.constants, len(prompt.tokens) + steps, batch)
    try:
        return Recipe(
            model=model.info,
            text=prompt.text,
            tokens=tuple(TokenRecord.of(token) for token in prompt.tokens),
            steps=steps,
            temperature=temperature,
            seed=seed,
            threads=threads or torch.get_num_threads(),
            torch=torch.__version__,
            edits=tuple(edits),
            drawn=drawn,
        )
    except ValidationError as error:
        wrong = error.errors()[0]
        raise InvalidInput(
            f"This cannot be recorded: {wrong['loc'][0]} = {wrong['input']!r} ({wrong['msg']})."
        ) from None


def _check_size(model: Model, length: int, batch: int) -> None:
    """Raise InvalidInput where a tensor of a run on vectors would be too large, counted in 4 bytes a value."""
    run = {Counts.BATCH: batch, Counts.TOKEN: length, Counts.PAST: 0, Counts.KEY: length}
    for row in model.catalogue:
        if row.kind is Kind.PARAMETER:
            continue
        axes = [model.catalogue.axes[symbol] for symbol in row.shape]
        shape = [run[axis.counts] if axis.counts in run else model.constants[axis.symbol] for axis in axes]
        if (size := 4 * math.prod(shape)) > MOST_BYTES:
            raise InvalidInput(
                f"This run is too large: {row.site} alone, {' × '.join(map(str, shape))}, would take "
                f"{-(-size >> 20)} MiB, and {MOST_BYTES >> 20} MiB are the most.",
                hint="Ask for a smaller batch or fewer positions.",
            )


@torch.inference_mode()
def record(
    model: Model,
    recipe: Recipe,
    progress: Progress | None = None,
    patches: Mapping[str, torch.Tensor] | None = None,
) -> tuple[tuple[int, ...], dict[str, torch.Tensor]]:
    """Run a recipe: the ids chosen at the end of each step, and the kept tensors by address.

    `patches` are the cells that its edits put in, as `patches_of` gives them.
    """
    editor = Editor.of(model.catalogue, recipe, patches or {})
    torch.set_num_threads(recipe.threads)
    generator = torch.Generator().manual_seed(recipe.seed)
    chosen: list[int] = []
    steps: list[dict[str, torch.Tensor]] = []
    done, total = 0, len(model.segments) * (recipe.steps + 1)
    for step in range(recipe.steps + 1):
        ids = [chosen[-1]] if step else [token.id for token in recipe.tokens]
        kept = model.begin(torch.tensor([ids]), recipe.drawn)
        for segment in model.segments:
            kept |= model.run(segment, kept, steps, editor.tap(step))
            done += 1
            if progress:
                progress(done, total)
        if model.predicts:
            chosen.append(_choose(kept.pop("logits")[0, -1], recipe.temperature, generator))
        steps.append(kept)
    named = {
        str(Address.parse(f"{place}@{step}")): tensor
        for step, kept in enumerate(steps)
        for place, tensor in kept.items()
    }
    return tuple(chosen), named


def _choose(logits: torch.Tensor, temperature: float, generator: torch.Generator) -> int:
    """The next token from logits (V): the largest, or drawn at a temperature over 0."""
    if not temperature:
        return int(logits.argmax())
    # Below the maximum first: a tiny temperature then gives -inf, which is certain, not inf - inf.
    odds = torch.softmax((logits.double() - logits.max()) / temperature, dim=-1)
    return int(torch.multinomial(odds, 1, generator=generator))


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal bit for bit: NaN is equal to the same NaN, and 0 is not -0."""
    a, b = one.contiguous(), other.contiguous()
    return a.shape == b.shape and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


class Replayer:
    """Gives back any tensor of a trace, and keeps recent segments within a budget of bytes."""

    def __init__(self, budget_bytes: int = 1 << 30) -> None:
        self.budget_bytes = budget_bytes
        self._cache: OrderedDict[tuple[str, int, str], Replayed] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """What is kept now."""
        with self._lock:
            return sum(replayed.bytes for replayed in self._cache.values())

    def tensor(self, model: Model, trace: Trace, address: Address) -> torch.Tensor:
        """One tensor of a trace. Raises UnknownSite, or OutOfRange for what the trace lacks."""
        check_address(model.catalogue, trace, address)
        if str(address) in trace.tensors:
            return trace.tensors[str(address)]
        return self.segment(model, trace, address).tensors[address.place]

    def segment(self, model: Model, trace: Trace, address: Address) -> Replayed:
        """All tensors of the segment in which an address lies."""
        segment = model.segment_of(address)
        key = (trace.id, address.step, segment)
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
        replayed = replay(model, trace, segment, address.step)
        with self._lock:
            self._cache[key] = replayed
            while len(self._cache) > 1 and sum(r.bytes for r in self._cache.values()) > self.budget_bytes:
                self._cache.popitem(last=False)
        return replayed


def check_address(catalogue: Catalogue, trace: Trace, address: Address) -> None:
    """Raise UnknownSite or OutOfRange where a trace has no such tensor."""
    row = catalogue.row(address.site)
    trace.check(step=address.step, layer=address.layer)
    if not row.steps.cover(address.step):
        raise OutOfRange(
            f"{address.place} does not exist in step {address.step}: it exists in {row.steps.value}.",
            hint=f"Ask for step {1 if address.step == 0 else 0}." if trace.last_step or address.step else
            "Record the prompt with at least one decode step.",
        )  # fmt: skip


@torch.inference_mode()
def replay(model: Model, trace: Trace, segment: str, step: int) -> Replayed:
    """Run one segment of a trace again, with every tensor tapped, and check what it hands on."""
    torch.set_num_threads(trace.recipe.threads)
    tensors: dict[str, torch.Tensor] = {}

    def tap(place: str, tensor: torch.Tensor) -> torch.Tensor:
        tensors[place] = tensor
        return tensor

    kept = trace.kept(step)
    editor = Editor.of(model.catalogue, trace.recipe, trace.patches)
    handed_on = model.run(segment, kept, trace.earlier(step), editor.tap(step, tap))
    pairs = [(tensor, kept[place]) for place, tensor in handed_on.items() if place in kept]
    equal = all(_same_bits(ours, theirs) for ours, theirs in pairs)
    largest = 0.0 if equal else max(float((a.double() - b.double()).abs().max()) for a, b in pairs)
    rows = model.catalogue.rows
    size = sum(
        tensor.nbytes
        for place, tensor in tensors.items()
        if rows[Address.parse(place).site].kind is not Kind.PARAMETER
    )
    return Replayed(tensors, Check(len(pairs), equal, largest), size)
