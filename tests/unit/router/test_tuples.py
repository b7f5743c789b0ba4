"""Named tuples made by place are those that their own `__new__` makes: what is held true holds of both."""

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ssop_router.core.score import TierSignals
from ssop_router.core.snapshot import NodeView
from ssop_router.core.tuples import make

Make = Callable[[Any, tuple[object, ...]], Any]


class Many(tuple[object, ...]):
    """As many fields as it is given."""


@pytest.fixture(params=[make, tuple.__new__], ids=["made", "new"])
def way(request: pytest.FixtureRequest) -> Make:
    found: Make = request.param
    return found


@pytest.mark.parametrize("size", [0, 1, 7, 40])
def test_fields_are_in_their_places(way: Make, size: int) -> None:
    fields = tuple(object() for _ in range(size))
    made = way(Many, fields)
    assert type(made) is Many
    assert tuple(made) == fields


@pytest.mark.parametrize("size", [0, 1, 7])
def test_they_are_found_by_their_fields(way: Make, size: int) -> None:
    fields = tuple(range(size))
    assert {way(Many, fields): "found"}[fields] == "found"


def test_names_and_defaults_of_a_class_hold(way: Make) -> None:
    made = way(TierSignals, (0.5, 0.1, 3, "", 0.9, 0.1, None))
    assert made == TierSignals(0.5, 0.1, 3, "", 0.9, 0.1)
    assert made.headroom_age_ms == 3


def test_attributes_can_be_set_where_a_class_has_room_for_them(way: Make) -> None:
    made = way(NodeView, tuple(NodeView("a")))
    made.offer = "an offer"
    assert (made.offer, made == NodeView("a")) == ("an offer", True)


def test_fields_are_held_once_and_let_go(way: Make) -> None:
    field = object()
    before = sys.getrefcount(field)
    made = way(Many, (field, field))
    assert sys.getrefcount(field) == before + 2
    del made
    assert sys.getrefcount(field) == before


def test_cycles_are_found(way: Make) -> None:
    made = way(Many, ([],))
    assert gc.is_tracked(made)


@pytest.mark.parametrize("kind", [list, int, object])
def test_only_tuples_are_made(way: Make, kind: type) -> None:
    with pytest.raises(TypeError):
        way(kind, ())
