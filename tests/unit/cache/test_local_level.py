"""What the level on the host takes while changes come: nothing that may be from before them."""

from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from helpers.eventually import eventually
from ssop.v1.errors_pb2 import ErrorReason
from ssop_cache.answers import AnswerStore, Fresh
from ssop_cache.core.changes import Change
from ssop_cache.core.keys import Layout
from ssop_cache.core.records import AnswerRecord, encode_record
from ssop_cache.core.scripts import ScriptCall
from ssop_cache.local import LocalLevel
from ssop_cache.metrics import CacheMetrics
from ssop_cache.store import RedisStore
from ssop_chassis.errors import MeshError
from ssop_codec.constants import CODEC_VERSION, WIRE_VERSION

KEY = b"\1" * 32
LAYOUT = Layout(WIRE_VERSION, CODEC_VERSION)
TAG = LAYOUT.of_tenant("acme").tag
RECORD = encode_record(AnswerRecord("acme", WIRE_VERSION, CODEC_VERSION, "small", b"chunk"))
REGISTRY = CollectorRegistry()
METRICS = CacheMetrics(REGISTRY)


class ScriptedStore:
    """Answers each script with what is set; `meanwhile` runs while the answer is on its way."""

    def __init__(self, **replies: Any) -> None:
        self.replies = replies
        self.meanwhile: Callable[[], None] = lambda: None
        self.calls: list[ScriptCall] = []

    async def run(self, call: ScriptCall, timeout_s: float | None = None) -> Any:
        self.meanwhile()
        self.calls.append(call)
        reply = self.replies[call.script]
        if isinstance(reply, MeshError):
            raise reply
        return reply


def make_level(state: ScriptedStore) -> LocalLevel:
    cache = ScriptedStore(read_flush_epoch=[b"run", b"mark", 0])
    return LocalLevel(
        cast("RedisStore", state),
        cast("RedisStore", cache),
        METRICS,
        max_bytes=100_000,
        directory=None,
        sync_interval_ms=10,
        unsynced_ms=60_000,
        wall_ms=lambda: 1_000,
    )


@pytest.fixture
async def level() -> AsyncIterator[LocalLevel]:
    made = make_level(ScriptedStore(read_changes=[1, b"e" * 16, 7]))
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


async def test_one_look_up_ends_the_rest(level: LocalLevel) -> None:
    level.start()
    await eventually(lambda: level.is_synced)
    # As if nobody had looked anything up for long.
    level._unused_s, level._is_used = 60.0, False
    await eventually(lambda: level.is_resting)
    await answers_of(level, ScriptedStore(find_answers=[None])).find("acme", KEY)
    assert not level.is_resting


@pytest.mark.parametrize("stored", [1, 2])
async def test_others_hear_of_what_was_replaced_just_before_the_end(stored: int) -> None:
    state = ScriptedStore(log_changes=1)
    level = make_level(state)
    store = ScriptedStore(put_answers=[stored])
    await answers_of(level, store).put_all("acme", [Fresh(KEY, 2, b"chunk", "small", 5_000)])
    await level.close()
    assert [call.args[-3:] for call in state.calls] == [(TAG, KEY, 2)] * (stored - 1)


async def test_end_that_nobody_can_be_told_of_is_counted() -> None:
    gone = MeshError(ErrorReason.ERROR_REASON_STORE_UNAVAILABLE, "the state store does not answer")
    level = make_level(ScriptedStore(log_changes=gone))
    answers = answers_of(level, ScriptedStore(put_answers=[2]))
    await answers.put_all("acme", [Fresh(KEY, 2, b"chunk", "small", 5_000)])
    await level.close()
    assert REGISTRY.get_sample_value("ssop_cache_local_faults_total", {"kind": "untold"}) == 1
