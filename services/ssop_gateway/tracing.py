"""A span for each request, after OpenTelemetry's HTTP conventions; the router's spans are its children."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from ssop_chassis.tracing import is_traced


@contextmanager
def request_span(method: str, route: str, headers: Mapping[str, str]) -> Iterator[Callable[[int], None]]:
    """Run the body inside a server span, child of the caller's `traceparent`; what it yields takes the status."""
    if not is_traced():
        yield lambda _: None
        return
    carrier = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
    with trace.get_tracer("ssop").start_as_current_span(
        f"{method} {route}",
        context=propagate.extract(carrier),
        kind=SpanKind.SERVER,
        attributes={"http.request.method": method, "http.route": route},
        record_exception=False,
        set_status_on_exception=False,
    ) as span:

        def end(status: int) -> None:
            span.set_attribute("http.response.status_code", status)
            if status >= 500:
                span.set_status(Status(StatusCode.ERROR))

        yield end
