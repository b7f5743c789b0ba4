"""An OpenTelemetry collector for tests: takes spans by OTLP over gRPC and keeps them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Collector:
    """`spans` are pairs of the service's name and the span."""

    endpoint: str = ""
    spans: list[tuple[str, Span]] = field(default_factory=list)

    def take(self, request: ExportTraceServiceRequest, _: Any) -> ExportTraceServiceResponse:
        """The rpc Export."""
        for resource in request.resource_spans:
            names = [entry.value.string_value for entry in resource.resource.attributes if entry.key == "service.name"]
            for scope in resource.scope_spans:
                self.spans += [(names[0] if names else "", span) for span in scope.spans]
        return ExportTraceServiceResponse()

    def of_trace(self, trace_id: str) -> list[tuple[str, Span]]:
        """The spans of one trace, its id in hex."""
        return [(service, span) for service, span in self.spans if span.trace_id.hex() == trace_id]


@contextmanager
def run_collector() -> Iterator[Collector]:
    """A collector on a free port until the block ends."""
    collector = Collector()
    export = grpc.unary_unary_rpc_method_handler(
        collector.take, ExportTraceServiceRequest.FromString, ExportTraceServiceResponse.SerializeToString
    )
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    server = grpc.server(
        ThreadPoolExecutor(2), handlers=[grpc.method_handlers_generic_handler(service, {"Export": export})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    collector.endpoint = f"http://127.0.0.1:{port}"
    try:
        yield collector
    finally:
        server.stop(None).wait()
