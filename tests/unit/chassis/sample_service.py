"""A whole service process for tests: echoes, and hangs on demand. Run with `--config`."""

import asyncio
import sys
from contextlib import AsyncExitStack

from ssop_chassis.call import Arity, Call, Method, Service
from ssop_chassis.serving import Process, Serving, run_service
from ssop_chassis.settings import Settings


class SampleSettings(Settings):
    """Section `router`, borrowed."""

    listen: str = "127.0.0.1:0"


async def slow_echo(call: Call) -> None:
    """Say `started` at once; write the request when standard input is closed."""
    await call.write(b"started")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await call.write(call.request)


async def build(process: Process[SampleSettings], stack: AsyncExitStack) -> Serving:
    """One method; says when its resources close."""
    stack.callback(print, "closed", flush=True)
    service = Service("test.T", [Method("/test.T/M", Arity.SERVER_STREAM, slow_echo)])
    return Serving([service], [process.settings.listen], drain=lambda: print("draining", flush=True))


if __name__ == "__main__":
    run_service("router", SampleSettings, build)
