"""A native server in a process of its own, to be stopped and killed: `python echo_process.py NAME`.

It prints where it listens. `/test.T/Name` answers with its name, `/test.T/Slow` after the milliseconds that it is told.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ssop_chassis.call import Arity, Call, Method, Service
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.transport import server_starter


class EchoProcess:
    """A server that runs."""

    def __init__(self, name: str) -> None:
        self.name = name
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
        self._process = subprocess.Popen(
            [sys.executable, __file__, name], stdout=subprocess.PIPE, text=True, env=environ
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()

    def freeze(self) -> None:
        """Let it neither run nor die."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it without a word."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End what is left of it."""
        self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def echo_processes(*names: str) -> Iterator[list[EchoProcess]]:
    """A server for each name."""
    found: list[EchoProcess] = []
    try:
        found.extend(map(EchoProcess, names))
        yield found
    finally:
        for process in found:
            process.close()


async def _serve(name: str) -> None:
    async def tell(call: Call) -> None:
        await call.write(name.encode())

    async def tell_late(call: Call) -> None:
        await asyncio.sleep(int(call.request) / 1000)
        await call.write(name.encode())

    service = Service(
        "test.T",
        [
            Method("/test.T/Name", Arity.UNARY, tell, needs_principal=False),
            Method("/test.T/Slow", Arity.UNARY, tell_late, needs_principal=False),
        ],
    )
    server = await server_starter("native", "test")(
        [service], ["127.0.0.1:0"], authenticate=inner_authenticate(bytes(32))
    )
    print(server.addresses[0], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
