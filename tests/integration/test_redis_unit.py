"""A Redis under a service manager, played by a socket: what it hears while the server starts, hangs, dies and ends."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from helpers.eventually import eventually

LIMIT_S = 60


@dataclass
class Unit:
    """A running unit and what it told so far."""

    process: asyncio.subprocess.Process
    end: socket.socket
    told: list[str] = field(default_factory=list)

    def hears(self, text: str) -> bool:
        """Whether the manager has been told this by now."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.told += self.end.recv(4096).decode().splitlines()
        return text in self.told

    def forget(self) -> None:
        """Start anew, with what comes from now on."""
        self.hears("")
        self.told.clear()

    def server(self) -> int:
        """Process id of the Redis."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0])


@pytest.fixture
async def unit(tmp_path: Path) -> AsyncIterator[Unit]:
    """A unit that is ready."""
    config = tmp_path / "redis.conf"
    config.write_text(f'port 0\nunixsocket {tmp_path}/r.sock\ndir {tmp_path}\nsave ""\nappendonly yes\n')
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "notify"))
        end.setblocking(False)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ssop_cache.redis_unit", str(config)),
            env=os.environ | {"NOTIFY_SOCKET": str(tmp_path / "notify")},
            stdout=asyncio.subprocess.DEVNULL,
        )
        running = Unit(process, end)
        try:
            await eventually(lambda: running.hears("READY=1"), LIMIT_S)
            yield running
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def test_watchdog_is_fed_while_redis_answers_and_not_while_it_hangs(unit: Unit) -> None:
    await eventually(lambda: unit.hears("WATCHDOG=1"), LIMIT_S)
    os.kill(unit.server(), signal.SIGSTOP)
    try:
        unit.forget()
        # One answer may have been on its way; after it there is silence, however slow the machine is.
        await asyncio.sleep(3)
        unit.hears("WATCHDOG=1")
        assert unit.told.count("WATCHDOG=1") <= 1
    finally:
        os.kill(unit.server(), signal.SIGCONT)
    unit.forget()
    await eventually(lambda: unit.hears("WATCHDOG=1"), LIMIT_S)


async def test_stop_lets_redis_end_by_itself(unit: Unit) -> None:
    unit.process.terminate()
    assert await unit.process.wait() == 0
    assert unit.hears("STOPPING=1")


async def test_redis_that_is_killed_ends_the_unit_as_a_failure(unit: Unit) -> None:
    os.kill(unit.server(), signal.SIGKILL)
    assert await unit.process.wait() == 128 + signal.SIGKILL


async def test_redis_does_not_outlive_its_unit(unit: Unit) -> None:
    server = unit.server()
    unit.process.kill()
    await unit.process.wait()
    await eventually(lambda: not Path(f"/proc/{server}/exe").exists(), LIMIT_S)


async def test_configuration_without_a_socket_is_refused_for_good(tmp_path: Path) -> None:
    config = tmp_path / "redis.conf"
    config.write_text("port 0\n")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ssop_cache.redis_unit", str(config)), stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert (process.returncode, b"names no unixsocket" in errors) == (78, True)
