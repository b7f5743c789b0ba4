"""Which nodes a router has when sources say more, less, or nothing."""

from ssop_router.core.membership import Membership, Place


def make(*static: str, linger_ms: int = 1_000, max_nodes: int = 10) -> Membership:
    places = [Place(address) for address in static]
    return Membership(places, {"dns": True, "lease": False}, linger_ms=linger_ms, max_nodes=max_nodes, now_ms=0)


def take(membership: Membership, name: str, *addresses: str, now_ms: int = 0, alive: bool = True) -> None:
    membership.take(name, [Place(address) for address in addresses], now_ms)
    membership.settle(now_ms, lambda _: alive)


def test_node_of_a_source_joins() -> None:
    membership = make("a")
    membership.take("lease", [Place("b")], 0)
    change = membership.settle(0, lambda _: False)
    assert (change.joined, change.left) == ((Place("b"),), ())
    assert sorted(membership.members) == ["a", "b"]


def test_node_of_the_settings_never_leaves() -> None:
    membership = make("a")
    take(membership, "lease", "a")
    take(membership, "lease", now_ms=10_000, alive=False)
    assert list(membership.members) == ["a"]
    assert membership.sources_of("a") == ["static"]


def test_address_that_a_name_has_no_more_leaves_at_once() -> None:
    membership = make()
    take(membership, "dns", "a", "b")
    take(membership, "dns", "b", now_ms=1)
    assert list(membership.members) == ["b"]


def test_node_whose_lease_lapsed_leaves_at_once_where_nobody_is_there() -> None:
    membership = make()
    take(membership, "lease", "a")
    take(membership, "lease", now_ms=1, alive=False)
    assert list(membership.members) == []


def test_node_that_is_well_leaves_when_its_lease_has_been_lacking_for_long() -> None:
    membership = make()
    take(membership, "lease", "a")
    take(membership, "lease", now_ms=100)
    take(membership, "lease", now_ms=1_099)
    assert list(membership.members) == ["a"]
    take(membership, "lease", now_ms=1_100)
    assert list(membership.members) == []


def test_store_that_comes_back_empty_costs_no_node_that_is_well() -> None:
    membership = make()
    take(membership, "lease", "a")
    membership.fail("lease")
    take(membership, "lease", now_ms=60_000)
    take(membership, "lease", now_ms=60_900)
    assert list(membership.members) == ["a"]
    take(membership, "lease", "a", now_ms=60_950)
    take(membership, "lease", "a", now_ms=99_000)
    assert list(membership.members) == ["a"]


def test_time_in_which_nobody_could_say_so_counts_for_nothing() -> None:
    membership = make()
    take(membership, "lease", "a")
    take(membership, "lease", now_ms=100)
    membership.fail("lease")
    take(membership, "lease", now_ms=5_000)
    assert list(membership.members) == ["a"]


def test_source_that_can_not_be_read_keeps_its_list() -> None:
    membership = make()
    take(membership, "dns", "a", "b")
    membership.fail("dns")
    membership.settle(1_000_000, lambda _: False)
    assert sorted(membership.members) == ["a", "b"]
    assert membership.sources["dns"].age_ms(1_000_000) == 1_000_000


def test_node_of_two_sources_stays_while_one_says_it() -> None:
    membership = make()
    take(membership, "dns", "a")
    take(membership, "lease", "a")
    take(membership, "dns", now_ms=1, alive=False)
    assert membership.sources_of("a") == ["lease"]


def test_too_many_are_refused_and_come_in_when_there_is_room() -> None:
    membership = make("s", max_nodes=2)
    membership.take("lease", [Place("a"), Place("b")], 0)
    assert membership.settle(0, lambda _: True).refused == 1
    assert sorted(membership.members) == ["a", "s"]
    membership.take("lease", [Place("b")], 1)
    change = membership.settle(1, lambda _: False)
    assert (change.left, [place.address for place in change.joined], change.refused) == (("a",), ["b"], 0)


def test_age_is_that_of_the_source_that_said_it_last() -> None:
    membership = make("s")
    take(membership, "dns", "a", now_ms=100)
    take(membership, "lease", "a", now_ms=400)
    assert membership.age_ms("a", 500) == 100
    assert membership.age_ms("s", 500) == 0
    take(membership, "lease", now_ms=450)
    membership.fail("dns")
    assert membership.age_ms("a", 500) == 50
