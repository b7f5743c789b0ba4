# cython: annotation_typing=False
"""Spans after the OpenTelemetry conventions: one for each call served (RPC), one for each generation (GenAI).

They cost nothing until the process sets a tracer provider. Spans never hold prompts or generated text.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Final

from opentelemetry import trace
from opentelemetry.trace import ProxyTracerProvider, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ssop_chassis.call import Metadata
from ssop_chassis.errors import MeshError

_LOOK_S: Final = 1.0
_PARENT: Final = "traceparent"
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_looked_s = -math.inf
_is_traced = False


def is_traced() -> bool:
    """Whether the process has a tracer provider; one that is set later is seen within a second.

    Asking OpenTelemetry each time costs a search of the environment.
    """
    global _looked_s, _is_traced  # noqa: PLW0603 - what it remembers is itself the process's
    now_s = monotonic()
    if now_s - _looked_s >= _LOOK_S:
        _looked_s = now_s
        _is_traced = not isinstance(trace.get_tracer_provider(), ProxyTracerProvider)
    return _is_traced


def look_again() -> None:
    """Forget whether there is a tracer provider: one was set."""
    global _looked_s  # noqa: PLW0603 - as above
    _looked_s = -math.inf


@contextmanager
def server_span(method: str, metadata: Metadata) -> Iterator[None]:
    """Run the body inside a server span named after the method, child of the caller's `traceparent`."""
    if not is_traced():
        yield
        return
    # Nothing else that a client says of its trace goes further: its baggage may be as large as all that an inner call
    # may carry, and hold what is nobody's business.
    parent = metadata.get(_PARENT)
    carrier = {_PARENT: parent} if isinstance(parent, str) else {}
    service, _, name = method.removeprefix("/").partition("/")
    with (
        trace.get_tracer("ssop").start_as_current_span(
            method.removeprefix("/"),
            context=_PROPAGATOR.extract(carrier),
            kind=SpanKind.SERVER,
            attributes={"rpc.system": "grpc", "rpc.service": service, "rpc.method": name},
            record_exception=False,
            set_status_on_exception=False,
        ) as span,
        _naming_errors(span),
    ):
        yield


@contextmanager
def _naming_errors(span: Span) -> Iterator[None]:
    """Note an error's type, and what may be said of it: the texts of foreign exceptions may quote prompts."""
    try:
        yield
    except Exception as error:
        span.set_attribute(
            "error.type", error.reason_name if isinstance(error, MeshError) else type(error).__qualname__
        )
        span.set_status(Status(StatusCode.ERROR))
        raise


AttributeValue = str | int | float | bool | list[str]


@contextmanager
def generation_span(
    model: str, attributes: Mapping[str, AttributeValue]
) -> Iterator[Callable[[Mapping[str, AttributeValue]], None]]:
    """Run the body inside a span `chat MODEL`; what it yields adds attributes, such as `gen_ai.usage.output_tokens`."""
    if not is_traced():
        yield lambda _: None
        return
    first = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "ssop", "gen_ai.request.model": model}
    with (
        trace.get_tracer("ssop").start_as_current_span(
            f"chat {model}",
            kind=SpanKind.INTERNAL,
            attributes={**first, **attributes},
            record_exception=False,
            set_status_on_exception=False,
        ) as span,
        _naming_errors(span),
    ):
        yield span.set_attributes


def add_event(name: str, attributes: Callable[[], Mapping[str, AttributeValue]]) -> None:
    """Note something on the current span; the attributes are made only where somebody records it."""
    if not is_traced():
        return
    span = trace.get_current_span()
    if span.is_recording():
        span.add_event(name, attributes())


def inject(metadata: Metadata | None) -> Metadata:
    """The metadata with the current span's `traceparent`, where there is one."""
    if not is_traced():
        return metadata or {}
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return {**(metadata or {}), **carrier}
