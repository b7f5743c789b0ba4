"""What the level on the host takes while changes come: nothing that may be from before them."""

from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from helpers.eventually import eventually
from ssop_cache.answers import AnswerStore, Fresh
from ssop_cache.core.changes import Change
from ssop_cache.core.keys import Layout
from ssop_cache.core.records import AnswerRecord, encode_record
from ssop_cache.core.scripts import ScriptCall
from ssop_cache.local import LocalLevel
from ssop_cache.metrics import CacheMetrics
from ssop_cache.store import RedisStore
from ssop_codec.constants import CODEC_VERSION, WIRE_VERSION

KEY = b"\1" * 32
LAYOUT = Layout(WIRE_VERSION, CODEC_VERSION)
TAG = LAYOUT.of_tenant("acme").tag
RECORD = encode_record(AnswerRecord("acme", WIRE_VERSION, CODEC_VERSION, "small", b"chunk"))
METRICS = CacheMetrics(CollectorRegistry())


class ScriptedStore:
    """Answers each script with what is set; `meanwhile` runs while the answer is on its way."""

    def __init__(self, **replies: Any) -> None:
        self.replies = replies
        self.meanwhile: Callable[[], None] = lambda: None

    async def run(self, call: ScriptCall, timeout_s: float | None = None) -> Any:
        self.meanwhile()
        return self.replies[call.script]


@pytest.fixture
async def level() -> AsyncIterator[LocalLevel]:
    state = ScriptedStore(read_changes=[1, b"e" * 16, 7])
    cache = ScriptedStore(read_flush_epoch=[b"run", b"mark", 0])
    made = LocalLevel(
        cast("RedisStore", state),
        cast("RedisStore", cache),
        METRICS,
        max_bytes=100_000,
        directory=None,
        sync_interval_ms=10,
        unsynced_ms=60_000,
        wall_ms=lambda: 1_000,
    )
    yield made
    await made.close()


def answers_of(level: LocalLevel, store: ScriptedStore) -> AnswerStore:
    redis = cast("RedisStore", store)
    return AnswerStore(redis, LAYOUT, METRICS, state=redis, local=level)


async def test_what_was_taken_before_the_first_news_is_forgotten(level: LocalLevel) -> None:
    await answers_of(level, ScriptedStore(find_answers=[[0, 1, 5_000, 0, RECORD]])).find("acme", KEY)
    assert len(level.answers) == 1
    level.start()
    await eventually(lambda: level.is_synced)
    assert level.find_all([((TAG, KEY), 0)]) == [None]


async def test_answer_that_was_dropped_while_it_was_read_is_not_kept(level: LocalLevel) -> None:
    store = ScriptedStore(find_answers=[[0, 1, 5_000, 0, RECORD]])
    store.meanwhile = lambda: level.apply(Change(TAG, KEY, 2**53))
    await answers_of(level, store).find("acme", KEY)
    assert len(level.answers) == 0


async def test_answer_that_was_dropped_while_it_was_stored_is_not_kept(level: LocalLevel) -> None:
    store = ScriptedStore(put_answers=[1])
    store.meanwhile = lambda: level.apply(Change(TAG, KEY, 2**53))
    assert await answers_of(level, store).put_all("acme", [Fresh(KEY, 2, b"chunk", "small", 5_000)]) == [True]
    assert len(level.answers) == 0


async def test_older_answer_goes_where_the_newer_one_is_left_to_redis(level: LocalLevel) -> None:
    store = ScriptedStore(put_answers=[1])
    answers = answers_of(level, store)
    await answers.put_all("acme", [Fresh(KEY, 1, b"chunk", "small", 5_000)])
    store.meanwhile = lambda: level.apply(Change(TAG, b"\2" * 32, 5))
    await answers.put_all("acme", [Fresh(KEY, 2, b"chunk", "small", 5_000)])
    assert len(level.answers) == 0


async def test_look_up_does_not_wait_for_ever_to_hear_of_changes(level: LocalLevel) -> None:
    # As if whoever follows the log hung.
    level._caught_up.clear()
    found = await answers_of(level, ScriptedStore(find_answers=[[0, 1, 5_000, 0, RECORD]])).find("acme", KEY)
    assert found is not None
    assert found.chunk == b"chunk"
