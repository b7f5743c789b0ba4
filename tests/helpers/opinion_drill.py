"""Kills under load: a whole mesh with a replayed model, processes that die by -9 at random moments, and a checker.

Two tenants send. Senders try each post until it is accepted, as senders do; the checker then holds the sink against
what was accepted.
"""

import asyncio
import json
import os
import random
import secrets
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
from rich.console import Console

from helpers.live_mesh import wait_until
from helpers.opinion import SECRET
from ssop_cli.opinion_load_mesh import LoadOptions, load_mesh
from ssop_cli.opinion_load_posts import read_records
from ssop_cli.opinion_mesh import KEY_ID, make_tenant, opinion_folder, webhook_secret
from ssop_cli.places import Places, find_places
from ssop_cli.report import read_report
from ssop_opinion.core.signature import sign
from ssop_opinion.queue import POSTS, SUM_OF_POSTS, SUMS
from ssop_opinion.webhook import PATH

VICTIMS: Final = ("opinion", "router", "redis-state", "inference", "cache", "redis-cache")
SECOND_KEY_ID: Final = "second"
_SENDERS: Final = 8
_READY_S: Final = 120.0


@dataclass(frozen=True)
class Key:
    """A key that signs webhooks."""

    id: str
    secret: bytes


@dataclass
class Drill:
    """What to do: `posts` in all, `kills` at seeded moments among them, one in four of the posts sent twice."""

    posts: int
    kills: Sequence[str]
    seed: int = 1
    pause_s: float = 0.0
    killed: list[str] = field(default_factory=list)


def run_drill(folder: Path, drill: Drill) -> dict[str, int]:
    """Send, kill, wait, check. Fails unless every accepted post is in the sink exactly once, and nothing else is."""
    places = find_places(folder / "state", os.environ)
    options = LoadOptions(p50_ms=60, p99_ms=150, seed=drill.seed, drain_timeout_s=180)
    _make_second_tenant(places)
    with load_mesh(places, options, Console(stderr=True, quiet=True)) as url:
        asyncio.run(_send_all(places, drill, url))
        wait_until(lambda: _is_ready(places), _READY_S, "all that was killed is back")
        wait_until(lambda: _queued(places) == 0, 180, "the queue is empty")
        kept = read_records(opinion_folder(places) / "records.db", {})
        keys, verdicts = kept.keys, kept.verdicts
    assert keys == {f"d-{number}" for number in range(drill.posts)}
    # The key is unique in the table: as many rows as posts is each of them once.
    assert sum(verdicts.values()) == drill.posts
    return verdicts


def _make_second_tenant(places: Places) -> None:
    """A tenant beside the one of the mesh, who uses the same key of it."""
    folder = make_tenant(places)
    (folder / "second.secret").write_text(SECRET + "\n")
    key = {"id": SECOND_KEY_ID, "secret_file": "second.secret"}
    (folder / "second.json").write_text(json.dumps({"api_key_file": str(places.client_key), "webhook_keys": [key]}))


def _is_ready(places: Places) -> bool:
    report = read_report(places.report)
    return report is not None and report.phase == "ready"


def _queued(places: Places) -> int:
    import redis  # noqa: PLC0415

    try:
        with redis.Redis(unix_socket_path=str(places.socket("redis-state")), socket_timeout=5) as client:
            return int(client.hget(SUMS, SUM_OF_POSTS) or 0) + int(client.xlen(POSTS))
    except redis.RedisError:
        return -1


async def _send_all(places: Places, drill: Drill, url: str) -> None:
    rng = random.Random(drill.seed)
    numbers = [number for number in range(drill.posts) for _ in range(2 if rng.random() < 0.25 else 1)]
    rng.shuffle(numbers)
    at = sorted(rng.sample(range(len(numbers)), len(drill.kills)))
    plan = dict(zip(at, drill.kills, strict=True))
    queue = iter(enumerate(numbers))
    first = Key(KEY_ID, webhook_secret(places).read_text().strip().encode())
    keys = (first, Key(SECOND_KEY_ID, SECRET.encode()))
    async with httpx.AsyncClient(base_url=url, timeout=10) as client:

        async def work() -> None:
            for place, number in queue:
                if place in plan:
                    await asyncio.to_thread(_kill, places, plan[place])
                    drill.killed.append(plan[place])
                await _send(client, keys[number % 2], number)
                await asyncio.sleep(drill.pause_s)

        async with asyncio.timeout(600), asyncio.TaskGroup() as group:
            for _ in range(_SENDERS):
                group.create_task(work())


async def _send(client: httpx.AsyncClient, key: Key, number: int) -> None:
    """Send a post until it is accepted; each try is signed anew."""
    body = json.dumps({"id": f"d-{number}", "text": f"Brand {number % 7} says {number} again"}).encode()
    while True:
        timestamp, nonce = str(int(time.time())), secrets.token_hex(12)
        headers = {
            "content-type": "application/json",
            "x-ssop-key": key.id,
            "x-ssop-timestamp": timestamp,
            "x-ssop-nonce": nonce,
            "x-ssop-signature": sign(key.secret, timestamp, nonce, body),
        }
        try:
            reply = await client.post(PATH, content=body, headers=headers)
        except httpx.HTTPError:
            await asyncio.sleep(0.1)
            continue
        if reply.status_code == 202:
            return
        assert reply.status_code in {429, 503}, reply.text
        await asyncio.sleep(0.1)


def _kill(places: Places, name: str) -> None:
    """kill -9, once the child runs; the supervisor starts it again."""

    def pid() -> int:
        report = read_report(places.report)
        children = report.children if report is not None else []
        return next((child.pid for child in children if child.name == name and child.state == "ready"), 0)

    wait_until(lambda: pid() > 0, _READY_S, f"{name} runs")
    try:
        os.kill(pid(), signal.SIGKILL)
    except ProcessLookupError:
        return
