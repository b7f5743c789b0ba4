"""The ledger of kills tells a mesh that has no node left from one that says so."""

from typing import Any

import pytest

from helpers.kills import check_turned_away
from helpers.ledger import LedgerFault

HEARD = "a node says its status"
LOST = "a node's status is lost"
OUT = "a node is out of rotation"


def said(second: int, message: str, name: str = "full-1") -> dict[str, Any]:
    return {"time": f"2026-11-30T10:00:{second:02}.000Z", "message": message, "address": f"unix:/x/{name}.sock"}


def turned_away(second: int, total_ms: int = 200) -> dict[str, Any]:
    line = said(second, "request") | {"outcome": "NO_BACKEND", "request_id": "k-1", "total_ms": total_ms}
    del line["address"]
    return line


@pytest.mark.parametrize(
    "before",
    [
        [],
        [said(0, HEARD), said(9, LOST)],
        [said(0, HEARD), said(9, OUT)],
        [said(0, HEARD, "lite-1")],
        [said(9, HEARD)],
    ],
    ids=["none was there", "it was lost", "it was out", "it is of the other tier", "it came in that moment"],
)
def test_who_is_turned_away_where_no_node_is_left_is_no_fault(before: list[dict[str, Any]]) -> None:
    check_turned_away([*before, turned_away(10)])


def test_a_node_that_dies_in_that_moment_is_no_fault() -> None:
    check_turned_away([said(0, HEARD), turned_away(10), said(10, LOST)])


@pytest.mark.parametrize(
    "before", [[said(0, HEARD)], [said(0, HEARD), said(1, LOST), said(2, HEARD)]], ids=["always there", "back again"]
)
def test_who_is_turned_away_beside_a_node_that_is_there_is_a_fault(before: list[dict[str, Any]]) -> None:
    with pytest.raises(LedgerFault, match="while full-1 was there"):
        check_turned_away([*before, turned_away(10), said(15, LOST)])
