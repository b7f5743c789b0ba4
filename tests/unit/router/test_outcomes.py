"""How an attempt counts for its node once a deadline has passed."""

import time
from dataclasses import dataclass, field

import pytest

from helpers.as_written import run_both_ways
from ssop_router.core.success import Outcome
from ssop_router.job import Reading
from ssop_router.limits import Wait
from ssop_router.outcomes import _late

way = run_both_ways("ssop_router.outcomes", "_late")


@dataclass
class Attempted:
    """How far an attempt came."""

    wait: Wait | None = None
    first_field_s: float | None = None
    is_committed: bool = False
    is_finished: bool = False
    is_client_gone: bool = False
    reading: Reading = field(default_factory=Reading)


def test_node_that_had_time_and_gave_no_field_has_failed() -> None:
    assert _late(Attempted(), time.monotonic() - 60) is Outcome.FAILURE


@pytest.mark.parametrize("attempted", [Attempted(first_field_s=1.0), Attempted(is_committed=True)])
def test_node_that_gave_a_field_has_not(attempted: Attempted) -> None:
    """One that a cascade holds back counts as well."""
    assert _late(attempted, time.monotonic() - 60) is Outcome.NEUTRAL


def test_node_without_time_has_not() -> None:
    assert _late(Attempted(), time.monotonic()) is Outcome.NEUTRAL
