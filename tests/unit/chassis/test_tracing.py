"""Spans: one trace over all hops, named after the conventions."""

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import ProxyTracerProvider

from ssop_chassis.call import Arity, Call
from ssop_chassis.errors import MeshError
from ssop_chassis.memory import MemoryPeer
from ssop_chassis.tracing import generation_span, inject, look_again
from unit.chassis.transports import PRINCIPAL, one_method


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    look_again()
    yield exporter
    provider.shutdown()
    look_again()


async def test_inner_call_continues_the_trace_of_the_outer_one(spans: InMemorySpanExporter) -> None:
    async def generate(call: Call) -> None:
        with generation_span("m", {"gen_ai.request.temperature": 0.0}) as annotate:
            annotate({"gen_ai.usage.output_tokens": 7})
        await call.write(b"")

    inner = MemoryPeer([one_method(Arity.UNARY, generate)], lambda _: PRINCIPAL)

    async def forward(call: Call) -> None:
        await call.write(await inner.unary("/test.T/M", b"", timeout_s=5, metadata=inject({})))

    outer = MemoryPeer([one_method(Arity.UNARY, forward)], lambda _: PRINCIPAL)
    await outer.unary("/test.T/M", b"", timeout_s=5)
    generation, served, first = spans.get_finished_spans()
    assert len({span.context.trace_id for span in (generation, served, first)}) == 1
    assert (generation.name, served.name) == ("chat m", "test.T/M")
    assert generation.attributes is not None
    assert served.attributes is not None
    assert generation.attributes["gen_ai.usage.output_tokens"] == 7
    assert generation.attributes["gen_ai.operation.name"] == "chat"
    assert served.attributes["rpc.system"] == "grpc"


async def test_of_what_a_client_says_of_its_trace_only_the_parent_goes_further(spans: InMemorySpanExporter) -> None:
    heard: list[dict[str, str | bytes]] = []

    async def hear(call: Call) -> None:
        heard.append(dict(call.metadata))
        await call.write(b"")

    inner = MemoryPeer([one_method(Arity.UNARY, hear)], lambda _: PRINCIPAL)

    async def forward(call: Call) -> None:
        await call.write(await inner.unary("/test.T/M", b"", timeout_s=5, metadata=inject({})))

    outer = MemoryPeer([one_method(Arity.UNARY, forward)], lambda _: PRINCIPAL)
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    sent = {
        "traceparent": f"00-{trace_id}-b7ad6b7169203331-01",
        "tracestate": "a=b",
        "baggage": "secret=" + "x" * 4_000,
    }
    await outer.unary("/test.T/M", b"", timeout_s=5, metadata=sent)
    assert [list(metadata) for metadata in heard] == [["traceparent"]]
    assert trace_id in str(heard[0]["traceparent"])
    assert len(spans.get_finished_spans()) == 2


async def test_text_of_a_foreign_exception_reaches_no_span(spans: InMemorySpanExporter) -> None:
    async def fail(_: Call) -> None:
        with generation_span("m", {}):
            raise ValueError("canary-prompt")

    peer = MemoryPeer([one_method(Arity.UNARY, fail)], lambda _: PRINCIPAL)
    with pytest.raises(MeshError):
        await peer.unary("/test.T/M", b"", timeout_s=5)
    generation, served = spans.get_finished_spans()
    assert "canary-prompt" not in generation.to_json() + served.to_json()
    assert [dict(span.attributes or {})["error.type"] for span in (generation, served)] == ["ValueError", "INTERNAL"]
    assert not generation.status.is_ok
    assert not served.status.is_ok


def test_without_a_provider_nothing_is_injected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", ProxyTracerProvider)
    look_again()
    assert inject({"a": "b"}) == {"a": "b"}
