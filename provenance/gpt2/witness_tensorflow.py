"""OpenAI's file as a witness on real TensorFlow, beside the one that runs it on a stand-in."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from torch import Tensor, cat

from provenance.catalogue import Point
from provenance.gpt2.catalogue import CATALOGUE
from provenance.gpt2.config import Config
from provenance.gpt2.witnesses import OpenAIWitness, as_gpt2, hyperparameters, weights_by_scope
from provenance.model import Model
from provenance.witness.tensorflow_real import Extent, Program
from provenance.witness.testimony import Observe
from provenance.witness.tracer import Kind, Observation, Stack


class Pick(NamedTuple):
    """Which operation of a line holds a site: its type, its number among those, and its output."""

    type: str
    number: int = 0
    output: int = 0


PICKS: Mapping[str, Pick] = {
    "embed.tokens": Pick("GatherV2", 0),
    "embed.positions": Pick("GatherV2", 1),
    "h.attn.q": Pick("Transpose", 0),
    "h.attn.k": Pick("Transpose", 1),
    "h.attn.v": Pick("Transpose", 2),
    "h.attn.pk": Pick("Unpack", output=0),
    "h.attn.pv": Pick("Unpack", output=1),
}
"""The sites of lines that hold several."""

_PASTS_LINE = 161
"""Here one operation makes what the loop of the site's own line hands out, layer by layer."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A tensor of the graph, and the point of the catalogue that it stands for."""

    point: Point
    stack: Stack
    occurrence: int
    tensor: Any

    def observation(self, value: Tensor) -> Observation:
        """What a tracer would have reported of it."""
        point, kind = self.point, cast("Kind", self.point.kind)
        return Observation(point.function, point.line, kind, point.expression, self.stack, self.occurrence, value)


class OpenAITensorFlowWitness(OpenAIWitness):
    """openai/gpt-2's model.py, unmodified, on TensorFlow itself."""

    label = "tensorflow"
    packages: tuple[str, ...] = ("tensorflow",)
    complete = False

    def testify(
        self, model: Model, steps: Sequence[Tensor], source: bytes, observe: Observe, lines: set[int]
    ) -> None:
        """Build a graph of the prefill and one of a decode step, and run them for each step's tokens."""
        gpt2 = as_gpt2(model)
        with Program(source, f"{self.pin.key}@{self.pin.revision[:12]}") as program:
            forward = _Forward(program, gpt2.config, len(steps[0]), lines)
            program.assign(weights_by_scope(gpt2))
            past = _run(program, forward, 0, steps[0], None, observe)
            if len(steps) > 1:
                forward = _Forward(program, gpt2.config, len(steps[0]), lines, decodes=True)
            for step, tokens in enumerate(steps[1:], 1):
                past = cat((past, _run(program, forward, step, tokens, past, observe)), dim=-2)


class _Forward:
    """The graph of one forward pass: its inputs, its cache, and what its lines hold."""

    def __init__(
        self, program: Program, config: Config, batch: int, lines: set[int], *, decodes: bool = False
    ) -> None:
        model = cast("Callable[..., dict[str, Any]]", program.functions["model"])
        shape = cast("Callable[..., list[int | None]]", program.functions["past_shape"])
        given = hyperparameters(config)
        self.tokens = program.placeholder("int32", [batch, None])
        self.past = program.placeholder("float32", shape(hparams=given, batch_size=batch)) if decodes else None
        results, found = program.build(lambda: model(given, self.tokens, past=self.past, reuse=decodes), lines)
        self.present = results["present"]
        self.readings = tuple(readings(found))


def _run(
    program: Program, forward: _Forward, step: int, tokens: Tensor, past: Tensor | None, observe: Observe
) -> Tensor:
    """Report what the lines hold for these tokens; returns what they add to the cache."""
    given = {forward.tokens: tokens} if past is None else {forward.tokens: tokens, forward.past: past}
    values = program.values([reading.tensor for reading in forward.readings], given)
    for reading, value in zip(forward.readings, values, strict=True):
        observe(step, reading.observation(value))
    return next(program.values([forward.present], given))


# --- from the graph to sites ---


def _points() -> dict[tuple[int, int | None], dict[str, Point]]:
    """By a line and the line that called it: every site that the line assigns, returns or calls for."""
    found: dict[tuple[int, int | None], dict[str, Point]] = defaultdict(dict)
    for row in CATALOGUE:
        for point in row.points:
            if point.kind != "argument":
                found[point.line, point.caller].setdefault(row.site, point)
    return dict(found)


_POINTS = _points()
_PASSED_ON: Mapping[tuple[int | None, str], Point] = {
    (point.line, row.site): point for row in CATALOGUE for point in row.points if point.kind == "argument"
}
"""By a line and a site: where the line hands a result of one function to the next, unnamed."""


def readings(found: Iterable[Extent]) -> Iterator[Reading]:
    """The tensors of a graph that are sites.

    A line that holds one site made it last. Of a line that holds several, all but one need a pick; they
    are left out otherwise, where other lines hold them too.
    """
    for extent in found:
        stack, (_, line) = extent.trail[:-1], extent.trail[-1]
        if line == _PASTS_LINE:
            yield from _pasts(extent)
        caller = stack[-1][1] if stack else None
        sites = _POINTS.get((line, caller)) or _POINTS.get((line, None), {})
        unpicked = sites.keys() - PICKS.keys()
        for site, point in sites.items():
            pick = PICKS.get(site)
            if pick is not None:
                tensor = extent.of_type(pick.type)[pick.number].outputs[pick.output]
            elif len(unpicked) == 1:
                tensor = extent.operations[-1].outputs[0]
            else:
                continue
            yield Reading(point, stack, extent.occurrence, tensor)
            if (passed_on := _PASSED_ON.get((caller, site))) is not None:
                yield Reading(passed_on, stack[:-1], extent.occurrence, tensor)


def _pasts(extent: Extent) -> Iterator[Reading]:
    (point,) = CATALOGUE.row("h.past").points
    for operation in extent.of_type("Unpack"):
        for layer, tensor in enumerate(operation.outputs):
            yield Reading(point, (), layer, tensor)
