"""Twelve node processes, six of them harmed in six ways at once, behind two router processes."""

import pytest
import pytest_asyncio

from helpers.twelve_nodes import FAULTS, Result, run_twelve

SEED = 1


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """All six at once."""
    result = await run_twelve(tmp_path_factory.mktemp("n"), FAULTS, seed=SEED, duration_s=16.0)
    print(result.line())
    return result


def test_no_client_sees_a_failure(run: Result) -> None:
    assert run.failures == []
    assert run.requests > 500


def test_no_healthy_node_is_ejected(run: Result) -> None:
    assert run.healthy_ejected == 0


def test_node_that_fails_fast_gets_hardly_a_call(run: Result) -> None:
    assert run.calls["fails-fast"] > 0
    assert run.late_share("fails-fast") < 0.02


def test_faults_are_real(run: Result) -> None:
    """The kernel or a signal ended them, and the routers took them out; the others took calls."""
    assert run.kills["grows"] >= 1
    assert run.kills["flaps"] >= 2
    assert {"frozen", "grows", "flaps"} <= set(run.ejected)
    assert min(run.calls[name] for name in ("slow", "errs")) > 0
