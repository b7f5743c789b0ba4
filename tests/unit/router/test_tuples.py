"""Named tuples made by place are those that their own `__new__` makes."""

import gc
import sys

import pytest

from ssop_router.core.score import TierSignals
from ssop_router.core.snapshot import NodeView
from ssop_router.core.tuples import make


class Many(tuple[object, ...]):
    """As many fields as it is given."""


@pytest.mark.parametrize("size", [0, 1, 7, 40])
def test_fields_are_in_their_places(size: int) -> None:
    fields = tuple(object() for _ in range(size))
    made = make(Many, fields)
    assert type(made) is Many
    assert tuple(made) == fields


def test_names_and_defaults_of_a_class_hold() -> None:
    made = make(TierSignals, (0.5, 0.1, 3, "", 0.9, 0.1, None))
    assert made == TierSignals(0.5, 0.1, 3, "", 0.9, 0.1)
    assert made.headroom_age_ms == 3


def test_attributes_can_be_set_where_a_class_has_room_for_them() -> None:
    made = make(NodeView, tuple(NodeView("a")))
    made.offer = "an offer"
    assert (made.offer, made == NodeView("a")) == ("an offer", True)


def test_fields_are_held_once_and_let_go() -> None:
    field = object()
    before = sys.getrefcount(field)
    made = make(Many, (field, field))
    assert sys.getrefcount(field) == before + 2
    del made
    assert sys.getrefcount(field) == before


def test_cycles_are_found() -> None:
    made = make(Many, ([],))
    assert gc.is_tracked(made)


@pytest.mark.parametrize("kind", [list, int, object])
def test_only_tuples_are_made(kind: type) -> None:
    with pytest.raises(TypeError):
        make(kind, ())
