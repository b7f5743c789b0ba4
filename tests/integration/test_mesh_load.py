"""The benchmark of the whole path measures what it says: whole answers, on every service."""

from pathlib import Path

import pytest

from helpers.bench_mesh import PROCESSES, run_bench_mesh
from helpers.echo_server import running_echo
from helpers.load_figures import LoadOrder
from helpers.load_generator import run_order
from helpers.whole_answers import whole_answer

pytestmark = [pytest.mark.needs("native_transport"), pytest.mark.timeout(300)]


def test_whole_answers_of_a_bare_echo_are_counted(tmp_path: Path) -> None:
    with running_echo(tmp_path, whole_answer()) as (address, pid):
        result = run_order(LoadOrder("native", [address], pids={"echo": pid}, width=8, seconds=60, count=400))
    assert (result.done, result.failed, result.flaws, result.messages) == (400, 0, {}, 3.0)


def test_answer_that_is_cut_is_a_fault(tmp_path: Path) -> None:
    with running_echo(tmp_path, whole_answer()[:-1]) as (address, _):
        result = run_order(LoadOrder("native", [address], width=4, seconds=60, count=40))
    assert result.faults == {"11 frames": 40}


def test_load_takes_the_whole_path_of_the_mesh(tmp_path: Path) -> None:
    with run_bench_mesh(tmp_path, "native") as mesh:
        order = LoadOrder(
            "native", mesh.targets, key=mesh.key, pids=mesh.pids, width=8, warm_s=0, seconds=120, count=200
        )
        native = run_order(order)
        stranger = run_order(LoadOrder("native", mesh.targets, key="ssop_nobody", width=1, seconds=60, count=1))
    assert (native.failed, native.flaws, native.checked) == (0, {}, 4)
    assert set(native.cpu_us) == {*PROCESSES, "router", "client"}
    assert next(iter(stranger.faults)).startswith("status 16")
