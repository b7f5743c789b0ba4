"""A service process from start to drain."""

import asyncio
import hashlib
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2

from ssop_chassis.errors import MeshError
from ssop_chassis.grpc_peer import connect
from ssop_chassis.identity import Principal, Signer
from ssop_chassis.serving import wall_clock_ms
from ssop_chassis.settings import EXIT_SETTINGS

SCRIPT = Path(__file__).with_name("sample_service.py")
SECRET = hashlib.sha256(b"a secret for tests").digest()
SIGNED = Signer(SECRET, "test", wall_clock_ms).metadata(Principal("acme", "k1"))


Start = Callable[..., Awaitable[asyncio.subprocess.Process]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts the sample service with more lines for its settings; ends it after the test, whatever happened."""
    started: list[asyncio.subprocess.Process] = []

    async def run(toml: str = "") -> asyncio.subprocess.Process:
        (tmp_path / "secret").write_text(SECRET.hex())
        config = tmp_path / "ssop.toml"
        config.write_text(f'[mesh]\nsecret_file = "{tmp_path}/secret"\n[router]\nlisten = "unix:{tmp_path}/s"\n{toml}')
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(SCRIPT), "--config", str(config), stdin=pipe, stdout=pipe, stderr=pipe
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def log_until(process: asyncio.subprocess.Process, message: str) -> dict[str, object]:
    assert process.stderr is not None
    async for line in process.stderr:
        record: dict[str, object] = json.loads(line)
        if record["message"] == message:
            return record
    raise AssertionError(f"the process ended before it said '{message}'")


async def test_drain_lets_running_calls_finish_and_takes_no_new_ones(tmp_path: Path, start: Start) -> None:
    process = await start()
    await log_until(process, "ready")
    peer = connect(f"unix:{tmp_path}/s")
    messages: list[bytes] = []
    running = asyncio.Event()

    def take(message: bytes) -> None:
        messages.append(message)
        running.set()

    call = asyncio.ensure_future(peer.stream("/test.T/M", b"late", take, timeout_s=30, metadata=SIGNED))
    await running.wait()
    process.send_signal(signal.SIGTERM)
    await log_until(process, "draining")
    fresh = connect(f"unix:{tmp_path}/s")

    async def is_refused() -> bool:
        try:
            await fresh.unary("/grpc.health.v1.Health/Check", b"", timeout_s=1)
        except MeshError:
            return True
        return False

    # The log says `draining` a moment before the server stops to listen.
    while not await is_refused():
        pass
    await fresh.close()
    assert process.stdin is not None
    process.stdin.close()
    await call
    await peer.close()
    assert messages == [b"started", b"late"]
    assert await process.wait() == 0
    assert process.stdout is not None
    assert await process.stdout.read() == b"draining\nclosed\n"


async def test_health_serves_without_a_principal(tmp_path: Path, start: Start) -> None:
    process = await start()
    await log_until(process, "ready")
    peer = connect(f"unix:{tmp_path}/s")
    answer = await peer.unary("/grpc.health.v1.Health/Check", b"", timeout_s=5)
    await peer.close()
    process.terminate()
    assert await process.wait() == 0
    assert health_pb2.HealthCheckResponse.FromString(answer).status == health_pb2.HealthCheckResponse.SERVING


async def test_bad_settings_end_the_process_with_a_message_and_no_traceback(tmp_path: Path, start: Start) -> None:
    process = await start("lisen = 1")
    _, errors = await process.communicate()
    assert process.returncode == EXIT_SETTINGS
    assert b"lisen" in errors
    assert b"Traceback" not in errors


async def test_address_in_use_is_said(tmp_path: Path, start: Start) -> None:
    (tmp_path / "s").mkdir()
    process = await start()
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"can't listen" in errors


async def test_service_manager_hears_of_ready_and_of_the_drain(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "n"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "n"))
        process = await start()
        await log_until(process, "ready")
        process.terminate()
        assert await process.wait() == 0
        end.setblocking(False)
        told = [end.recv(4096).split(b"\n")[0] for _ in range(3)]
    assert told == [b"STATUS=warming up", b"READY=1", b"STOPPING=1"]
