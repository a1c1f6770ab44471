"""Numbers for Prometheus: requests by route, recordings, memory and disk. No prompt, no trace's id, no address.

With several web workers each counts its own requests in files that all of them read, in the directory
that PROMETHEUS_MULTIPROC_DIR names.
"""

import os
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from app.explorer import Explorer
from app.jobs import Tally

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
disable_created_metrics()  # type: ignore[no-untyped-call]
_PREFIX = "tensor_provenance_"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)


class Metrics:
    """What one web process counts."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            f"{_PREFIX}requests", "Requests answered.", ("method", "route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            f"{_PREFIX}request_seconds", "Time to answer.", ("route",), buckets=_SECONDS, registry=self._registry
        )

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; `route` is a template such as `/traces/{id}`, status 0 where nobody waited for it."""
        self._requests.labels(method if method in _METHODS else "other", route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self, explorer: Explorer) -> bytes:
        """Everything, as Prometheus reads it. Looks at the store, so it must not run on an event loop."""
        requests = self._registry
        if os.environ.get(DIRECTORY):
            requests = CollectorRegistry()
            MultiProcessCollector(requests)  # type: ignore[no-untyped-call]
        state = CollectorRegistry()
        state.register(_State(explorer))
        return generate_latest(requests) + generate_latest(state)


class _State(Collector):
    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer

    def collect(self) -> Iterator[Metric]:
        tally = self._explorer.jobs.tally()
        yield from _of_recordings(tally)
        listed = self._explorer.store.list()
        kept = sum(found.record.tensors_bytes for found in listed if found.record is not None)
        memory = self._explorer.memory()
        yield GaugeMetricFamily(f"{_PREFIX}store_traces", "Traces that are kept.", len(listed))
        yield GaugeMetricFamily(f"{_PREFIX}store_bytes", "Bytes of their tensors on disk.", kept)
        yield GaugeMetricFamily(f"{_PREFIX}replay_cache_bytes", "Replayed tensors in memory.", memory.replay_bytes)
        yield GaugeMetricFamily(f"{_PREFIX}model_bytes", "Weights of models in memory.", memory.model_bytes)


def _of_recordings(tally: Tally) -> Iterator[Metric]:
    now = GaugeMetricFamily(f"{_PREFIX}recordings", "Recordings that have not ended.", labels=("state",))
    now.add_metric(("waiting",), tally.waiting)
    now.add_metric(("running",), tally.running)
    yield now
    ended = CounterMetricFamily(f"{_PREFIX}recordings_ended", "Recordings that have ended.", labels=("state",))
    for state, number in (("done", tally.done), ("failed", tally.failed), ("cancelled", tally.cancelled)):
        ended.add_metric((state,), number)
    yield ended
    yield CounterMetricFamily(f"{_PREFIX}recordings_begun", "Recordings whose turn came.", tally.begun)
    yield CounterMetricFamily(f"{_PREFIX}queue_seconds", "Time that they had waited for it.", tally.queue_seconds)
