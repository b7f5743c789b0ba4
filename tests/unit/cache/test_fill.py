"""How full the state is, and from where on somebody should act."""

import pytest

from ssop_cache.core.fill import Fill, parse_fill


@pytest.mark.parametrize(("used_bytes", "is_filling"), [(74, False), (75, True), (100, True), (130, True)])
def test_three_quarters_are_told(used_bytes: int, is_filling: bool) -> None:
    assert Fill(used_bytes, 100).is_filling is is_filling


def test_what_has_no_bound_never_fills() -> None:
    assert not Fill(2**40, 0).is_filling


def test_what_hovers_around_the_bound_is_not_calm() -> None:
    assert [Fill(used, 100).is_calm for used in (64, 66, 74)] == [True, False, False]


def test_info_is_read() -> None:
    assert parse_fill({"used_memory": "7", "maxmemory": "10", "used_memory_human": "7B"}) == Fill(7, 10)


@pytest.mark.parametrize("memory", [{}, {"used_memory": "7"}, {"used_memory": "much", "maxmemory": "0"}])
def test_a_server_that_does_not_say_is_told_from_one_that_is_empty(memory: dict[str, str]) -> None:
    with pytest.raises((KeyError, ValueError)):
        parse_fill(memory)
