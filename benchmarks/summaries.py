"""All summaries of all tensors of a trace, against one forward pass: `python -m benchmarks.summaries`."""

import statistics
import time
from dataclasses import dataclass

import torch

from benchmarks import twins
from benchmarks.plan import FULL, Plan
from benchmarks.timing import Work, interleaved
from provenance.gpt2.model import GPT2
from provenance.names import Address
from provenance.summary import prepare, summarize_all

TOKENS = 64
FORWARD, SUMMARIES = "one forward", "all summaries of its tensors"

Pair = tuple[torch.Tensor, torch.Tensor | None]


@dataclass(frozen=True, slots=True)
class Summaries:
    """Summaries of every tensor that a forward names, parameters left out, with their masks.

    `ratio` is the median over the rounds of summaries over forward, both with all threads.
    `processor_ratio` compares the processor time of the two with one thread each, least over least: it
    says the same where other processes take turns on the machine. `prepared_s` is how long the machine
    code took to be ready, from the disk or compiled.
    """

    tokens: int
    threads: int
    tensors: int
    cells: int
    ratio: float
    forward_ms: float
    summaries_ms: float
    processor_ratio: float
    prepared_s: float


@torch.inference_mode()
def measure(plan: Plan) -> Summaries:
    """Time both in turns, in one process, on the plan's model."""
    torch.set_num_threads(plan.threads)
    began = time.perf_counter()
    prepare(wait=True)
    prepared = time.perf_counter() - began
    model = twins.ours(plan.config)
    tokens = min(TOKENS, plan.config.n_ctx)
    ids = twins.tokens(plan.config, tokens)
    pairs = _tensors(model, ids)
    works: dict[str, Work] = {
        FORWARD: lambda: model.forward(ids),
        SUMMARIES: lambda: summarize_all(pairs, torch.get_num_threads()),
    }
    rounds = dict(plan.rounds).get(tokens, 3)
    timed = interleaved(works, rounds)
    torch.set_num_threads(1)
    busy = {name: min(_processor_time(work) for _ in range(min(rounds, 10))) for name, work in works.items()}
    torch.set_num_threads(plan.threads)
    return Summaries(
        tokens=tokens,
        threads=plan.threads,
        tensors=len(pairs),
        cells=sum(tensor.numel() for tensor, _ in pairs),
        ratio=timed[SUMMARIES].over(timed[FORWARD]),
        forward_ms=statistics.median(timed[FORWARD].milliseconds),
        summaries_ms=statistics.median(timed[SUMMARIES].milliseconds),
        processor_ratio=busy[SUMMARIES] / busy[FORWARD],
        prepared_s=prepared,
    )


def _tensors(model: GPT2, ids: torch.Tensor) -> list[Pair]:
    """Every tensor that a forward of ids (1, T) names but for the parameters, with its mask."""
    seen: dict[str, torch.Tensor] = {}

    def tap(place: str, tensor: torch.Tensor) -> torch.Tensor:
        if place not in model.weights:
            seen[place] = tensor
        return tensor

    model.forward(ids, tap=tap)

    def masked(place: str) -> torch.Tensor | None:
        address = Address.parse(place)
        by = model.catalogue.row(address.site).masked_by
        return None if by is None else ~seen[Address(by, address.layer).place]

    return [(tensor, masked(place)) for place, tensor in seen.items()]


def _processor_time(work: Work) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


if __name__ == "__main__":
    found = measure(FULL)
    print(f"{found.tensors} tensors, {found.cells:,} cells at T = {found.tokens}, {found.threads} threads")
    print(f"all summaries over one forward: {found.ratio:.3f} (processor time: {found.processor_ratio:.3f})")
    print(f"{found.summaries_ms:.1f} ms against {found.forward_ms:.1f} ms; ready after {found.prepared_s:.1f} s")
