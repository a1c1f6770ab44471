"""What the machine cannot be faster than: its rate of products, and its memory's bandwidth."""

import time
from dataclasses import dataclass

import torch

from benchmarks.timing import Work
from provenance.gpt2.config import Config

_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """Best rates of several tries, with all threads."""

    flops_per_second: float
    read_bytes_per_second: float
    write_bytes_per_second: float
    fresh_bytes_per_second: float

    def seconds(self, flops: float, read: float, written: float) -> float:
        """The least time of a computation: its arithmetic, or its memory traffic, whichever is longer."""
        traffic = read / self.read_bytes_per_second + written / self.write_bytes_per_second
        return max(flops / self.flops_per_second, traffic)


@torch.inference_mode()
def limits(matrix: int, stream_bytes: int, tries: int = 5) -> Limits:
    """Measure products of square float32 matrices, and passes over more memory than the caches hold.

    `fresh` is writing to memory that the kernel has yet to hand over, as an allocator without spare
    memory does.
    """
    a, b = torch.randn(matrix, matrix), torch.randn(matrix, matrix)
    out = torch.empty(matrix, matrix)
    stream = torch.ones(stream_bytes // _FLOAT_BYTES)
    read = _best(lambda: stream.sum(), tries)
    written = _best(lambda: stream.fill_(2.0), tries)
    fresh = _best(lambda: torch.ones(stream_bytes // _FLOAT_BYTES), tries)
    return Limits(
        flops_per_second=2 * matrix**3 / _best(lambda: torch.mm(a, b, out=out), 2 * tries),
        read_bytes_per_second=stream_bytes / read,
        write_bytes_per_second=stream_bytes / written,
        fresh_bytes_per_second=stream_bytes / fresh,
    )


def forward_flops(config: Config, length: int) -> int:
    """Multiplications and additions of one forward's products; attention computes the masked half too."""
    d, m = config.n_embd, config.n_inner
    block = 2 * length * (4 * d * d + 2 * d * m) + 4 * length * length * d
    return config.n_layer * block + 2 * length * d * config.n_vocab


def logit_bytes(config: Config, length: int) -> int:
    """What the logits take: the one large result of a forward that nobody taps."""
    return _FLOAT_BYTES * length * config.n_vocab


def _best(work: Work, tries: int) -> float:
    taken = []
    for _ in range(tries + 1):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken[1:])
