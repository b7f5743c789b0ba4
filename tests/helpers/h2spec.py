"""h2spec against the HTTP/2 layer of the native transport: `h2spec` as a program, and the servers that it asks."""

import asyncio
import re
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
ANSWERED: Final = (
    "http2/4.2/1",
    "http2/5.1/13",
    "http2/6.5.3/1",
    "http2/6.9.1/1",
    "http2/6.9.2/1",
    "http2/6.9.2/2",
    "http2/6.10/1",
)
"""Cases that want an answer, beside those of `generic`. The others are about requests that run."""
EXCEPTIONS: Final = ("http2/5.1/8", "http2/5.1/9", "http2/5.1/11", "http2/5.1/12", "http2/5.1.1/2")
"""Cases that fail; docs/interop.md says why."""
_PARTS: Final = {"Generic": "generic", "Hypertext": "http2", "HPACK": "hpack"}


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


def list_cases() -> list[str]:
    """The names of all cases, such as `http2/5.1/8`."""
    said = subprocess.run(["h2spec", "--dryrun"], capture_output=True, text=True, timeout=60, check=True).stdout
    names, part, section = [], "", ""
    for line in said.splitlines():
        word = line.partition(" ")[0].rstrip(":")
        if word in _PARTS:
            part = _PARTS[word]
        elif found := re.match(r" +([0-9.]+)\. ", line):
            section = found[1]
        elif found := re.match(r" +([0-9]+): ", line):
            names.append(f"{part}/{section}/{found[1]}")
    return names


async def run(port: int, folder: Path, names: Sequence[str]) -> list[tuple[str, bool]]:
    """What the cases with these names are about, in h2spec's words, and whether each passed."""
    report = folder / "h2spec.xml"
    command = ["h2spec", "-h", "127.0.0.1", "-p", str(port), "-o", str(TIMEOUT_S), "-j", str(report), *names]
    await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=300, check=False)
    return [
        (f"{case.get('package')} {case.get('classname')}", case.find("failure") is None and case.find("error") is None)
        for case in ET.parse(report).getroot().iter("testcase")
        if case.find("skipped") is None
    ]
