"""The servers that the mesh starts for itself: each role as its command line makes it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.redis_server import EVERY_REDIS, RedisServer


@pytest.mark.parametrize("version", EVERY_REDIS)
@pytest.mark.parametrize(
    ("role", "policy", "appendonly"), [("cache", "allkeys-lfu", "no"), ("state", "noeviction", "yes")]
)
def test_server_has_the_settings_of_its_role(version: str, role: str, policy: str, appendonly: str) -> None:
    with RedisServer(role, version) as server:  # type: ignore[arg-type]
        names = ("maxmemory-policy", "appendonly", "port", "save", "maxmemory")
        settings = {name: server.setting(name) for name in names}
    assert settings == {
        "maxmemory-policy": policy,
        "appendonly": appendonly,
        "port": "0",
        "save": "",
        "maxmemory": str(32 * 1024 * 1024),
    }


@pytest.mark.parametrize("version", EVERY_REDIS)
def test_socket_is_its_users_alone(version: str) -> None:
    with RedisServer("state", version) as server:
        assert server.socket.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("version", EVERY_REDIS)
def test_state_is_on_disk_before_the_answer(version: str) -> None:
    with RedisServer("state", version) as server:
        server.ask("SET", "k", "v")
        server.kill()
        server.start()
        assert server.ask("GET", "k") == b"v"


@pytest.mark.parametrize("version", EVERY_REDIS)
def test_cache_leaves_nothing_on_disk(version: str) -> None:
    with RedisServer("cache", version) as server:
        server.ask("SET", "k", "v")
        server.stop()
        assert [path for path in server.socket.parent.iterdir() if not path.is_socket()] == []
        server.start()
        assert server.ask("GET", "k") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the user, which takes root")
def test_server_runs_as_an_ordinary_user(tmp_path: Path) -> None:
    setpriv = shutil.which("setpriv")
    assert setpriv is not None
    server = RedisServer("state")
    folder = server.socket.parent
    os.chown(folder, 65534, 65534)
    prefix = [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups"]
    binary = tmp_path / "server"
    shutil.copy(server.binary, binary)
    for path in (binary, *list(tmp_path.parents)[:3]):
        if path.owner() == "root" and path != Path("/tmp"):
            path.chmod(0o755)
    try:
        server.start(prefix=prefix, binary=binary)
        assert server.ask("PING") is True
    finally:
        server.kill()
        shutil.rmtree(folder)


def test_socket_path_that_is_too_long_is_named(tmp_path: Path) -> None:
    # What the server itself would do: fail, or bind a truncated name.
    from ssop_cache.redis_process import bundled_redis_binary, redis_command  # noqa: PLC0415

    binary = bundled_redis_binary()
    assert binary is not None
    with pytest.raises(ValueError, match="a unix socket's may have 107"):
        redis_command(binary, "state", tmp_path, Path("/tmp", "x" * 103), 32)
    longest = Path("/tmp", "x" * 102)
    command = redis_command(binary, "state", tmp_path, longest, 32)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        with RedisServer.connected(longest) as client:
            assert client.ping()
    finally:
        process.kill()
        process.wait()
        longest.unlink()
