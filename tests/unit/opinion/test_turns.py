"""Whose post is next, and how much of what is shared a tenant may hold."""

from ssop_opinion.core.turns import Turns, may_take


def begin_all(turns: Turns[str], now_s: float = 0.0) -> list[str]:
    """What begins until nothing more may."""
    begun = []
    while (item := turns.begin(now_s)) is not None:
        begun.append(item)
    return begun


def make_turns(slots: int, *, is_shared: bool = True, **waiting: int) -> Turns[str]:
    """Turns with so many items of each tenant waiting."""
    turns: Turns[str] = Turns(slots)
    turns.is_shared = is_shared
    for tenant, count in waiting.items():
        for number in range(count):
            turns.add(tenant, f"{tenant}{number}")
    return turns


def test_tenants_take_turns() -> None:
    turns = make_turns(100, a=5, b=2)
    assert begin_all(turns) == ["a0", "b0", "a1", "b1", "a2", "a3", "a4"]


def test_who_comes_late_is_passed_once() -> None:
    turns = make_turns(3, is_shared=False, a=9)
    assert begin_all(turns) == ["a0", "a1", "a2"]
    turns.add("b", "b0")
    turns.end("a")
    turns.end("a")
    assert begin_all(turns) == ["a3", "b0"]


def test_one_that_is_alone_has_all() -> None:
    assert len(begin_all(make_turns(90, is_shared=False, a=200))) == 90


def test_one_that_is_not_alone_leaves_a_ninth() -> None:
    turns = make_turns(90, a=200)
    assert len(begin_all(turns)) == 80
    turns.add("b", "b0")
    assert turns.begin(0) == "b0"


def test_several_that_want_all_have_as_much_each() -> None:
    begun = begin_all(make_turns(85, a=200, b=200))
    assert (begun.count("b0"), sum(one[0] == "a" for one in begun), sum(one[0] == "b" for one in begun)) == (1, 40, 40)


def test_what_ends_makes_room() -> None:
    turns = make_turns(1, a=2)
    assert begin_all(turns) == ["a0"]
    assert turns.free == 0
    turns.end("a")
    assert begin_all(turns) == ["a1"]


def test_a_paused_tenant_begins_nothing_and_others_do() -> None:
    turns = make_turns(9, a=2, b=1)
    turns.pause("a", 5.0)
    assert begin_all(turns, 4.9) == ["b0"]
    assert turns.waiting == {"a"}


def test_one_item_looks_whether_a_pause_is_over() -> None:
    turns = make_turns(9, a=3)
    turns.pause("a", 5.0)
    assert begin_all(turns, 5.0) == ["a0"]
    turns.resume("a")
    assert begin_all(turns, 5.0) == ["a1", "a2"]


def test_another_item_looks_after_one_that_looked_in_vain() -> None:
    turns = make_turns(9, a=2)
    turns.pause("a", 5.0)
    assert turns.begin(5.0) == "a0"
    turns.put_back("a", "a0")
    turns.pause("a", 6.0)
    turns.end("a")
    assert turns.begin(5.9) is None
    assert turns.begin(6.0) == "a1"


def test_what_was_refused_is_first_when_a_pause_is_over() -> None:
    turns = make_turns(9, a=3)
    turns.begin(0.0)
    turns.put_back("a", "a0")
    turns.resume("a")
    turns.end("a")
    assert begin_all(turns) == ["a0", "a1", "a2"]


def test_more_is_wanted_of_who_has_only_what_was_refused_and_may_look() -> None:
    turns = make_turns(2, a=1, b=1)
    turns.begin(0.0)
    turns.put_back("a", "a0")
    turns.pause("a", 5.0)
    turns.end("a")
    assert turns.well_stocked(4.9) == {"a", "b"}
    assert turns.well_stocked(5.0) == {"b"}
    turns.put_back("a", "a1")
    assert turns.well_stocked(5.0) == {"a", "b"}


def test_what_looked_and_says_nothing_lets_the_next_one_look() -> None:
    turns = make_turns(9, a=2)
    turns.pause("a", 5.0)
    turns.begin(5.0)
    turns.end("a")
    assert begin_all(turns, 5.0) == ["a1"]


def test_failures_of_one_pause_count_once() -> None:
    turns = make_turns(9, a=2)
    assert turns.failures("a", 0.0) == 0
    turns.pause("a", 5.0)
    assert turns.failures("a", 4.0) is None
    assert turns.failures("a", 5.0) == 1


def test_nothing_is_taken_where_nothing_is_free() -> None:
    assert not may_take(0, 0, is_shared=False)
    assert not may_take(0, -1, is_shared=True)
