"""Stored answers of a whole mesh while its Redis is frozen."""

import signal
import time

from helpers.live_mesh import LiveMesh, wait_until
from helpers.machine import stretched
from ssop.v1.mesh_pb2 import CACHE_LEVEL_LOCAL, DeliveryStatus
from ssop_sdk import SsopClient

MOOD = {
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad"]}},
    "required": ["mood"],
    "additionalProperties": False,
}
STORES = ("redis-state", "redis-cache")


def ask(client: SsopClient) -> DeliveryStatus:
    stream = client.generate("A frozen day is a good day.", output_schema=MOOD)
    stream.result()
    assert stream.status is not None
    return stream.status


def test_host_answers_at_once_and_flagged_while_both_redis_are_frozen(mesh: LiveMesh, client: SsopClient) -> None:
    wait_until(lambda: ask(client).served_by == "cache", 60, "the answer is stored")
    pids = {name: mesh.signal(name, signal.SIGSTOP) for name in STORES}
    try:
        # The first request waits for Redis as long as it may.
        wait_until(lambda: ask(client).served_by == "cache", 60, "the host answers")
        started_s = time.monotonic()
        found = [ask(client) for _ in range(10)]
        assert [status.cache_level for status in found] == [CACHE_LEVEL_LOCAL] * 10
        assert all("cache" in status.unavailable for status in found)
        assert time.monotonic() - started_s < stretched(5)
    finally:
        for name in STORES:
            mesh.signal(name, signal.SIGCONT)
    assert {name: mesh.child(name).pid for name in STORES} == pids
    wait_until(lambda: not ask(client).unavailable, 60, "Redis is asked again")
