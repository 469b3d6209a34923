"""What a server counts, for Prometheus and for its page."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

_MODEL = ("model", "version")
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Observations:
    """Counters by model and version: names of models that there are, never those of requests."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "gluonjit_requests", "Requests to run a model", (*_MODEL, "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "gluonjit_request_seconds",
            "From a request to its answer",
            _MODEL,
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._calls = Histogram(
            "gluonjit_call_seconds", "Calls of a model", _MODEL, buckets=_SECONDS, registry=self._registry
        )
        self._rows = Histogram("gluonjit_call_rows", "Rows of a call", _MODEL, buckets=_ROWS, registry=self._registry)
        self._waiting = Gauge("gluonjit_waiting", "Requests that wait or run", _MODEL, registry=self._registry)
        self._bytes = Gauge("gluonjit_body_bytes", "Bytes of bodies in memory", registry=self._registry)
        self._totals: dict[tuple[str, str], dict[str, float]] = {}

    def request(self, model: str, version: str, status: str, seconds: float) -> None:
        self._requests.labels(model, version, status).inc()
        self._seconds.labels(model, version).observe(seconds)
        total = self._total(model, version)
        total["requests"] += 1
        total["errors"] += status != "200"

    def call(self, model: str, version: str, requests: int, rows: int, seconds: float) -> None:
        """`rows` is 0 for a call whose rows are not known."""
        self._calls.labels(model, version).observe(seconds)
        self._rows.labels(model, version).observe(rows or requests)
        total = self._total(model, version)
        total["calls"] += 1
        total["seconds"] += seconds

    def _total(self, model: str, version: str) -> dict[str, float]:
        return self._totals.setdefault((model, version), dict.fromkeys(("requests", "errors", "calls", "seconds"), 0))

    def totals(self, model: str, version: str) -> dict[str, float]:
        return dict(self._total(model, version))

    def text(self, waiting: Mapping[tuple[str, str], int], body_bytes: int) -> tuple[bytes, str]:
        """What Prometheus reads, and its type."""
        self._waiting.clear()
        for key, count in waiting.items():
            self._waiting.labels(*key).set(count)
        self._bytes.set(body_bytes)
        return generate_latest(self._registry), CONTENT_TYPE_LATEST
