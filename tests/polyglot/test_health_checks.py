"""Health as load balancers ask for it: Envoy's own requests, header by header, and through nginx.

Envoy itself is on no package index of ours. What its health checker sends is written in its sources
(`source/extensions/health_checkers/grpc`, `Grpc::Common::prepareHeaders`): a POST over HTTP/2 with prior knowledge, no
`grpc-timeout`, no key; the connection is kept for the next check; a GOAWAY makes it open another one.
"""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from helpers.eventually import eventually
from helpers.raw_grpc import RawStream, raw_connection
from helpers.router_process import Process, run_process
from ssop_cli.embedded import free_port

SERVING: Final = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
ROUTER: Final = "ssop.v1.RouterService"
PATIENCE_S: Final = 60.0
NGINX: Final = """
daemon off; pid {folder}/pid; error_log {folder}/error.log; worker_processes 1;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{ listen {target} http2; location / {{ grpc_pass grpc://{router}; grpc_read_timeout 1h; }} }}
}}
"""


def envoy_headers(method: str = "Check", authority: str = "ssop_routers") -> dict[str, str]:
    """What Envoy sends; the authority is the name of its cluster, unless the check is given another."""
    return {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/grpc.health.v1.Health/{method}",
        ":authority": authority,
        "content-type": "application/grpc",
        "te": "trailers",
        "user-agent": "Envoy/HC",
    }


def asked(service: str) -> bytes:
    """The message of a check."""
    return bytes(health_pb2.HealthCheckRequest(service=service).SerializeToString())


def said(stream: RawStream) -> list[int]:
    """The states that arrived."""
    return [health_pb2.HealthCheckResponse.FromString(message).status for message in stream.messages()]


@asynccontextmanager
async def _router(folder: Path) -> AsyncIterator[tuple[str, Process]]:
    target = f"127.0.0.1:{free_port()}"
    async with run_process(folder, listen=[f"unix:{folder}/router.sock", target]) as process:
        yield target, process


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[str, Process]]:
    """Address of a router, and the router."""
    async with _router(tmp_path) as found:
        yield found


async def test_envoy_sees_a_router_that_serves_on_one_connection_for_all_checks(served: tuple[str, Process]) -> None:
    async with raw_connection(served[0]) as connection:
        for _ in range(20):
            for service in ("", ROUTER):
                stream = await connection.until_ended(connection.open(envoy_headers(), asked(service)))
                assert stream.headers[":status"] == "200"
                assert stream.headers["content-type"].startswith("application/grpc")
                assert stream.trailers["grpc-status"] == "0"
                assert said(stream) == [SERVING]
        assert not connection.has_goaway


async def test_envoy_is_told_of_a_service_that_is_not_here(served: tuple[str, Process]) -> None:
    async with raw_connection(served[0]) as connection:
        stream = await connection.until_ended(connection.open(envoy_headers(), asked("unheard.of")))
    # Envoy takes whatever is not 0 for unhealthy.
    assert (stream.headers | stream.trailers)["grpc-status"] == "5"
    assert said(stream) == []


async def test_envoy_sees_a_drain_before_the_connection_ends(served: tuple[str, Process]) -> None:
    target, process = served
    async with raw_connection(target) as connection:
        process.terminate()

        async def is_told() -> bool:
            stream = await connection.until_ended(connection.open(envoy_headers(), asked("")))
            return said(stream) == [NOT_SERVING] or connection.has_goaway

        async with asyncio.timeout(PATIENCE_S):
            while not await is_told():
                await asyncio.sleep(0.01)


async def test_a_watch_by_envoys_headers_tells_of_the_drain_and_ends(served: tuple[str, Process]) -> None:
    target, process = served
    async with raw_connection(target) as connection:
        stream = connection.open(envoy_headers("Watch"), asked(""))
        await eventually(lambda: said(stream) == [SERVING], timeout_s=PATIENCE_S)
        process.terminate()
        await connection.until_ended(stream, PATIENCE_S)
    assert said(stream) == [SERVING, NOT_SERVING]


@pytest.mark.parametrize(
    "broken",
    [
        {":path": "/grpc.health.v1.Health/Unheard"},
        {":method": "GET"},
        {"grpc-timeout": "nonsense"},
    ],
    ids=["method", "verb", "timeout"],
)
async def test_checks_that_are_none_are_refused_and_harm_nobody(
    served: tuple[str, Process], broken: dict[str, str]
) -> None:
    async with raw_connection(served[0]) as connection:
        stream = await connection.until_ended(connection.open({**envoy_headers(), **broken}, asked("")))
        # grpc.aio reads a time-out that is none as no time-out.
        assert said(stream) == ([SERVING] if "grpc-timeout" in broken and stream.trailers else [])
    async with raw_connection(served[0]) as connection:
        assert said(await connection.until_ended(connection.open(envoy_headers(), asked("")))) == [SERVING]


@pytest.mark.needs("nginx")
async def test_nginx_passes_checks_and_watches_on(served: tuple[str, Process], tmp_path: Path) -> None:
    router, process = served
    folder = tmp_path / "nginx"
    folder.mkdir()
    target = f"127.0.0.1:{free_port()}"
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, target=target, router=router))
    nginx = subprocess.Popen(["nginx", "-e", str(folder / "start.log"), "-c", str(config)])
    try:
        await eventually((folder / "pid").exists, timeout_s=PATIENCE_S)
        async with grpc.aio.insecure_channel(target) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest(service=ROUTER)
            assert (await health.Check(request, timeout=PATIENCE_S, wait_for_ready=True)).status == SERVING
            states = []
            async for response in health.Watch(request, timeout=PATIENCE_S):
                states.append(response.status)
                if len(states) == 1:
                    process.terminate()
            assert states == [SERVING, NOT_SERVING]
    finally:
        nginx.terminate()
        await asyncio.to_thread(nginx.wait, 30)
