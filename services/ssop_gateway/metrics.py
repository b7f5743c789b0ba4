"""What the edge counts, after OpenTelemetry's HTTP conventions."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ssop_chassis.metrics import DURATION_BUCKETS_S, FIRST_TOKEN_BUCKETS_S

METHODS: Final = frozenset({"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE"})
CLIENT_GONE: Final = 499
"""Status under which a request counts whose client went away before its end."""


class GatewayMetrics:
    """Requests by route, method and status; bounded, since unknown paths are one route and unknown methods one."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ["http_route", "http_request_method", "http_response_status_code"]
        self._duration = Histogram(
            "http_server_request_duration_seconds",
            "Duration of requests.",
            labels,
            buckets=DURATION_BUCKETS_S,
            registry=registry,
        )
        self._first = Histogram(
            "ssop_gateway_first_event_seconds",
            "Time to the first event of a stream.",
            ["http_route"],
            buckets=FIRST_TOKEN_BUCKETS_S,
            registry=registry,
        )
        self.in_flight = Gauge("http_server_active_requests", "Requests that run.", registry=registry)
        self._errors = Counter(
            "ssop_gateway_errors", "Errors by reason, those inside of streams too.", ["reason"], registry=registry
        )
        self._degraded = Counter("ssop_gateway_degraded", "Degraded answers by level.", ["level"], registry=registry)

    def finish(self, route: str, method: str, status: int, duration_s: float) -> None:
        """Count a request that ended; `method` is one of METHODS, or `_OTHER`."""
        self._duration.labels(route, method, str(status)).observe(duration_s)

    def first_event(self, route: str, duration_s: float) -> None:
        """Count the first event of a stream."""
        self._first.labels(route).observe(duration_s)

    def error(self, reason: str) -> None:
        """Count an error that a client was told."""
        self._errors.labels(reason).inc()

    def degraded(self, level: int) -> None:
        """Count a degraded answer."""
        self._degraded.labels(str(level)).inc()
