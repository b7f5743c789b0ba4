"""A router that weighs: what reaches the frame, the metrics, the log and the trace."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from helpers.classifiers import FixedClassifier
from helpers.eventually import eventually
from helpers.scripted_mesh import Mesh, R, ScriptedNode, ask, failing, hanging, run_router
from ssop.v1.mesh_pb2 import CacheReason, Tier, TierReason
from ssop.v1.router_pb2 import ExplainDecisionRequest, ExplainDecisionResponse, GenerateRequest
from ssop_chassis import logs, tracing
from ssop_chassis.call import Call
from ssop_chassis.errors import MeshError


@pytest.fixture
def classifier() -> FixedClassifier:
    return FixedClassifier(0.9, {"easy": 0.1, "middling": 0.5})


@pytest.fixture
async def mesh(classifier: FixedClassifier) -> AsyncIterator[Mesh]:
    async with run_router(classifier=classifier, classifier_timeout_us=10**7, score={"threshold": 0.5}) as running:
        yield running


def counted(mesh: Mesh, name: str, **labels: str) -> float:
    return mesh.registry.get_sample_value(name, labels) or 0.0


async def explain(mesh: Mesh, request: GenerateRequest) -> ExplainDecisionResponse:
    data = await mesh.peer.unary(
        "/ssop.v1.RouterService/ExplainDecision",
        ExplainDecisionRequest(request=request).SerializeToString(),
        timeout_s=5,
        metadata=mesh.metadata(),
    )
    return ExplainDecisionResponse.FromString(data)


@pytest.mark.parametrize(("text", "tier"), [("easy", Tier.TIER_LITE), ("hard", Tier.TIER_FULL)])
async def test_score_decides_where_no_rule_speaks(mesh: Mesh, text: str, tier: int) -> None:
    decision = (await mesh.generate(ask(text))).decision
    assert (decision.tier, decision.tier_reason) == (tier, TierReason.TIER_REASON_SCORE)
    assert decision.threshold == 0.5
    assert decision.score == pytest.approx(decision.complexity, abs=0.01)
    assert decision.score_spread > 0


async def test_rule_goes_before_the_score(mesh: Mesh, classifier: FixedClassifier) -> None:
    decision = (await mesh.generate(ask("Translate this"))).decision
    assert (decision.tier, decision.rule) == (Tier.TIER_LITE, "short_instruction")
    assert not decision.HasField("complexity")
    assert classifier.asked == []


async def test_uncertain_score_takes_the_default(mesh: Mesh) -> None:
    decision = (await mesh.generate(ask("middling"))).decision
    assert (decision.tier, decision.tier_reason) == (Tier.TIER_FULL, TierReason.TIER_REASON_UNCERTAIN)


async def test_abstention_takes_the_default_and_is_counted(mesh: Mesh, classifier: FixedClassifier) -> None:
    classifier.error = RuntimeError("broken")
    decision = (await mesh.generate(ask("easy"))).decision
    assert (decision.tier, decision.abstention) == (Tier.TIER_FULL, "failed")
    assert list(decision.weak_signals) == ["complexity:failed"]
    assert counted(mesh, "ssop_router_abstentions_total", reason="failed") == 1
    assert counted(mesh, "ssop_router_weak_signals_total", signal="complexity", weakness="failed") == 1


async def test_classifier_is_shown(mesh: Mesh) -> None:
    assert counted(mesh, "ssop_router_classifier_loaded", version="fixed-1") == 1


async def test_rule_is_counted_by_its_name(mesh: Mesh) -> None:
    await mesh.generate(ask("Translate this"))
    assert counted(mesh, "ssop_router_rules_total", rule="short_instruction") == 1


async def test_failures_of_nodes_are_outcomes(mesh: Mesh) -> None:
    mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = failing()
    await mesh.generate(ask("hard"))
    assert counted(mesh, "ssop_router_attempt_outcomes_total", outcome="failure") == 2
    assert counted(mesh, "ssop_router_attempt_outcomes_total", outcome="success") == 1


@pytest.mark.parametrize("reason", [R.ERROR_REASON_REQUEST_INVALID, R.ERROR_REASON_SCHEMA_REFUSED])
async def test_callers_faults_are_no_failures(mesh: Mesh, reason: R.ValueType) -> None:
    mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = failing(reason)
    for number in range(5):
        await mesh.generate(ask(f"hard {number}"))
    assert counted(mesh, "ssop_router_attempt_outcomes_total", outcome="neutral") == 5
    assert all(node.view().successes.failures == 0 for node in mesh.router.nodes)


async def test_full_node_is_no_failure(mesh: Mesh) -> None:
    mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = failing(R.ERROR_REASON_OVERLOADED)
    await mesh.generate(ask("hard"))
    assert counted(mesh, "ssop_router_attempt_outcomes_total", outcome="busy") == 2


async def test_caller_that_leaves_is_neutral(mesh: Mesh) -> None:
    mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = hanging(after=2)
    stream = mesh.open(ask("hard"))
    async with stream:
        await stream.read()
    await eventually(lambda: counted(mesh, "ssop_router_attempt_outcomes_total", outcome="neutral") == 1)


async def test_short_deadline_is_no_failure_of_a_node(mesh: Mesh) -> None:
    mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = hanging()
    answer = await mesh.generate(ask("hard"), timeout_s=0.2)
    assert answer.error is not None
    await eventually(lambda: counted(mesh, "ssop_router_attempt_outcomes_total", outcome="neutral") == 1)


async def test_node_that_hangs_past_a_patient_deadline_is_a_failure(mesh: Mesh) -> None:
    mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = hanging()
    answer = await mesh.generate(ask("hard"), timeout_s=1.3)
    assert answer.error is not None
    await eventually(lambda: counted(mesh, "ssop_router_attempt_outcomes_total", outcome="failure") == 1)


async def test_node_that_fails_fast_does_not_attract_requests(mesh: Mesh) -> None:
    mesh.nodes["full-1"].script = failing()
    for number in range(40):
        await mesh.generate(ask(f"hard {number}"))
    tried = len(mesh.nodes["full-1"].requests)
    assert 1 <= tried < 20


async def test_three_failing_windows_put_stored_answers_first() -> None:
    rule = {"windows": 3, "window_ms": 100, "min_outcomes": 2, "max_failure_ratio": 0.15}
    async with run_router(cache_rule=rule) as mesh:
        for node in mesh.nodes.values():
            node.script = failing()

        request = ask("hard")
        request.prompt.sampling.temperature = 0.7
        assert (await explain(mesh, request)).decision.cache_reason == CacheReason.CACHE_REASON_TEMPERATURE
        for number in range(1000):
            await mesh.generate(ask(f"hard {number}"))
            found = await explain(mesh, request)
            if found.decision.is_cache_first:
                break
            await asyncio.sleep(0.01)
        assert found.decision.cache_reason == CacheReason.CACHE_REASON_MISS
        assert counted(mesh, "ssop_router_cache_first") == 1
        request.max_degraded_level = 0
        found = await explain(mesh, request)
        assert found.decision.cache_reason == CacheReason.CACHE_REASON_TEMPERATURE


async def test_explanation_shows_score_rules_and_filters(mesh: Mesh) -> None:
    found = await explain(mesh, ask("Translate this"))
    assert found.classifier == "fixed-1"
    assert {part.signal for part in found.score.parts} == {"complexity", "headroom", "success"}
    assert [rule.name for rule in found.rules if rule.is_speaking] == ["short_instruction"]
    assert {(v.node, v.tier, v.filter) for v in found.verdicts} >= {
        ("lite-1", Tier.TIER_LITE, ""),
        ("full-1", Tier.TIER_LITE, "tier"),
    }
    assert any(line.startswith("score ") for line in found.explanation)


async def test_log_has_the_numbers_and_no_text(mesh: Mesh, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await mesh.generate(ask("easy CANARY"))
    record = next(record for record in caplog.records if record.message == "request")
    fields = record.__dict__[logs.FIELDS]
    assert (fields["complexity"], fields["threshold"]) == (0.9, 0.5)
    assert "CANARY" not in str(record.__dict__)


async def test_trace_has_an_event_for_each_decision(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    tracing.look_again()
    await mesh.generate(ask("easy"))
    await eventually(lambda: any(s.name.endswith("RouterService/Generate") for s in exporter.get_finished_spans()))
    span = next(s for s in exporter.get_finished_spans() if s.name.endswith("RouterService/Generate"))
    event = next(event for event in span.events if event.name == "ssop.decision")
    assert event.attributes is not None
    assert event.attributes["ssop.tier"] == "TIER_LITE"
    assert event.attributes["ssop.tier_reason"] == "TIER_REASON_SCORE"
    assert event.attributes["ssop.complexity"] == 0.1


async def test_forced_tier_is_refused_rather_than_replaced(mesh: Mesh) -> None:
    for name in ("full-1", "full-2"):
        mesh.nodes[name].script = failing()
    answer = await mesh.generate(ask("easy", policy="full"))
    assert isinstance(answer.error, MeshError)
    assert answer.error.reason == R.ERROR_REASON_NO_BACKEND
    assert mesh.nodes["lite-1"].requests == []


class Silent(ScriptedNode):
    """A node that says its status once, and never again; it still generates."""

    has_spoken = False

    async def watch_status(self, call: Call) -> None:
        if self.has_spoken:
            raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "scripted")
        self.has_spoken = True
        await call.write(self.status.SerializeToString())
        await asyncio.Event().wait()


async def test_status_that_is_old_everywhere_is_flagged_and_stops_nothing() -> None:
    nodes: dict[str, ScriptedNode] = {
        "full-1": Silent("full-1", [Tier.TIER_FULL]),
        "full-2": Silent("full-2", [Tier.TIER_FULL]),
        "lite-1": Silent("lite-1", [Tier.TIER_LITE]),
    }
    async with run_router(
        nodes, classifier=FixedClassifier(0.9), classifier_timeout_us=10**7, status_stale_ms=50
    ) as mesh:
        await eventually(lambda: not any(node.is_connected for node in mesh.router.nodes))
        answer = await mesh.generate(ask("hard"))
        assert answer.error is None
        assert answer.decision.node.startswith("full-")
        assert list(answer.decision.weak_signals) == ["headroom:stale"]
        assert counted(mesh, "ssop_router_weak_signals_total", signal="headroom", weakness="stale") == 1
        assert counted(mesh, "ssop_router_node_status_age_seconds", address="full-1") >= 0.05
