"""Leases of which the cache service knows that they are held."""

from helpers.as_written import run_both_ways
from ssop_cache.core.grants import MOST, Grants

way = run_both_ways("ssop_cache.core.grants", "Grants")

KEY = b"\1" * 32


def test_a_lease_is_held_until_its_time_is_over() -> None:
    grants = Grants()
    for now_s, is_held in ((10.9, True), (11.0, False)):
        grants.give("acme", KEY, 7, 11.0)
        assert grants.take("acme", KEY, 7, now_s) is is_held


def test_another_fence_or_tenant_or_key_knows_nothing_of_it() -> None:
    grants = Grants()
    grants.give("acme", KEY, 7, 11.0)
    asked = [("acme", KEY, 6), ("acme", KEY, 8), ("other", KEY, 7), ("acme", b"\2" * 32, 7)]
    assert not any(grants.take(*one, 0.0) for one in asked)
    assert grants.take("acme", KEY, 7, 0.0)


def test_what_was_never_given_is_not_held_by_any_fence() -> None:
    assert not any(Grants().take("acme", KEY, fence, 0.0) for fence in (0, 1))


def test_it_is_said_once() -> None:
    grants = Grants()
    grants.give("acme", KEY, 7, 11.0)
    assert [grants.take("acme", KEY, 7, 0.0) for _ in range(2)] == [True, False]


def test_a_later_lease_of_the_key_takes_the_place_of_the_first() -> None:
    grants = Grants()
    grants.give("acme", KEY, 7, 11.0)
    grants.give("acme", KEY, 8, 11.0)
    assert [grants.take("acme", KEY, fence, 0.0) for fence in (7, 8)] == [False, True]


def test_the_oldest_are_forgotten() -> None:
    grants = Grants()
    for fence in range(1, MOST + 2):
        grants.give("acme", fence.to_bytes(32, "big"), fence, 11.0)
    held = [grants.take("acme", fence.to_bytes(32, "big"), fence, 0.0) for fence in (1, 2, MOST + 1)]
    assert held == [False, True, True]
