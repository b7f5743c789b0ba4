"""The shipped nginx.conf in front of a real router: streams, sessions, events, limits, certificates, reloads."""

import asyncio
import json
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from helpers.eventually import eventually
from helpers.gateway import run_gateway
from helpers.h2_flood import Flood, flood
from helpers.hostile_clients import Attack, hostile_clients
from helpers.nginx import LIMIT_S, Front, make_certificate, run_front, write_front
from helpers.router_process import Process, run_process
from helpers.scripted_node import GOOD, SCHEMA, encode, node_status_chunk
from ssop_chassis.call import Call
from ssop_cli.embedded import free_port
from ssop_sdk import AsyncSsopClient
from ssop_sdk.errors import GenerationInterrupted, SsopError
from ssop_sdk.target import Tls

pytestmark = [pytest.mark.needs("nginx"), pytest.mark.needs("openssl")]


@dataclass
class Stand:
    """A front, the router behind it, and a client of the front."""

    front: Front
    router: Process
    client: AsyncSsopClient
    http: httpx.AsyncClient

    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.router.key}"}

    async def answer(self, text: str = "How is it?") -> Any:
        return await self.client.generate(text, output_schema=SCHEMA).result()


def trust(front: Front) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(front.ca))


@asynccontextmanager
async def open_stand(folder: Path, **options: Any) -> AsyncIterator[Stand]:
    """All of it; the options are those of the front."""
    async with AsyncExitStack() as stack:
        address = f"127.0.0.1:{free_port()}"
        listen = [f"unix:{folder}/router.sock", address]
        router = await stack.enter_async_context(run_process(folder, listen=listen))
        gateway = await stack.enter_async_context(run_gateway(f"unix:{folder}/router.sock"))
        options = {"routers": [address], "gateway": f"127.0.0.1:{gateway.port}", **options}
        front = await stack.enter_async_context(run_front(folder, **options))
        tls = Tls(root_certificates=front.ca, server_name="localhost")
        client = await stack.enter_async_context(AsyncSsopClient(router.key, front.url, tls=tls, timeout_s=LIMIT_S))
        http = await stack.enter_async_context(
            httpx.AsyncClient(base_url=front.url, verify=trust(front), timeout=LIMIT_S)
        )
        yield Stand(front, router, client, http)


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    async with open_stand(tmp_path) as made:
        yield made


def held(after: int, go_on: asyncio.Event) -> Any:
    """A script of a node that sends some chunks, and the rest when it is told to."""
    chunks = encode(GOOD)

    async def script(call: Call, _: Any) -> None:
        await call.write(node_status_chunk())
        for chunk in chunks[:after]:
            await call.write(chunk)
        await go_on.wait()
        for chunk in chunks[after:]:
            await call.write(chunk)

    return script


def memory_mib(front: Front) -> float:
    """Resident memory of the workers."""
    lines = [line for pid in front.workers() for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def script_all(stand: Stand, script: Any) -> None:
    for node in stand.router.nodes.values():
        node.script = script


def test_nginx_takes_what_is_shipped(tmp_path: Path) -> None:
    make_certificate(tmp_path, "front")
    config = write_front(tmp_path, free_port(), routers=["127.0.0.1:7300", "127.0.0.1:7301"])
    nginx = shutil.which("nginx") or "/usr/sbin/nginx"
    done = subprocess.run(
        [nginx, "-t", "-e", "stderr", "-c", config], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


async def test_answer_comes_checked_over_tls(stand: Stand) -> None:
    assert await stand.answer() == json.loads(GOOD)


async def test_fields_come_while_the_model_still_writes(stand: Stand) -> None:
    go_on = asyncio.Event()
    script_all(stand, held(2, go_on))
    stream = stand.client.generate("How is it?", output_schema=SCHEMA)
    async for frame in stream:
        if frame.path:
            # The rest is written only now, so the front has not waited for it.
            go_on.set()
    assert await stream.result() == json.loads(GOOD)


async def test_session_carries_several_requests_on_one_stream(stand: Stand) -> None:
    answers = [answer async for answer in stand.client.generate_many(["One?", "Two?", "Three?"], output_schema=SCHEMA)]
    assert len(answers) == 3


async def test_events_come_while_the_model_still_writes(stand: Stand) -> None:
    go_on = asyncio.Event()
    script_all(stand, held(2, go_on))
    body = {"messages": [{"role": "user", "content": "How is it?"}], "output_schema": SCHEMA}
    headers = stand.headers() | {"content-type": "application/x-ssop+json", "accept": "text/event-stream"}
    seen = ""
    async with stand.http.stream("POST", "/v1/generate", json=body, headers=headers) as answer:
        assert answer.status_code == 200
        async for text in answer.aiter_text():
            seen += text
            if "mood" in seen:
                go_on.set()
    assert "VERDICT_OK" in seen or '"ok"' in seen


async def test_reload_cuts_no_stream(stand: Stand) -> None:
    go_on = asyncio.Event()
    script_all(stand, held(2, go_on))
    asking = asyncio.ensure_future(stand.answer())
    await eventually(lambda: any(node.running for node in stand.router.nodes.values()), LIMIT_S)
    await stand.front.reload()
    go_on.set()
    assert await asking == json.loads(GOOD)


async def test_limit_of_an_address_is_resource_exhausted_to_grpc_and_429_to_http(tmp_path: Path) -> None:
    changes = {"rate=500r/s": "rate=1r/m", "burst=1000": "burst=1"}
    async with open_stand(tmp_path, changes=changes) as stand:
        await stand.answer()
        await stand.answer()
        with pytest.raises(SsopError, match="the front limits the rate") as caught:
            await stand.answer()
        assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        refused = await stand.http.get("/healthz")
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "RATE_LIMITED")
        assert refused.headers["retry-after"] == "1"


async def test_limit_of_a_key_leaves_others_alone(tmp_path: Path) -> None:
    async with open_stand(tmp_path, changes={"rate=200r/s": "rate=1r/m", "burst=400": "burst=1"}) as stand:
        statuses = [
            (await stand.http.get("/v1/models", headers={"authorization": f"Bearer {key}"})).status_code
            for key in ("one", "one", "one", "two")
        ]
    assert statuses == [401, 401, 429, 401]


async def test_router_that_is_gone_is_passed_over(tmp_path: Path) -> None:
    async with open_stand(tmp_path) as stand:
        gone = f"127.0.0.1:{free_port()}"
        upstreams = stand.front.folder / "upstreams.conf"
        upstreams.write_text(
            upstreams.read_text().replace("    least_conn;\n", f"    least_conn;\n    server {gone};\n")
        )
        await stand.front.reload()
        assert [await stand.answer() for _ in range(4)] == [json.loads(GOOD)] * 4


async def test_router_that_dies_behind_the_front_interrupts_the_answers_it_has_begun(stand: Stand) -> None:
    go_on = asyncio.Event()
    script_all(stand, held(2, go_on))
    stream = stand.client.generate("How is it?", output_schema=SCHEMA)
    await anext(stream)
    stand.router.kill()
    with pytest.raises(GenerationInterrupted, match="the connection was lost"):
        await stream.result()
    go_on.set()


async def test_no_router_at_all_is_unavailable_and_says_so(tmp_path: Path) -> None:
    async with open_stand(tmp_path, routers=[f"127.0.0.1:{free_port()}"]) as stand:
        with pytest.raises(SsopError, match="no router can be reached") as caught:
            await stand.answer()
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE


async def test_health_is_that_of_a_router(stand: Stand) -> None:
    credentials = grpc.ssl_channel_credentials(stand.front.ca.read_bytes())
    async with grpc.aio.secure_channel(f"localhost:{stand.front.port}", credentials) as channel:
        check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
        # SERVING, as field 1.
        assert await check(b"", timeout=LIMIT_S, wait_for_ready=True) == b"\x08\x01"


async def test_client_without_a_certificate_is_refused_where_one_is_wanted(tmp_path: Path) -> None:
    make_certificate(tmp_path, "client")
    listen = f"ssl_client_certificate {tmp_path}/client.pem;\nssl_verify_client on;\n"
    async with open_stand(tmp_path, listen=listen) as stand:
        without = await stand.http.get("/healthz")
        with pytest.raises(SsopError):
            await stand.answer()
        tls = Tls(stand.front.ca, tmp_path / "client.pem", tmp_path / "client.key", "localhost")
        async with AsyncSsopClient(stand.router.key, stand.front.url, tls=tls, timeout_s=LIMIT_S) as client:
            assert await client.generate("How is it?", output_schema=SCHEMA).result() == json.loads(GOOD)
    assert without.status_code == 400


async def test_routers_are_called_over_tls_where_they_speak_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_certificate(tmp_path, "mesh")
    certificate, key = f"{tmp_path}/mesh.pem", f"{tmp_path}/mesh.key"
    tls = {"certificate_file": certificate, "key_file": key, "ca_file": certificate, "mutual": ["router"]}
    monkeypatch.setenv("SSOP_MESH_TLS", json.dumps(tls))
    to_routers = (
        f"grpc_pass grpcs://ssop_routers;\ngrpc_ssl_certificate {certificate};\ngrpc_ssl_certificate_key {key};\n"
        f"grpc_ssl_trusted_certificate {certificate};\ngrpc_ssl_verify on;\ngrpc_ssl_name localhost;\n"
    )
    async with open_stand(tmp_path, to_routers=to_routers) as stand:
        assert await stand.answer() == json.loads(GOOD)


async def test_streams_that_are_opened_and_reset_cost_others_nothing_and_no_memory(stand: Stand) -> None:
    await stand.answer()
    before_mib = memory_mib(stand.front)
    count = Flood()
    path = "/ssop.v1.RouterService/Generate"
    flooding = asyncio.create_task(flood(stand.front.port, str(stand.front.ca), "x", count, per_s=10_000, path=path))
    try:
        await eventually(lambda: count.streams > 2_000, LIMIT_S)
        assert [await stand.answer() for _ in range(5)] == [json.loads(GOOD)] * 5
        await eventually(lambda: count.streams > 12_000, LIMIT_S)
    finally:
        flooding.cancel()
    # More than `keepalive_requests`: the front has sent it away at least once.
    assert count.connections > 1
    assert memory_mib(stand.front) < before_mib + 100


async def test_posts_go_to_the_opinion_application(tmp_path: Path) -> None:
    heads: list[bytes] = []
    body = b'{"text": "fine"}'

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        # Who closes before the body has come resets the connection, and nginx may see that before the answer.
        await reader.readexactly(len(body))
        writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    opinion = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, open_stand(tmp_path, opinion=opinion) as stand:
        taken = await stand.http.post("/v1/opinion/posts", content=body)
    assert (taken.status_code, heads[0].split(b" ")[1]) == (202, b"/v1/opinion/posts")


async def test_metrics_are_for_the_host_alone(tmp_path: Path) -> None:
    async with open_stand(tmp_path, changes={"allow 127.0.0.1;": "allow 192.0.2.1;"}) as stand:
        assert (await stand.http.get("/metrics")).status_code == 403


async def test_metrics_are_served_on_the_host(stand: Stand) -> None:
    assert (await stand.http.get("/metrics")).status_code == 200


async def test_streams_that_nobody_reads_cost_others_nothing_and_little_memory(stand: Stand) -> None:
    await stand.answer()
    before_mib = memory_mib(stand.front)
    attack = Attack(stand.front.port, str(stand.front.ca), stand.router.key, json.dumps(SCHEMA), unread=150)
    with hostile_clients(attack) as hostile:
        await eventually(lambda: hostile.count().streams == attack.unread, LIMIT_S)
        assert [await stand.answer() for _ in range(5)] == [json.loads(GOOD)] * 5
        assert memory_mib(stand.front) < before_mib + 100
