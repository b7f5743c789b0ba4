"""Stored answers in a terminal: where one came from, and what the levels hold."""

from typing import Any

import pytest
from rich.text import Text

from ssop.v1.cache_admin_pb2 import CacheStats
from ssop.v1.mesh_pb2 import CACHE_LEVEL_LOCAL, CACHE_LEVEL_SHARED, Decision, DeliveryStatus
from ssop.v1.router_pb2 import GetMeshStatusResponse
from ssop_cache.core.fill import Fill
from ssop_cli.ask import delivery_json, delivery_line
from ssop_cli.cache import cache_json, cache_lines, state_line
from ssop_cli.mesh import Access, decision_json
from ssop_cli.status import status_view

STATS = CacheStats(
    has_local=True,
    local_answers=3,
    local_bytes=1 << 20,
    local_max_bytes=64 << 20,
    is_local_kept=True,
    is_local_synced=True,
    local_hits=1_200,
    shared_hits=7,
    misses=5,
    similar_hits=2,
    similar_refusals={"number": 4, "negation": 1},
)


def line(**status: Any) -> str:
    decision = decision_json(Decision(request_id="r"))
    delivery = delivery_json(DeliveryStatus(**status))
    return delivery_line({"decision": decision, "delivery": delivery, "accounting": {}})


@pytest.mark.parametrize(
    ("level", "words"),
    [(CACHE_LEVEL_LOCAL, "from the cache's host, 5 s old"), (CACHE_LEVEL_SHARED, "from Redis, 5 s old")],
)
def test_line_says_where_a_stored_answer_came_from(level: int, words: str) -> None:
    assert words in line(cache_level=level, age_ms=5_000, is_cached=True)


def test_line_says_that_the_question_was_another_one() -> None:
    assert "answer to a similar question (0.970)" in line(cache_level=CACHE_LEVEL_SHARED, similarity=0.97)


def test_line_of_a_generated_answer_names_no_level() -> None:
    assert "Redis" not in line(served_by="full-1")


def test_levels_have_a_line_each() -> None:
    assert cache_lines(STATS) == [
        "host   1,200 hits, 3 answers, 1.0 of 64 MiB, kept on disk",
        "Redis  7 hits",
        "none   5 look-ups",
        "near   2 similar answers; told apart: negation 1, number 4",
    ]


def test_host_that_hears_nothing_says_so() -> None:
    stats = CacheStats(has_local=True)
    assert "in memory only, hears of no changes" in cache_lines(stats)[0]


def test_stats_as_json() -> None:
    found = cache_json(STATS)
    assert found["local"]["hits"] == 1_200
    assert found["similar"] == {"hits": 2, "refusals": {"negation": 1, "number": 4}}


def test_state_says_what_it_uses_of_what_it_may() -> None:
    assert state_line(Fill(96 << 20, 512 << 20)) == "96.0 of 512 MiB"


def test_state_that_fills_up_says_what_comes_of_it() -> None:
    line = state_line(Fill(400 << 20, 512 << 20))
    assert line.startswith("400.0 of 512 MiB: once it is full, requests go on without admission")


def test_state_without_a_bound_has_no_line() -> None:
    assert not state_line(Fill(96 << 20, 0))


def test_status_tells_of_a_state_that_fills_up() -> None:
    stats = CacheStats(state_used_bytes=400 << 20, state_max_bytes=512 << 20)
    view = status_view(None, GetMeshStatusResponse(cache=stats), Access("127.0.0.1:7300", "k"), 0)
    lines = [part for part in view.renderables if isinstance(part, Text) and part.plain.startswith("state of limits")]
    assert [str(line.style) for line in lines] == ["red"]


def test_state_as_json() -> None:
    stats = CacheStats(state_used_bytes=9, state_max_bytes=10)
    assert cache_json(stats)["state"] == {"used_bytes": 9, "max_bytes": 10, "is_filling": True}
