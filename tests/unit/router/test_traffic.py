"""The last minute in numbers."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from helpers.as_written import run_both_ways
from helpers.scripted_mesh import Mesh, ask, failing
from ssop.v1.router_pb2 import GetMeshStatusRequest, GetMeshStatusResponse, TrafficView
from ssop_router.core.counts import CountWindow
from ssop_router.core.latency import LatencyWindow

way = run_both_ways("ssop_router.core.counts", "CountWindow")


@given(st.lists(st.tuples(st.integers(0, 3_000), st.sampled_from("abc"))), st.integers(0, 3_000))
def test_totals_are_those_of_a_list_of_all_events(steps: list[tuple[int, str]], later_ms: int) -> None:
    window, now_ms, events = CountWindow(slots=4, slot_ms=500), 0, []
    for step_ms, name in steps:
        now_ms += step_ms
        window.add(name, now_ms)
        events.append((now_ms // 500, name))
    now_ms += later_ms
    kept = Counter(name for slot, name in events if slot > now_ms // 500 - 4)
    assert window.totals(now_ms) == kept


def test_median_and_95th_percentile() -> None:
    window = LatencyWindow()
    for latency_ms in range(1, 101):
        window.record(latency_ms, is_failure=False, now_ms=0)
    assert abs(window.percentile(0.5, 0) - 50) <= 1
    assert abs(window.percentile(0.95, 0) - 95) <= 2
    assert window.stats(0).p95_ms == window.percentile(0.95, 0)


async def _traffic(mesh: Mesh) -> TrafficView:
    key = mesh.keys.of(scopes=("admin",))
    request = GetMeshStatusRequest().SerializeToString()
    data = await mesh.peer.unary(
        "/ssop.v1.RouterService/GetMeshStatus", request, timeout_s=5, metadata=mesh.metadata(key)
    )
    return GetMeshStatusResponse.FromString(data).traffic


async def test_status_counts_outcomes_tiers_and_levels(mesh: Mesh) -> None:
    await mesh.generate(ask(model="grok-3-lite", policy="no_cache"))
    mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = failing()
    await mesh.generate(ask(model="grok-3", policy="no_cache"))
    await mesh.generate(ask(model="grok-3", policy="no_cache", max_degraded_level=0))
    traffic = await _traffic(mesh)
    assert dict(traffic.outcomes) == {"OK": 2, "DEGRADED_REFUSED": 1}
    assert dict(traffic.tiers) == {"lite": 2}
    assert dict(traffic.degraded) == {2: 1}
    assert dict(traffic.cache) == {"policy_off": 3}
    assert 0 < traffic.first_field_p50_ms <= traffic.first_field_p95_ms
