"""A Redis or Valkey under a service manager: `python -m ssop_cache.redis_unit CONFIG`.

Redis itself feeds no watchdog and, from a wheel, says nothing of its start. This starts it with its configuration file,
says READY when it has read its data and answers, and feeds the watchdog for as long as it answers. The configuration
must name a `unixsocket`; a password does not matter, since a refusal is an answer. REDIS_SERVER names the program,
where it is not the first one that is found.
"""

import asyncio
import ctypes
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Final

from ssop_cache.redis_process import RedisBinaryError, find_redis_binary
from ssop_chassis import logs
from ssop_chassis.notify import Manager

EXIT_SETTINGS: Final = 78
"""EX_CONFIG of sysexits.h: a restart won't help."""
PERIOD_S: Final = 0.5
"""How often it is asked."""
ANSWER_S: Final = 5.0
"""Longest wait for one answer; the watchdog bears several."""
_PR_SET_PDEATHSIG: Final = 1
_LOADING: Final = b"-LOADING"
_libc: Final = ctypes.CDLL(None)
_log = logging.getLogger(__name__)


def find_socket(config: Path) -> Path:
    """The `unixsocket` of a configuration. Raises ValueError where there is none, and OSError."""
    for line in config.read_text(encoding="utf-8").splitlines():
        words = line.split()
        if len(words) == 2 and words[0].lower() == "unixsocket":
            return Path(words[1].strip("\"'"))
    raise ValueError(f"{config} names no unixsocket")


async def ping(socket: Path) -> bytes:
    """What the server says to PING, one line. Raises OSError, TimeoutError."""
    async with asyncio.timeout(ANSWER_S):
        reader, writer = await asyncio.open_unix_connection(socket)
        try:
            writer.write(b"PING\r\n")
            return await reader.readline()
        finally:
            writer.close()


async def run_unit(config: Path, socket: Path, binary: Path, manager: Manager) -> int:
    """Run the server until it ends, or SIGTERM or SIGINT ends it; its exit code, 128 and the number for a signal."""
    process = await asyncio.create_subprocess_exec(binary, config, stdin=asyncio.subprocess.DEVNULL, preexec_fn=_leash)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        manager.stopping("saving and ending")
        process.terminate()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    watching = asyncio.create_task(_watch(socket, manager))
    try:
        code = await process.wait()
    finally:
        watching.cancel()
    return code if code >= 0 else 128 - code


def _leash() -> None:
    # Who only killed this process would else leave a server that holds the socket and the data.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


async def _watch(socket: Path, manager: Manager) -> None:
    is_ready = False
    while True:
        try:
            answer = await ping(socket)
        except (OSError, TimeoutError) as error:
            if is_ready:
                _log.warning("Redis does not answer", extra={"cause": type(error).__name__})
        else:
            # While it reads its data it is alive and not yet of use.
            is_loaded = not answer.startswith(_LOADING)
            if answer:
                manager.feed()
            if answer and is_loaded and not is_ready:
                is_ready = True
                manager.ready(f"serving at unix:{socket}")
        await asyncio.sleep(PERIOD_S)


def main() -> None:
    """Run until told to stop."""
    logs.configure("redis", "info")
    try:
        config = Path(sys.argv[1])
        socket = find_socket(config)
        binary = find_redis_binary(os.environ.get("REDIS_SERVER"))
    except (IndexError, OSError, ValueError, RedisBinaryError) as error:
        _log.critical("Redis can't run: %s", error or "no configuration file is given")
        sys.exit(EXIT_SETTINGS)
    sys.exit(asyncio.run(run_unit(config, socket, binary, Manager())))


if __name__ == "__main__":
    main()
