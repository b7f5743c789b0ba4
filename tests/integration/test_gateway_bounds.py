"""The edge against clients that are malformed, huge, slow or many."""

# ruff: noqa: F401, F811 - fixtures are imported, and named again as arguments
import asyncio
import contextlib
import json

import httpx
import pytest
from grpc_health.v1 import health, health_pb2_grpc

from helpers.answers import PERSON_SCHEMA
from helpers.eventually import eventually
from helpers.gateway import KEY, SSOP, Gateway, gateway, http, open_client, router_address, run_gateway, scripted
from helpers.scripted_router import ScriptedRouter, as_script, serve

HEAD = f"POST /v1/generate HTTP/1.1\r\nhost: e\r\nauthorization: Bearer {KEY}\r\ncontent-type: {SSOP}\r\n".encode()


async def send(gateway: Gateway, data: bytes, *, timeout_s: float = 60) -> bytes:
    """Send bytes, and read until the edge closes the connection."""
    reader, writer = await gateway.open()
    try:
        writer.write(data)
        async with asyncio.timeout(timeout_s):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_a_body_over_the_limit_is_413_that_names_it(scripted: ScriptedRouter, router_address: str) -> None:
    async with run_gateway(router_address, max_body_bytes=1_000) as gateway, open_client(gateway) as client:
        response = await client.post("/v1/generate", content=b"x" * 1_001, headers={"content-type": SSOP})
        assert (response.status_code, response.json()["error"]["metadata"]) == (413, {"limit_bytes": "1000"})
        exact = json.dumps({"prompt": ""}).encode()
        exact = json.dumps({"prompt": "x" * (1_000 - len(exact)), "streaming": True}).encode()[:0] or exact
        assert (await client.post("/v1/generate", content=exact, headers={"content-type": SSOP})).status_code != 413
    assert len(scripted.requests) <= 1


async def test_a_body_without_an_end_is_413_too(scripted: ScriptedRouter, router_address: str) -> None:
    async with run_gateway(router_address, max_body_bytes=1_000) as gateway:
        chunk = b"100\r\n" + b"x" * 256 + b"\r\n"
        answer = await send(gateway, HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunk * 40)
    assert answer.startswith(b"HTTP/1.1 413")


async def test_bodies_that_are_too_many_together_are_429_and_leave_room_again(
    scripted: ScriptedRouter, router_address: str
) -> None:
    size = 200_000
    async with run_gateway(router_address, max_held_bytes=300_000) as gateway, open_client(gateway) as client:
        _, writer = await gateway.open()
        writer.write(HEAD + f"content-length: {size}\r\n\r\n".encode() + b"x" * (size - 1))
        await writer.drain()
        large = json.dumps({"prompt": "x" * size}).encode()

        async def status() -> int:
            return (await client.post("/v1/generate", content=large, headers={"content-type": SSOP})).status_code

        async with asyncio.timeout(60):
            while await status() != 429:
                await asyncio.sleep(0.02)
        writer.close()
        async with asyncio.timeout(60):
            while await status() != 200:
                await asyncio.sleep(0.02)


async def test_a_body_that_trickles_is_408(scripted: ScriptedRouter, router_address: str) -> None:
    async with run_gateway(router_address, body_timeout_ms=50) as gateway:
        answer = await send(gateway, HEAD + b"content-length: 10\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("start", [b"", b"GET / HTTP/1.1\r\nx: "], ids=["silent", "half a head"])
async def test_a_head_that_does_not_come_is_not_waited_for(
    scripted: ScriptedRouter, router_address: str, start: bytes
) -> None:
    async with run_gateway(router_address, idle_timeout_ms=1_000) as gateway:
        assert await send(gateway, start) == b""


async def test_a_head_that_trickles_is_cut_off(scripted: ScriptedRouter, router_address: str) -> None:
    async with run_gateway(router_address, idle_timeout_ms=1_000) as gateway:
        reader, writer = await gateway.open()

        async def trickle() -> None:
            while not writer.is_closing():
                writer.write(b"x")
                await asyncio.sleep(0.1)

        writer.write(b"GET / HTTP/1.1\r\nx: ")
        task = asyncio.ensure_future(trickle())
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        task.cancel()
        writer.close()


async def test_a_head_over_the_limit_is_431(http: httpx.AsyncClient) -> None:
    assert (await http.get("/healthz", headers={"x": "x" * 20_000})).status_code == 431


async def test_a_head_without_an_end_is_400(gateway: Gateway) -> None:
    answer = await send(gateway, b"GET /healthz HTTP/1.1\r\nhost: e\r\nx: " + b"x" * 100_000)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /v1/generate HTTP/1.1\r\nhost: e\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/generate HTTP/1.1\r\nhost: e\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_400(gateway: Gateway, data: bytes) -> None:
    assert b" 400 " in await send(gateway, data)


async def test_a_body_that_turns_out_to_be_no_http_ends_its_request(
    gateway: Gateway, scripted: ScriptedRouter, caplog: pytest.LogCaptureFixture
) -> None:
    data = HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n"
    assert (await send(gateway, data + b"no size\r\n")).startswith(b"HTTP/1.1 400")
    # The refusal of a request without a key races with that of its body.
    keyless = data.replace(KEY.encode(), b"")
    await asyncio.gather(*(send(gateway, keyless + b"zz\r\n") for _ in range(20)))
    await eventually(lambda: gateway.metric("http_server_active_requests") == 0)
    assert "Exception in ASGI" not in caplog.text


async def test_two_framings_at_once_smuggle_nothing(gateway: Gateway, scripted: ScriptedRouter) -> None:
    inner = b"GET /healthz HTTP/1.1\r\nhost: e\r\n\r\n"
    size = str(len(inner) + 5).encode()
    data = (
        HEAD
        + b"content-length: "
        + size
        + b"\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n0\r\n\r\n"
        + inner
    )
    assert b'"ok"' not in await send(gateway, data)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/generate", 405),
        ("BREW", "/v1/generate", 405),
        ("POST", "/healthz", 405),
        ("GET", "/nothing", 404),
        ("POST", "/v1/generate/", 404),
        ("GET", "/v1/%2e%2e/healthz", 404),
        ("HEAD", "/healthz", 200),
    ],
)
async def test_paths_and_methods_that_are_not_there(
    http: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    response = await http.request(method, path)
    assert response.status_code == status
    assert response.headers["x-request-id"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": SSOP, "content-encoding": "gzip"}, 415),
        ({"content-type": SSOP, "accept": "image/png"}, 406),
        ({"content-type": SSOP, "x-request-id": "a b"}, 400),
        ({"content-type": SSOP, "x-request-timeout-ms": "soon"}, 400),
        ({"content-type": SSOP, "x-request-timeout-ms": "0"}, 400),
        ({"content-type": SSOP, "authorization": "Basic x"}, 401),
    ],
)
async def test_headers_that_can_not_be_served(
    http: httpx.AsyncClient, scripted: ScriptedRouter, headers: dict[str, str], status: int
) -> None:
    body = json.dumps({"prompt": "x", "output_schema": PERSON_SCHEMA}).encode()
    response = await http.post("/v1/generate", content=body, headers=headers)
    assert response.status_code == status
    assert not scripted.requests


async def test_other_origins_get_no_access_by_default(http: httpx.AsyncClient) -> None:
    response = await http.get("/healthz", headers={"origin": "https://evil.example"})
    assert "access-control-allow-origin" not in response.headers


async def test_an_origin_of_the_list_may_call(scripted: ScriptedRouter, router_address: str) -> None:
    origin = {"origin": "https://app.example"}
    wish = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    async with (
        run_gateway(router_address, cors_origins=["https://app.example"]) as gateway,
        open_client(gateway) as client,
    ):
        asked = await client.options("/v1/generate", headers={**origin, **wish})
        other = await client.options("/v1/generate", headers={**wish, "origin": "https://evil.example"})
    assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, "https://app.example")
    assert other.status_code == 400


async def test_readiness_follows_the_router(router_address: str) -> None:
    router = ScriptedRouter(as_script([]))
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, router.server)
    async with (
        serve(router, router_address),
        # The router is in this process, and so is what may hold it up.
        run_gateway(router_address, ready_timeout_ms=30_000) as gateway,
        open_client(gateway) as client,
    ):
        await servicer.set("", 1)
        assert (await client.get("/readyz")).status_code == 200
        await servicer.set("", 2)
        assert (await client.get("/readyz")).status_code == 503
        await servicer.set("", 1)
        gateway.readiness.is_draining = True
        assert (await client.get("/readyz")).json() == {"status": "draining"}


async def test_metrics_count_by_route_and_never_by_path(http: httpx.AsyncClient) -> None:
    for path in ("/a", "/b", "/healthz"):
        await http.get(path)
    text = (await http.get("/metrics")).text
    assert 'http_route="/healthz"' in text
    assert 'http_route="/a"' not in text


async def test_many_clients_that_leave_half_way_leave_nothing_behind(
    gateway: Gateway, scripted: ScriptedRouter
) -> None:
    body = json.dumps({"prompt": "x"}).encode()

    async def leave(cut: int) -> None:
        _, writer = await gateway.open()
        writer.write((HEAD + f"content-length: {len(body)}\r\n\r\n".encode() + body)[:cut])
        await writer.drain()
        writer.close()

    size = len(HEAD) + 40
    await asyncio.gather(*(leave(size * i // 60) for i in range(1, 61)))
    await eventually(lambda: scripted.in_flight == 0)
    await eventually(lambda: gateway.metric("http_server_active_requests") == 0)
