"""Enums that are prepared behave as those of protobuf."""

import pytest

from ssop.v1 import mesh_pb2
from ssop_chassis.enums import quicken_enums

quicken_enums()
Tier = mesh_pb2.Tier


def test_values_lie_where_attributes_are_found_at_once() -> None:
    assert vars(Tier)["TIER_LITE"] == mesh_pb2.TIER_LITE == Tier.Value("TIER_LITE")


def test_every_number_has_its_name() -> None:
    assert [Tier.Name(value) for value in Tier.values()] == Tier.keys()


def test_a_number_without_a_name_is_refused_by_protobuf() -> None:
    with pytest.raises(ValueError, match="no name defined for value 99"):
        Tier.Name(99)  # type: ignore[arg-type]


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(AttributeError):
        Tier.TIER_NONE  # type: ignore[attr-defined]  # noqa: B018 - what is tried


def test_preparing_twice_changes_nothing() -> None:
    assert quicken_enums() > 0
    assert Tier.Name(mesh_pb2.TIER_FULL) == "TIER_FULL"
