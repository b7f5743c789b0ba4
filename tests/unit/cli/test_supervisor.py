"""Runners and supervisors over real processes, with probes that say what the test wants."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from helpers.eventually import eventually
from ssop_cli.child import Policy, State
from ssop_cli.plan import ChildPlan
from ssop_cli.report import is_alive
from ssop_cli.supervisor import Runner, Supervisor

POLICY = Policy(first_delay_s=0.01, max_delay_s=0.05, stop_grace_s=0.5, hung_after_s=0.05, first_start_attempts=2)
MakeRunner = Callable[..., Runner]


class ScriptedProbe:
    """Answers what it is told to."""

    def __init__(self, answer: bool | None) -> None:
        self.answer = answer
        self.asked = 0

    async def ask(self) -> bool | None:
        self.asked += 1
        return self.answer

    async def close(self) -> None:
        pass


@pytest.fixture
async def make_runner(tmp_path: Path) -> AsyncIterator[MakeRunner]:
    """Makes runners; their processes end with the test."""
    made: list[Runner] = []

    def make(name: str, *command: str, answer: bool | None = True, after: tuple[str, ...] = ()) -> Runner:
        plan = ChildPlan(name, command, f"unix:{tmp_path}/{name}.sock", tmp_path, after)
        runner = Runner(
            plan,
            tmp_path / f"{name}.log",
            policy=POLICY,
            environ={"PATH": os.environ["PATH"]},
            changed=lambda: None,
            jitter=lambda: 0.5,
            probe=ScriptedProbe(answer),
            ready_probe_s=0.01,
        )
        made.append(runner)
        return runner

    yield make
    await Supervisor(made).stop()


async def run_until(supervisor: Supervisor, predicate: Callable[[], bool]) -> None:
    """Let a supervisor work until the predicate holds."""
    stop = asyncio.Event()
    running = asyncio.ensure_future(supervisor.run(stop))
    try:
        await eventually(predicate)
    finally:
        stop.set()
        await running


async def test_a_killed_process_is_started_again(make_runner: MakeRunner) -> None:
    runner = make_runner("a", "/bin/sleep", "60")
    supervisor = Supervisor([runner])
    await run_until(supervisor, lambda: supervisor.is_ready)
    first = runner.report()
    os.kill(first.pid, signal.SIGKILL)
    await run_until(supervisor, lambda: supervisor.is_ready and runner.pid != first.pid)
    assert (runner.report().restarts, runner.report().exit_code) == (1, -9)


async def test_a_process_that_does_not_answer_any_more_is_killed(make_runner: MakeRunner) -> None:
    runner = make_runner("a", "/bin/sleep", "60")
    supervisor = Supervisor([runner])
    await run_until(supervisor, lambda: supervisor.is_ready)
    first = runner.report()
    probe = runner._probe
    assert isinstance(probe, ScriptedProbe)
    probe.answer = None
    await run_until(supervisor, lambda: runner.child.restarts == 1)
    assert not is_alive(first)


async def test_a_process_that_answers_not_serving_is_left_alone(make_runner: MakeRunner) -> None:
    runner = make_runner("a", "/bin/sleep", "60", answer=False)
    supervisor = Supervisor([runner])
    probe = runner._probe
    assert isinstance(probe, ScriptedProbe)
    # The pause between two questions is longer than the time after which silence counts as hanging.
    await run_until(supervisor, lambda: probe.asked >= 3)
    assert (runner.child.state, runner.child.restarts) == (State.STARTING, 0)


async def test_a_child_waits_for_what_it_needs(make_runner: MakeRunner) -> None:
    first = make_runner("first", "/bin/sleep", "60", answer=False)
    second = make_runner("second", "/bin/sleep", "60", after=("first",))
    supervisor = Supervisor([first, second])
    await run_until(supervisor, lambda: first.pid > 0)
    assert second.child.state is State.WAITING
    probe = first._probe
    assert isinstance(probe, ScriptedProbe)
    probe.answer = True
    await run_until(supervisor, lambda: supervisor.is_ready)


async def test_a_process_that_ignores_the_signal_is_killed(make_runner: MakeRunner) -> None:
    runner = make_runner("a", "/bin/sh", "-c", "trap '' TERM; echo armed; while :; do sleep 0.05; done")
    supervisor = Supervisor([runner])
    log = runner._log_path
    await run_until(supervisor, lambda: supervisor.is_ready and log.exists() and "armed" in log.read_text())
    await supervisor.stop()
    assert (runner.child.state, runner.child.exit_code) == (State.STOPPED, -9)


async def test_what_a_child_writes_is_in_its_log(make_runner: MakeRunner) -> None:
    runner = make_runner("a", "/bin/sh", "-c", "echo out; echo err >&2; exec sleep 60")
    supervisor = Supervisor([runner])
    await run_until(supervisor, lambda: runner._log_path.exists() and runner._log_path.read_text() == "out\nerr\n")


async def test_a_helper_that_outlives_the_child_does_not_hide_its_end(make_runner: MakeRunner) -> None:
    runner = make_runner("a", "/bin/sh", "-c", "sleep 3 & exit 1", answer=None)
    supervisor = Supervisor([runner])
    await run_until(supervisor, lambda: supervisor.failed is runner)


async def test_a_program_that_is_not_there_is_given_up_with_the_reason(make_runner: MakeRunner) -> None:
    runner = make_runner("a", "/no/such/program", answer=None)
    supervisor = Supervisor([runner])
    await run_until(supervisor, lambda: supervisor.failed is runner)
    assert "/no/such/program" in runner._log_path.read_text()
