# cython: annotation_typing=False
"""Metrics: names after OpenTelemetry (GenAI and gRPC conventions) in Prometheus form, on a registry that is passed in.

Durations are in seconds. Labels never hold request ids, tenants' texts or anything else without a small bound.
"""

from collections.abc import Callable
from typing import Final

from google.rpc import code_pb2
from prometheus_client import CollectorRegistry

from ssop_chassis.tallies import Count, Counter, Distribution, Gauge, Histogram

# OpenTelemetry semantic conventions for generative AI, section "Metrics": the buckets given there.
DURATION_BUCKETS_S: Final = (
    0.01,
    0.02,
    0.04,
    0.08,
    0.16,
    0.32,
    0.64,
    1.28,
    2.56,
    5.12,
    10.24,
    20.48,
    40.96,
    81.92,
)
FIRST_TOKEN_BUCKETS_S: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
TOKEN_BUCKETS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)

GEN_AI_REQUEST_DURATION: Final = "gen_ai_server_request_duration_seconds"
GEN_AI_TIME_TO_FIRST_TOKEN: Final = "gen_ai_server_time_to_first_token_seconds"  # noqa: S105 - a metric's name
GEN_AI_TIME_PER_OUTPUT_TOKEN: Final = "gen_ai_server_time_per_output_token_seconds"  # noqa: S105 - a metric's name
GEN_AI_TOKEN_USAGE: Final = "gen_ai_client_token_usage"  # noqa: S105 - a metric's name
GRPC_SERVER_DURATION: Final = "grpc_server_call_duration_seconds"
GRPC_SERVER_STARTED: Final = "grpc_server_call_started"
SSOP_CALLS_IN_FLIGHT: Final = "ssop_calls_in_flight"


def code_name(code: int) -> str:
    """The name of a gRPC status code; `UNKNOWN` for numbers outside the table."""
    try:
        return str(code_pb2.Code.Name(code))
    except ValueError:
        return "UNKNOWN"


class CallMetrics:
    """What every server counts: calls started, in flight, and their duration by method and status (gRPC A66)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._started = Counter(GRPC_SERVER_STARTED, "Calls started.", ["grpc_method"], registry=registry)
        self._in_flight = Gauge(SSOP_CALLS_IN_FLIGHT, "Calls that run.", registry=registry).labels()
        self._duration = Histogram(
            GRPC_SERVER_DURATION,
            "Duration of calls.",
            ["grpc_method", "grpc_status"],
            buckets=DURATION_BUCKETS_S,
            registry=registry,
        )
        # Methods are those that a server serves: few, and always the same texts.
        self._starts: dict[str, Count] = {}
        self._ends: dict[tuple[str, int], Distribution] = {}

    def start(self, method: str) -> None:
        """Count a call that begins."""
        started = self._starts.get(method)
        if started is None:
            started = self._starts[method] = self._started.labels(method.removeprefix("/"))
        started.inc()
        self._in_flight.inc()

    def finish(self, method: str, code: int, duration_s: float) -> None:
        """Count a call that ended with a gRPC status code after so many seconds."""
        self._in_flight.dec()
        ended = self._ends.get((method, code))
        if ended is None:
            ended = self._ends[method, code] = self._duration.labels(method.removeprefix("/"), code_name(code))
        ended.observe(duration_s)


class TlsMetrics:
    """Of a process whose services speak TLS."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reloads = Counter(
            "ssop_tls_reloads", "Changes of the certificates' files: taken, or refused.", ["outcome"], registry=registry
        )
        self._expiry = Gauge(
            "ssop_tls_certificate_expiry_timestamp_seconds",
            "When the own certificate ends, seconds since the epoch; 0: ca_file does not vouch for it.",
            registry=registry,
        )

    def count(self, is_taken: bool) -> None:
        """The files have changed."""
        self._reloads.labels("taken" if is_taken else "refused").inc()

    def show_expiry(self, read_s: Callable[[], float]) -> None:
        """Ask `read_s` whenever the metrics are read."""
        self._expiry.set_function(read_s)
