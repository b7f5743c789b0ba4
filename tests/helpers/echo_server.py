"""A server of the native transport that answers at once, with what it was given: the floor below which no mesh gets.

`python -m helpers.echo_server ADDRESS FILE`; the file holds a list of messages in base64.
"""

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvloop

from helpers.load_requests import GENERATE, with_tests
from ssop_chassis.call import Arity, Call, Method, Service
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.transport import server_starter
from ssop_cli.embedded import free_port


async def serve(address: str, messages: Sequence[bytes]) -> None:
    """Serve until killed."""

    async def answer(call: Call) -> None:
        for message in messages:
            await call.write(message)

    method = Method(GENERATE, Arity.SERVER_STREAM, answer, needs_principal=False)
    service = Service("ssop.v1.RouterService", [method])
    authenticate = inner_authenticate(bytes(32))
    await server_starter("native", "echo")([service], [address], authenticate=authenticate, max_concurrent_calls=4_096)
    print("serving", flush=True)
    await asyncio.Event().wait()


@contextmanager
def running_echo(folder: Path, messages: Sequence[bytes]) -> Iterator[tuple[str, int]]:
    """A server on a port of loopback until the block ends: its address and its process."""
    held = folder / "echo.json"
    held.write_text(json.dumps([base64.b64encode(message).decode() for message in messages]))
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [sys.executable, "-m", "helpers.echo_server", address, str(held)],
        stdout=subprocess.PIPE,
        env=with_tests(os.environ),
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"serving\n"
        yield address, process.pid
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], [base64.b64decode(text) for text in json.loads(Path(sys.argv[2]).read_text())]))
