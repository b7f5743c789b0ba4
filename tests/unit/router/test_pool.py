"""Which ejections are done, and minutes of traffic over good and bad nodes on a virtual clock."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import node_simulation as sim
from ssop_router.core.breaker import Breaker, BreakerSettings, Phase, Probe, Trip
from ssop_router.core.pool import Member, Pool, PoolSettings, Verdict

LITE, FULL = 1, 2
SIX = {f"well{i}": sim.healthy for i in range(6)}
FAULTS = {
    "fast": sim.fails_fast,
    "hung": sim.hangs,
    "slow": sim.slow,
    "six_percent": sim.errs_now_and_then,
    "memory": sim.dies_for_memory,
    "flapping": sim.flaps,
}


def pool_of(nodes: dict[str, set[int]], settings: PoolSettings | None = None) -> Pool:
    pool = Pool(settings or PoolSettings())
    for name, tiers in nodes.items():
        pool.members[name] = Member(Breaker(BreakerSettings(), random.Random(0)), frozenset(tiers))
    return pool


def phases(pool: Pool) -> dict[str, Phase]:
    return {name: member.breaker.phase for name, member in pool.members.items()}


def test_half_of_a_tier_may_go_and_no_more() -> None:
    pool = pool_of({name: {LITE} for name in "abcd"})
    verdicts = [pool.propose(name, Trip.LOST, 0) for name in "abc"]
    assert verdicts == [Verdict.EJECTED, Verdict.EJECTED, Verdict.CAPPED]


def test_of_three_one_may_go_since_the_candidate_counts() -> None:
    pool = pool_of({name: {LITE} for name in "abc"})
    assert [pool.propose(name, Trip.LOST, 0) for name in "ab"] == [Verdict.EJECTED, Verdict.CAPPED]


def test_tiers_count_apart_and_a_node_of_both_obeys_both() -> None:
    pool = pool_of({"a": {LITE}, "b": {LITE}, "both": {LITE, FULL}, "d": {FULL}})
    assert pool.propose("d", Trip.LOST, 0) is Verdict.EJECTED
    assert pool.propose("both", Trip.LOST, 0) is Verdict.CAPPED
    assert pool.propose("a", Trip.LOST, 0) is Verdict.EJECTED


@pytest.mark.parametrize(("may_lose", "verdict"), [(True, Verdict.EJECTED), (False, Verdict.LAST)])
def test_last_of_a_tier_goes_only_where_the_ladder_goes_on(may_lose: bool, verdict: Verdict) -> None:
    pool = pool_of({"only": {FULL}, "lite": {LITE}}, PoolSettings(may_lose_last=may_lose))
    assert pool.propose("only", Trip.CONSECUTIVE, 0) is verdict


@pytest.mark.parametrize("tiers", [{LITE}, {FULL}, {LITE, FULL}, set()])
def test_only_node_of_a_mesh_stays_whatever_its_outcomes_are(tiers: set[int]) -> None:
    pool = pool_of({"only": tiers})
    assert pool.propose("only", Trip.CONSECUTIVE, 0) is Verdict.LAST
    assert pool.propose("only", Trip.LOST, 0) is Verdict.EJECTED


def test_only_node_of_a_mesh_goes_when_it_keeps_callers_waiting_and_is_tried_at_once() -> None:
    pool, now_ms = pool_of({"only": {LITE, FULL}}), 0
    for _ in range(3):
        for _ in range(5):
            trip = pool.members["only"].breaker.fail(10_000, now_ms)
        assert trip is not None
        assert pool.propose("only", trip, now_ms) is Verdict.EJECTED
        now_ms = back(pool, "only", now_ms)
        assert now_ms < 10_000


def test_next_rung_that_is_out_itself_is_none() -> None:
    pool = pool_of({"full": {FULL}, "lite1": {LITE}, "lite2": {LITE}})
    pool.members["lite1"].breaker.eject(Trip.LOST, 0)
    pool.members["lite2"].breaker.eject(Trip.LOST, 0)
    assert pool.propose("full", Trip.CONSECUTIVE, 0) is Verdict.LAST


def back(pool: Pool, name: str, now_ms: int) -> int:
    """Probe a node well until it is back; the time then."""
    breaker = pool.members[name].breaker
    while breaker.phase is Phase.OUT:
        now_ms += 50
        if breaker.is_probe_due(now_ms):
            breaker.begin_probe(now_ms)
            breaker.end_probe(Probe.GOOD, now_ms)
    return now_ms


def test_only_node_that_is_lost_again_and_again_is_always_tried_at_once() -> None:
    pool, now_ms = pool_of({"only": {LITE, FULL}}), 0
    for _ in range(4):
        assert pool.propose("only", Trip.LOST, now_ms) is Verdict.EJECTED
        assert back(pool, "only", now_ms) - now_ms <= 2_000
        now_ms = back(pool, "only", now_ms) + 10_000


def test_nodes_in_back_off_are_tried_at_once_when_those_that_are_left_fail_too() -> None:
    pool = pool_of({"a": {LITE}, "b": {LITE}})
    pool.propose("a", Trip.LOST, 0)
    relapse_ms = back(pool, "a", 0) + 1_000
    pool.propose("a", Trip.LOST, relapse_ms)
    assert not pool.members["a"].breaker.is_probe_due(relapse_ms + 2_000)
    assert pool.propose("b", Trip.LOST, relapse_ms + 2_000) is Verdict.CAPPED
    assert pool.members["a"].breaker.is_probe_due(relapse_ms + 3_000)


def test_fault_of_most_nodes_at_once_ejects_none_and_brings_the_first_back() -> None:
    pool = pool_of({name: {LITE} for name in "abcd"})
    verdicts = [pool.propose(name, Trip.CONSECUTIVE, 1_000) for name in "abcd"]
    assert verdicts == [Verdict.EJECTED, Verdict.EJECTED, Verdict.SHARED, Verdict.SHARED]
    assert set(phases(pool).values()) == {Phase.IN}


def test_faults_that_follow_each_other_slowly_are_not_shared() -> None:
    pool = pool_of({name: {LITE} for name in "abcd"})
    verdicts = [pool.propose(name, Trip.CONSECUTIVE, index * 31_000) for index, name in enumerate("abc")]
    assert verdicts == [Verdict.EJECTED, Verdict.EJECTED, Verdict.CAPPED]


@given(
    st.lists(st.sets(st.sampled_from((LITE, FULL)), min_size=1), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 7), st.sampled_from(list(Trip)), st.integers(0, 20_000)), max_size=40),
)
def test_no_order_of_trips_takes_more_than_half(tiers: list[set[int]], trips: list[tuple[int, Trip, int]]) -> None:
    pool, now_ms = pool_of({str(index): served for index, served in enumerate(tiers)}), 0
    for index, trip, step_ms in trips:
        now_ms += step_ms
        name = str(index % len(tiers))
        if pool.members[name].breaker.phase is not Phase.OUT:
            pool.propose(name, trip, now_ms)
        for tier in (LITE, FULL):
            peers = [member for member in pool.members.values() if tier in member.tiers]
            out = sum(member.breaker.phase is Phase.OUT for member in peers)
            assert out <= len(peers) / 2 or len(peers) == 1


@pytest.mark.parametrize("seed", range(3))
def test_twelve_nodes_six_of_them_bad_serve_every_request(seed: int) -> None:
    result = sim.Simulation(SIX | FAULTS, seed=seed).run(180_000)
    assert result.failures == 0
    assert not set(result.ejections) & set(SIX)
    assert set(result.ejections) >= {"fast", "hung", "slow"}
    assert result.late_calls["fast"] < 0.02 * result.late_calls.total()


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_alone_is_unseen_by_callers(fault: str) -> None:
    result = sim.Simulation(SIX | {fault: FAULTS[fault]}, seed=7).run(120_000)
    assert result.failures == 0
    assert not set(result.ejections) & set(SIX)


def test_shared_outage_leaves_no_node_out() -> None:
    simulation = sim.Simulation({f"n{i}": sim.fails_fast for i in range(6)}, seed=3)
    simulation.run(20_000)
    assert {simulation.phase(f"n{i}") for i in range(6)} == {Phase.IN}


def test_callers_that_leave_in_crowds_eject_nobody() -> None:
    result = sim.Simulation(SIX, seed=5, cancel_ratio=0.5, rps=80).run(120_000)
    assert not result.ejections


def test_flapping_node_is_out_once_in_each_back_off() -> None:
    result = sim.Simulation(SIX | {"flapping": sim.flaps}, seed=2).run(600_000)
    assert result.ejections["flapping"] <= 8


def test_load_on_healthy_nodes_near_the_bound_ejects_none() -> None:
    def nearly_slow(rng: random.Random, now_ms: int) -> sim.Reply:
        return sim.Reply(rng.lognormvariate(6.5, 0.5), is_good=rng.random() > 0.02)

    for seed in range(3):
        result = sim.Simulation({f"n{i}": nearly_slow for i in range(4)}, seed=seed, rps=20).run(300_000)
        assert not result.ejections


def test_hints_take_out_no_more_than_the_caps_allow() -> None:
    pool = Pool(PoolSettings())
    for name in "abcd":
        pool.members[name] = Member(Breaker(BreakerSettings(), random.Random(1)), frozenset({1}))
    verdicts = [pool.propose(name, Trip.HINTED, 40_000 * number) for number, name in enumerate("abcd")]
    assert verdicts == [Verdict.EJECTED, Verdict.EJECTED, Verdict.CAPPED, Verdict.CAPPED]
