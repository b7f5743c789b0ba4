"""The life of a supervised process, with a clock that is a number."""

import pytest

from ssop_cli.child import Action, Begin, Child, Event, Exited, Hung, Policy, Ready, State, Stop, Tick, backoff_s, step

POLICY = Policy()


def follow(*events: tuple[float, Event], child: Child | None = None) -> tuple[Child, list[Action]]:
    child = Child() if child is None else child
    actions = []
    for now_s, event in events:
        child, action = step(child, event, now_s, POLICY, 0.5)
        actions.append(action)
    return child, actions


def ready_at(now_s: float) -> Child:
    return follow((0.0, Begin()), (now_s, Ready()))[0]


def test_a_child_is_spawned_when_what_it_needs_is_ready() -> None:
    child, actions = follow((0.0, Begin()))
    assert (child.state, actions) == (State.STARTING, [Action.SPAWN])


def test_a_killed_child_is_spawned_again_after_the_backoff() -> None:
    child, actions = follow((10.0, Exited(-9)), (10.4, Tick()), (10.6, Tick()), child=ready_at(1.0))
    assert (child.state, child.restarts) == (State.STARTING, 1)
    assert actions == [Action.NONE, Action.NONE, Action.SPAWN]


def test_the_exit_code_is_remembered() -> None:
    assert follow((10.0, Exited(-9)), child=ready_at(1.0))[0].exit_code == -9


def test_failures_in_a_row_double_the_delay() -> None:
    delays = [backoff_s(failures, POLICY, 0.5) for failures in (1, 2, 3, 7, 8, 1_000)]
    assert delays == [0.5, 1.0, 2.0, 30.0, 30.0, 30.0]


def test_a_minute_of_good_service_resets_the_delay() -> None:
    child = ready_at(1.0)
    for now_s in (2.0, 10.0, 20.0):
        child, _ = follow((now_s, Exited(1)), (now_s + 5, Tick()), (now_s + 6, Ready()), child=child)
    assert child.failures == 3
    child, _ = follow((26.0 + POLICY.good_after_s, Exited(1)), child=child)
    assert child.failures == 1


def test_a_start_that_takes_too_long_is_killed() -> None:
    child, actions = follow((0.0, Begin()), (POLICY.start_timeout_s, Tick()))
    assert (child.state, actions[-1]) == (State.STARTING, Action.KILL)


def test_a_hung_child_is_killed() -> None:
    assert follow((5.0, Hung()), child=ready_at(1.0))[1] == [Action.KILL]


def test_a_child_that_never_starts_is_given_up() -> None:
    child, _ = follow(
        (0.0, Begin()), (1.0, Exited(1)), (3.0, Tick()), (4.0, Exited(1)), (9.0, Tick()), (10.0, Exited(1))
    )
    assert (child.state, child.restarts) == (State.FAILED, 2)


def test_unusable_settings_are_not_tried_twice() -> None:
    assert follow((0.0, Begin()), (1.0, Exited(78)))[0].state is State.FAILED


def test_a_child_that_was_ready_once_is_never_given_up() -> None:
    child = ready_at(1.0)
    for number in range(20):
        child, _ = follow((100.0 * number, Exited(78)), (100.0 * number + 50, Tick()), child=child)
    assert (child.state, child.restarts) == (State.STARTING, 20)


def test_stop_terminates_and_then_kills() -> None:
    child, actions = follow((10.0, Stop()), (11.0, Tick()), (10.0 + POLICY.stop_grace_s, Tick()), child=ready_at(1.0))
    assert (child.state, actions) == (State.STOPPING, [Action.TERMINATE, Action.NONE, Action.KILL])


def test_an_exit_while_stopping_is_the_end() -> None:
    child, actions = follow((10.0, Stop()), (11.0, Exited(0)), (99.0, Tick()), child=ready_at(1.0))
    assert (child.state, actions[-1]) == (State.STOPPED, Action.NONE)


def test_stop_during_the_backoff_spawns_nothing() -> None:
    child, actions = follow((2.0, Exited(1)), (2.1, Stop()), (60.0, Tick()), child=ready_at(1.0))
    assert (child.state, set(actions)) == (State.STOPPED, {Action.NONE})


@pytest.mark.parametrize("state", [State.STOPPED, State.FAILED])
def test_the_end_is_final(state: State) -> None:
    child = Child(state)
    for event in (Begin(), Ready(), Hung(), Exited(1), Tick(), Stop()):
        assert step(child, event, 1_000.0, POLICY, 0.5) == (child, Action.NONE)
