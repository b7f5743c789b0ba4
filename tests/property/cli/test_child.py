"""Any events in any order leave a child in a legal state."""

from hypothesis import given
from hypothesis import strategies as st

from ssop_cli.child import (
    Action,
    Begin,
    Child,
    Event,
    Exited,
    Hung,
    Policy,
    Ready,
    State,
    Stop,
    Tick,
    backoff_s,
    step,
)

POLICY = Policy()
events = st.one_of(
    *(st.just(kind()) for kind in (Begin, Ready, Hung, Tick, Stop)), st.builds(Exited, st.integers(-31, 255))
)
histories = st.lists(st.tuples(st.floats(0, 1_000), events), max_size=60)


@given(histories, st.floats(0, 1))
def test_processes_and_states_agree(history: list[tuple[float, Event]], jitter: float) -> None:
    child, now_s, is_running = Child(), 0.0, False
    for passed_s, event in history:
        if isinstance(event, Exited) and not is_running:
            continue
        now_s += passed_s
        child, action = step(child, event, now_s, POLICY, jitter)
        if isinstance(event, Exited):
            is_running = False
        if action is Action.SPAWN:
            assert not is_running
            is_running = True
        if action in {Action.TERMINATE, Action.KILL}:
            assert is_running
        assert child.is_running is is_running


@given(histories, st.floats(0, 1))
def test_nothing_is_spawned_after_a_stop(history: list[tuple[float, Event]], jitter: float) -> None:
    child, now_s, is_stopped = Child(), 0.0, False
    for passed_s, event in history:
        now_s += passed_s
        child, action = step(child, event, now_s, POLICY, jitter)
        is_stopped = is_stopped or isinstance(event, Stop)
        assert not (is_stopped and action is Action.SPAWN)
        if is_stopped:
            assert child.state in {State.STOPPING, State.STOPPED, State.FAILED}


@given(histories, st.floats(0, 1))
def test_a_stop_always_ends(history: list[tuple[float, Event]], jitter: float) -> None:
    child, now_s = Child(), 0.0
    for passed_s, event in history:
        now_s += passed_s
        child, _ = step(child, event, now_s, POLICY, jitter)
    child, _ = step(child, Stop(), now_s, POLICY, jitter)
    if child.is_running:
        child, action = step(child, Tick(), child.since_s + POLICY.stop_grace_s + 1.0, POLICY, jitter)
        assert action is Action.KILL
        child, _ = step(child, Exited(-9), now_s, POLICY, jitter)
    assert child.is_over


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_the_delay_has_bounds(failures: int, jitter: float) -> None:
    assert 0.375 <= backoff_s(failures, POLICY, jitter) <= POLICY.max_delay_s


@given(st.integers(1, 100), st.floats(0, 1))
def test_the_delay_never_shrinks_with_more_failures(failures: int, jitter: float) -> None:
    assert backoff_s(failures, POLICY, jitter) <= backoff_s(failures + 1, POLICY, jitter)
