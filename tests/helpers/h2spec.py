"""h2spec against the HTTP/2 layer of the native transport: `h2spec` as a program, and the servers that it asks."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

from ssop_chassis.call import Arity, Call, Method, Service
from ssop_chassis.dispatch import Dispatcher, inner_authenticate
from ssop_transport._stream import Stream
from ssop_transport.life import Lives
from ssop_transport.server import NativeServer

TIMEOUT_S: Final = 20
HELD: Final = ("http2/5.1/5", "http2/5.1.2/1")
"""Cases about requests that run; a server that answers at once has none."""
EXCEPTIONS: Final = ("http2/5.1/8", "http2/5.1/9", "http2/5.1/11", "http2/5.1/12", "http2/5.1.1/2")
"""Cases that fail; docs/interop.md says why."""


class _Answering(NativeServer):
    """Answers h2spec's requests, which are no calls: ours would say 405, and a case wants data."""

    def _begin(self, connection: Any, stream: Stream) -> None:
        stream.listener = lambda: None
        stream.respond([(b":status", b"200")])
        stream.write(b"here")
        stream.finish([(b"x-end", b"here")])


class _Holding(NativeServer):
    """Never answers."""

    def _begin(self, connection: Any, stream: Stream) -> None:
        stream.listener = lambda: None


async def _nothing(_: Call) -> None:
    """Serves a call."""


@asynccontextmanager
async def serving(*, is_holding: bool = False) -> AsyncIterator[int]:
    """A server that answers at once, or never; yields its port."""
    kind: type[NativeServer] = _Holding if is_holding else _Answering
    server = kind(
        [Service("test.T", [Method("/test.T/M", Arity.UNARY, _nothing, needs_principal=False)])],
        Dispatcher(inner_authenticate(bytes(32)), None),
        default_timeout_s=60,
        max_session_s=60,
        max_message_bytes=1_000_000,
        max_concurrent_calls=100,
        lives=Lives(0, 0, 0),
        choice="none",
    )
    await server.listen("127.0.0.1:0", None)
    try:
        yield int(server.addresses[0].rpartition(":")[2])
    finally:
        await server.stop(0)


async def run(port: int, folder: Path, cases: Sequence[str]) -> dict[str, bool]:
    """Whether each case passed, by names such as `http2/5.1/8`; no cases: all of them."""
    report = folder / "h2spec.xml"
    await asyncio.to_thread(
        subprocess.run,
        ["h2spec", "-h", "127.0.0.1", "-p", str(port), "-o", str(TIMEOUT_S), "-j", str(report), *cases],
        capture_output=True,
        timeout=300,
        check=False,
    )
    found: dict[str, bool] = {}
    for suite in ET.parse(report).getroot().iter("testsuite"):
        for number, case in enumerate(suite.findall("testcase"), 1):
            if case.find("skipped") is None:
                is_bad = case.find("failure") is not None or case.find("error") is not None
                found[f"{suite.get('package')}/{number}"] = not is_bad
    return found
