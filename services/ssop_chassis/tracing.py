"""Spans after the OpenTelemetry conventions for RPC, one for each call served; free until a provider is set."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import propagate, trace
from opentelemetry.trace import ProxyTracerProvider, SpanKind

from ssop_chassis.call import Metadata


@contextmanager
def server_span(method: str, metadata: Metadata) -> Iterator[None]:
    """Run the body inside a server span named after the method, child of the caller's `traceparent`."""
    if isinstance(trace.get_tracer_provider(), ProxyTracerProvider):
        yield
        return
    carrier = {key: value for key, value in metadata.items() if isinstance(value, str)}
    service, _, name = method.removeprefix("/").partition("/")
    with trace.get_tracer("ssop").start_as_current_span(
        method.removeprefix("/"),
        context=propagate.extract(carrier),
        kind=SpanKind.SERVER,
        attributes={"rpc.system": "grpc", "rpc.service": service, "rpc.method": name},
    ):
        yield


def inject(metadata: Metadata | None) -> Metadata:
    """The metadata with the current span's `traceparent`, where there is one."""
    if isinstance(trace.get_tracer_provider(), ProxyTracerProvider):
        return metadata or {}
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return {**(metadata or {}), **carrier}
