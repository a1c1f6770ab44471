"""The figures that are aimed at: each with its target, what was measured, and by how much it is missed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.forward import EAGER, PLAIN, RECORDED, TAPPED, Forward
from benchmarks.peers import Peers
from benchmarks.results import Results

PLAIN_SHORT, PLAIN_LONG, LONG = 1.03, 1.10, 1024
VERIFY_SECONDS, HELP_MS = 120.0, 300.0
VISIT_BYTES, VISIT_WITH_PICTURES_BYTES = 60_000, 200_000
_EVERYTHING_NAMED = "torchlens"

ALWAYS = ""
"""In the place of an allocator: what depends on none, or on the server's own."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of one of the points: what was measured, by allocator, against a limit of the same unit."""

    point: int
    what: str
    limit: float
    measured: Mapping[str, float]
    unit: str = "×"
    at_least: bool = False

    def met(self, allocator: str) -> bool:
        """Whether the measured value keeps to the limit."""
        value = self.measured[allocator]
        return value >= self.limit if self.at_least else value <= self.limit

    def missed_by(self, allocator: str) -> float:
        """By which part of the limit the measured value is beyond it; 0 where it is met."""
        if self.met(allocator):
            return 0.0
        return abs(self.measured[allocator] - self.limit) / self.limit if self.limit else float("inf")


def figures(results: Results) -> list[Figure]:
    """All figures that can be told from what was measured."""
    return [*_forward(results), *_sizes(results), *_summaries(results), *_pages(results), *_large(results)]


def _forward(results: Results) -> Iterator[Figure]:
    for tokens in _lengths(results.forward):
        yield from _ratio(results, 1, tokens, RECORDED, PLAIN, 1.05)
        yield from _ratio(results, 1, tokens, PLAIN, EAGER, PLAIN_SHORT if tokens < LONG else PLAIN_LONG)
    for tokens in _lengths(results.forward):
        yield from _ratio(results, 2, tokens, TAPPED, EAGER, 1.10)
    named = {allocator: _most_named(peers) for allocator, peers in results.peers.items()}
    most = max((count for count in named.values()), default=0)
    if most:
        ours = {allocator: float(peers[0].tensors(TAPPED)) for allocator, peers in results.peers.items()}
        yield Figure(
            2, "Named tensors, against the most of any peer but torchlens", most + 1, ours, "", at_least=True
        )


def _lengths(measured: Mapping[str, Forward]) -> list[int]:
    return sorted({at.tokens for forward in measured.values() for at in forward.lengths})


def _ratio(results: Results, point: int, tokens: int, ours: str, theirs: str, limit: float) -> Iterator[Figure]:
    ratios = {}
    for allocator, forward in results.forward.items():
        at = next((at for at in forward.lengths if at.tokens == tokens), None)
        mine, other = (at.of(ours), at.of(theirs)) if at else (None, None)
        if mine and other:
            ratios[allocator] = mine.over(other)
    if ratios:
        yield Figure(point, f"{_capital(ours)}, over {theirs}, T = {tokens:,}", limit, ratios)


def _most_named(peers: tuple[Peers, ...]) -> int:
    counts = [peer.tensors(way) for peer in peers if peer.peer != _EVERYTHING_NAMED for way in peer.ways]
    return max(counts, default=0)


def _sizes(results: Results) -> Iterator[Figure]:
    if results.sizes:
        kept = {allocator: 100 * found.kept.share for allocator, found in results.sizes.items()}
        tokens = next(iter(results.sizes.values())).kept.tokens
        yield Figure(
            3, f"Bytes kept of all intermediates' bytes, T = {tokens:,}", 2.5, {ALWAYS: max(kept.values())}, "%"
        )
    if results.peak:
        allowed = max(peak.allowed for peak in results.peak.values()) / 1e6
        peaks = {allocator: peak.taken / 1e6 for allocator, peak in results.peak.items()}
        tokens = next(iter(results.peak.values())).tokens
        yield Figure(
            3, f"Peak memory of recording, over Python and torch alone, T = {tokens:,}", allowed, peaks, "MB"
        )
    for tokens in sorted({one.tokens for found in results.sizes.values() for one in found.again}):
        pairs = [(name, one) for name, found in results.sizes.items() for one in found.again if one.tokens == tokens]
        again = {name: one.replayed.over(one.forward) for name, one in pairs}
        cached = {name: one.cached.median for name, one in pairs}
        yield Figure(4, f"A block replayed with everything tapped, over its forward, T = {tokens:,}", 1.3, again)
        yield Figure(4, f"A tensor from the cache, T = {tokens:,}", 1.0, cached, "ms")


def _summaries(results: Results) -> Iterator[Figure]:
    if results.summaries:
        tokens = next(iter(results.summaries.values())).tokens
        ratios = {name: found.ratio for name, found in results.summaries.items()}
        yield Figure(5, f"All summaries of all tensors of a trace, over one forward, T = {tokens:,}", 0.2, ratios)


def _pages(results: Results) -> Iterator[Figure]:
    if pages := results.pages:
        tensor, catalogue = pages.tensor_pages, pages.catalogue_pages
        readers = f"{tensor.readers} readers"
        yield Figure(6, f"A tensor page (warm), p50 at {readers}", 15.0, {ALWAYS: tensor.p50_ms}, "ms")
        yield Figure(6, f"A tensor page (warm), p99 at {readers}", 60.0, {ALWAYS: tensor.p99_ms}, "ms")
        rate = {ALWAYS: catalogue.per_second}
        yield Figure(6, f"Catalogue pages a second, one worker, {readers}", 500.0, rate, "/s", at_least=True)
        lean = {ALWAYS: max(visit.without_pictures for visit in pages.visits) / 1e3}
        full = {ALWAYS: max(visit.with_pictures for visit in pages.visits) / 1e3}
        yield Figure(6, "A first visit, largest of three pages, without pictures", VISIT_BYTES / 1e3, lean, "KB")
        yield Figure(6, "The same with pictures", VISIT_WITH_PICTURES_BYTES / 1e3, full, "KB")
        allowed = 1.3 * pages.import_torch.median / 1e3 + 1
        yield Figure(
            6, "Start to first answer (1.3 × importing torch + 1 s)", allowed, {ALWAYS: pages.start.median / 1e3}, "s"
        )


def _large(results: Results) -> Iterator[Figure]:
    if large := results.largest:
        memory = {ALWAYS: max(large.peak_recording, large.peak_opening) / 1e9}
        parameters = f"{large.parameters / 1e9:.2f} G parameters"
        what = f"Peak memory: {parameters}, {large.tokens:,} tokens recorded, a tensor opened"
        yield Figure(7, what, results.machine.memory_bytes / 1e9, memory, "GB")
    if commands := results.commands:
        for proof in commands.verified:
            what = f"`verify` {proof.model}, 9 tokens and {proof.steps} step{'s' * (proof.steps != 1)}"
            yield Figure(8, what, VERIFY_SECONDS, {ALWAYS: proof.seconds}, "s")
        yield Figure(8, "`--help`, the whole process", HELP_MS, {ALWAYS: commands.help.median}, "ms")
        yield Figure(8, "torch imported by `--help` (0: no)", 0, {ALWAYS: float("torch" in commands.imported)}, "")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
