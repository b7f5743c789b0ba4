"""The short circuit before a Redis."""

from helpers.as_written import run_both_ways
from ssop_cache.core.circuit import Circuit

way = run_both_ways("ssop_cache.core.circuit", "Circuit")


def test_one_slow_call_leaves_it_closed() -> None:
    circuit = Circuit()
    assert not circuit.fail(1.0, False)
    assert not circuit.is_open


def test_two_failures_in_a_row_open_it() -> None:
    circuit = Circuit()
    circuit.fail(1.0, False)
    assert circuit.fail(2.0, False)
    assert circuit.opened_s == 2.0


def test_success_between_two_failures_keeps_it_closed() -> None:
    circuit = Circuit()
    circuit.fail(1.0, False)
    circuit.succeed()
    circuit.fail(2.0, False)
    assert not circuit.is_open


def test_refused_connection_opens_it_alone() -> None:
    assert Circuit().fail(1.0, True)


def test_opening_is_told_once() -> None:
    circuit = Circuit()
    assert [circuit.fail(float(n), True) for n in range(3)] == [True, False, False]


def test_late_success_of_a_call_does_not_close_it() -> None:
    circuit = Circuit()
    circuit.fail(1.0, True)
    circuit.succeed()
    assert circuit.is_open


def test_probe_closes_it() -> None:
    circuit = Circuit()
    circuit.fail(1.0, True)
    circuit.close()
    assert (circuit.is_open, circuit.failures) == (False, 0)
