"""Spans reach a collector, or the start says why they can't."""

import sys
from pathlib import Path

import pytest

from helpers.collector import run_collector
from ssop_chassis.export import start_export
from ssop_chassis.grpc_peer import connect
from ssop_chassis.settings import MeshSettings, SettingsError
from unit.chassis.test_serving import Start, log_until, start

__all__ = ["start"]
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
HEALTH = "/grpc.health.v1.Health/Check"


async def _check(folder: Path, traceparent: str) -> None:
    peer = connect(f"unix:{folder}/s")
    await peer.unary(HEALTH, b"", timeout_s=20, metadata={"traceparent": traceparent})
    await peer.close()


async def test_a_process_that_ends_has_sent_the_spans_of_its_callers_trace(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_collector() as collector:
        monkeypatch.setenv("SSOP_MESH_OTLP_ENDPOINT", collector.endpoint)
        process = await start()
        await log_until(process, "ready")
        await _check(tmp_path, f"00-{TRACE}-{PARENT}-01")
        process.terminate()
        assert await process.wait() == 0
        spans = collector.of_trace(TRACE)
    assert [(service, span.name, span.parent_span_id.hex()) for service, span in spans] == [
        ("ssop-router", HEALTH.removeprefix("/"), PARENT)
    ]


async def test_a_trace_that_its_caller_does_not_keep_is_not_sent(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_collector() as collector:
        monkeypatch.setenv("SSOP_MESH_OTLP_ENDPOINT", collector.endpoint)
        process = await start()
        await log_until(process, "ready")
        await _check(tmp_path, f"00-{TRACE}-{PARENT}-00")
        process.terminate()
        assert await process.wait() == 0
    assert not collector.spans


async def test_a_collector_that_is_away_does_not_keep_a_process_from_serving_and_ending(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSOP_MESH_OTLP_ENDPOINT", "http://127.0.0.1:1")
    process = await start()
    await log_until(process, "ready")
    await _check(tmp_path, f"00-{TRACE}-{PARENT}-01")
    process.terminate()
    assert await process.wait() == 0


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    settings = MeshSettings(secret_file=tmp_path, otlp_endpoint="http://127.0.0.1:4317")
    with pytest.raises(SettingsError, match=r"ssop-mesh\[otel\]"):
        start_export("router", settings)
