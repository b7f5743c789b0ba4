"""Spans on their way to an OpenTelemetry collector, by OTLP over gRPC; needs the extra `otel`.

They are sent from a thread, in batches. A collector that is away costs spans, never requests: the queue holds 2,048,
and the log says when some were dropped.
"""

import socket
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from opentelemetry import trace

from ssop_chassis.settings import MeshSettings, SettingsError
from ssop_chassis.tracing import look_again

_TIMEOUT_S: Final = 5
_QUEUE: Final = 2_048


def start_export(service: str, mesh: MeshSettings) -> Callable[[], None]:
    """Send the spans of this process where `otlp_endpoint` says; what is returned sends the last ones and ends it.

    Once in a process. Raises SettingsError where the extra is missing.
    """
    if not mesh.otlp_endpoint:
        return lambda: None
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415 - the extra
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"[mesh] otlp_endpoint: {error.name} is missing; install the extra: pip install 'ssop-mesh[otel]'"
        ) from error
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(mesh.trace_ratio)),
        resource=Resource.create(
            {
                "service.name": f"ssop-{service}",
                "service.namespace": "ssop",
                "service.version": _version(),
                "host.name": socket.gethostname(),
            }
        ),
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(
        endpoint=mesh.otlp_endpoint, insecure=not mesh.otlp_endpoint.startswith("https://"), timeout=_TIMEOUT_S
    )
    provider.add_span_processor(
        BatchSpanProcessor(exporter, max_queue_size=_QUEUE, export_timeout_millis=_TIMEOUT_S * 1000)
    )
    trace.set_tracer_provider(provider)
    look_again()
    return provider.shutdown


def _version() -> str:
    try:
        return version("ssop-mesh")
    except PackageNotFoundError:
        return "unknown"
