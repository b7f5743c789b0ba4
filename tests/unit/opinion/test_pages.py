"""What the page asks: whose answers they are, what is refused, and what a watcher sees."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from helpers.eventually import eventually
from helpers.opinion_page import KEY, LOST_KEY, OTHER, OTHER_KEY, STRANGER_KEY, Opinion, run_opinion
from helpers.opinion_posts import make_post, make_record
from ssop_opinion.feed import MAX_EVENTS, MAX_OF_TENANT, Watcher
from ssop_opinion.key_check import MAX_KEYS, KeyCheck, KeyRefusedError
from ssop_sdk.errors import AuthenticationError

pytestmark = pytest.mark.asyncio(loop_scope="module")
LONG_S = 60.0
PATHS = [
    ("GET", "/v1/opinion/records"),
    ("GET", "/v1/opinion/record?key=acme/shop/1"),
    ("GET", "/v1/opinion/summary"),
    ("GET", "/v1/opinion/alerts"),
    ("POST", "/v1/opinion/alerts/x/acknowledge"),
    ("GET", "/v1/opinion/channels"),
    ("GET", "/v1/opinion/events"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opinion(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opinion]:
    folder: Path = tmp_path_factory.mktemp("opinion")
    async with run_opinion(folder) as found:
        now_ms = time.time_ns() // 1_000_000
        for number in range(3):
            await found.take(make_record(make_post(str(number), at_ms=now_ms - number * 1_000)), fields_first=True)
        await found.take(make_record(make_post("d", at_ms=now_ms, text="degraded one"), degraded_level=2))
        await found.take(make_record(make_post("f", at_ms=now_ms), verdict="failed", reason="TIMEOUT"))
        await found.take(make_record(make_post("1", at_ms=now_ms, tenant=OTHER, text="of the other")))
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def client(opinion: Opinion) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=opinion.url, verify=False, timeout=LONG_S) as found:
        yield found


def by(key: str = KEY) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def get(client: httpx.AsyncClient, path: str, key: str = KEY) -> Any:
    response = await client.get(path, headers=by(key))
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ({}, 401, "KEY_INVALID"),
        ({"authorization": "Bearer nonsense"}, 401, "KEY_INVALID"),
        (by("ssop_ann_wrong"), 401, "KEY_INVALID"),
        (by(STRANGER_KEY), 403, "TENANT_UNKNOWN"),
        (by(LOST_KEY), 503, "MESH_UNAVAILABLE"),
    ],
)
async def test_nothing_is_told_without_a_key_of_a_tenant(
    client: httpx.AsyncClient, method: str, path: str, headers: dict[str, str], status: int, reason: str
) -> None:
    response = await client.request(method, path, headers=headers)
    assert (response.status_code, response.json()["error"]["reason"]) == (status, reason)


async def test_records_are_those_of_the_keys_tenant(client: httpx.AsyncClient) -> None:
    mine = await get(client, "/v1/opinion/records")
    theirs = await get(client, "/v1/opinion/records", OTHER_KEY)
    assert {one["post"]["tenant"] for one in mine["records"]} == {"acme"}
    assert (mine["total"], theirs["total"]) == (5, 1)


@pytest.mark.parametrize("term", ["tenant:globex", "key:globex/shop/1"])
async def test_no_term_reaches_another_tenant(client: httpx.AsyncClient, term: str) -> None:
    found = await get(client, f"/v1/opinion/records?term={term}")
    assert all(one["post"]["tenant"] == "acme" for one in found["records"])


async def test_a_record_of_another_tenant_is_not_there(client: httpx.AsyncClient) -> None:
    response = await client.get("/v1/opinion/record", params={"key": "globex/shop/1"}, headers=by())
    assert response.status_code == 404
    assert (await get(client, "/v1/opinion/record?key=globex/shop/1", OTHER_KEY))["record"]["key"] == "globex/shop/1"


async def test_nobody_acknowledges_what_is_of_another_tenant(client: httpx.AsyncClient) -> None:
    (alert,) = (await get(client, "/v1/opinion/alerts", OTHER_KEY))["alerts"]
    response = await client.post(f"/v1/opinion/alerts/{alert['id']}/acknowledge", headers=by())
    assert (response.status_code, response.json()["error"]["reason"]) == (409, "ALERT_NOT_OPEN")


async def test_an_alert_is_acknowledged_in_the_keys_name(client: httpx.AsyncClient) -> None:
    (alert,) = (await get(client, "/v1/opinion/alerts"))["alerts"]
    response = await client.post(f"/v1/opinion/alerts/{alert['id']}/acknowledge", headers=by())
    assert response.status_code == 200
    assert (await get(client, "/v1/opinion/alerts"))["alerts"][0]["acknowledged_by"] == "ann"


async def test_a_record_comes_with_its_frames(client: httpx.AsyncClient) -> None:
    found = await get(client, "/v1/opinion/record?key=acme/shop/1")
    assert [one["name"] for one in found["frames"]][:2] == ["main_entity", "entity_type"]
    assert found["record"]["analysis"]["request_id"] == "r-1"


async def test_degraded_and_failed_records_are_apart_in_figures(client: httpx.AsyncClient) -> None:
    found = await get(client, "/v1/opinion/summary?hours=1")
    assert (found["fresh"]["posts"], found["degraded"]["by_level"], found["failed"]["by_verdict"]) == (
        3, {"2": 1}, {"failed": 1},
    )  # fmt: skip
    assert sum(one["posts"] for one in found["series"]) == 3
    assert found["entities"][0]["name"] == "X200"


async def test_records_may_be_those_that_are_fresh(client: httpx.AsyncClient) -> None:
    assert (await get(client, "/v1/opinion/records?fresh=1"))["total"] == 3


@pytest.mark.parametrize(
    "query",
    [
        "limit=0x10",
        "limit=201",
        "limit=-1",
        "offset=10000",
        "term=none",
        "text=" + "x" * 257,
        "since_ms=1e9",
        "limit=²",
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(client: httpx.AsyncClient, query: str) -> None:
    response = await client.get(f"/v1/opinion/records?{query}", headers=by())
    assert (response.status_code, response.json()["error"]["reason"]) == (400, "REQUEST_INVALID")


async def test_records_that_cannot_be_read_are_503(opinion: Opinion, client: httpx.AsyncClient) -> None:
    opinion.sink.is_away = True
    try:
        response = await client.get("/v1/opinion/records", headers=by())
    finally:
        opinion.sink.is_away = False
    assert (response.status_code, response.json()["error"]["reason"]) == (503, "SINK_UNAVAILABLE")


async def test_answers_are_kept_by_no_cache(client: httpx.AsyncClient) -> None:
    for _, path in PATHS[:4]:
        response = await client.get(path, headers=by())
        assert response.headers["cache-control"] == "no-store"


async def test_the_page_loads_nothing_from_elsewhere(client: httpx.AsyncClient) -> None:
    for name in ("", "/opinion.css", "/opinion.js", "/charts.js", "/events.js"):
        response = await client.get(f"/opinion{name}")
        assert response.status_code == 200
        assert response.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert "innerHTML" not in response.text


async def test_a_watcher_sees_its_tenants_events_alone(opinion: Opinion, client: httpx.AsyncClient) -> None:
    async with client.stream("GET", "/v1/opinion/events", headers=by()) as response:
        lines = response.aiter_lines()
        assert (await anext(lines)).startswith(":")
        await opinion.take(make_record(make_post("x", tenant=OTHER)), fields_first=True)
        await opinion.take(make_record(make_post("y"), main_entity="Y"), fields_first=True)
        seen: list[Any] = []
        async with asyncio.timeout(LONG_S):
            while not any(one["type"] == "record" for one in seen):
                line = await anext(lines)
                if line.startswith("data: "):
                    seen.append(json.loads(line[6:]))
    assert next(one["name"] for one in seen if one["type"] == "field") == "main_entity"
    assert {one.get("key", "acme/shop/y") for one in seen} == {"acme/shop/y"}
    assert next(one for one in seen if one["type"] == "record")["record"]["key"] == "acme/shop/y"


async def test_a_key_that_is_revoked_watches_no_longer(
    opinion: Opinion, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client.stream("GET", "/v1/opinion/events", headers=by()) as response:
        lines = response.aiter_lines()
        await anext(lines)
        monkeypatch.setattr("ssop_opinion.pages.KEEPALIVE_S", 0.0)

        async def refuse(*_: Any) -> Any:
            raise KeyRefusedError

        monkeypatch.setattr(KeyCheck, "reader", refuse)
        # Events that come all the time must not keep it alive.
        opinion.desk.feed.tell("acme", {"type": "alert", "event": "opened", "id": "x"})
        async with asyncio.timeout(LONG_S):
            assert [line async for line in lines]


async def test_a_tenant_has_a_bounded_number_of_watchers_and_frees_them(
    opinion: Opinion, client: httpx.AsyncClient
) -> None:
    feed = opinion.desk.feed
    await eventually(lambda: not feed._watchers, LONG_S)
    held = [feed.watch("acme") for _ in range(MAX_OF_TENANT)]
    for one in held:
        one.__enter__()
    assert (await client.get("/v1/opinion/events", headers=by())).status_code == 503
    for one in held:
        one.__exit__(None, None, None)
    async with client.stream("GET", "/v1/opinion/events", headers=by()) as response:
        assert response.status_code == 200
        await eventually(lambda: bool(feed._watchers), LONG_S)
    await eventually(lambda: not feed._watchers, LONG_S)


async def test_a_watcher_that_is_slow_loses_the_oldest_and_is_told() -> None:
    watcher = Watcher()
    for number in range(MAX_EVENTS + 5):
        watcher.put({"type": "n", "n": number})
    first, second, *_ = await watcher.take()
    assert (first, second) == ({"type": "lost", "count": 5}, {"type": "n", "n": 5})


async def test_the_mesh_is_asked_once_about_a_key_until_its_word_is_old() -> None:
    asked: list[str] = []
    now = [0.0]

    async def ask(key: str) -> str:
        asked.append(key)
        if key == "ssop_b_x":
            raise AuthenticationError("unknown")
        return "acme"

    check = KeyCheck(ask, 30_000, lambda: now[0])
    for at in (0.0, 29_000.0, 30_000.0):
        now[0] = at
        assert (await check.reader("Bearer ssop_a_x")).key_id == "a"
        with pytest.raises(KeyRefusedError):
            await check.reader("Bearer ssop_b_x")
    # A refusal is believed for five seconds, another answer for thirty.
    assert (asked.count("ssop_a_x"), asked.count("ssop_b_x")) == (2, 2)
    for number in range(2 * MAX_KEYS):
        await check.reader(f"Bearer ssop_a_{number}")
    assert len(check._known) == MAX_KEYS
