"""Hostile clients of a front as a process of their own: `python -m helpers.hostile_clients JSON`. See `Attack`.

They come from another address of this machine, which has limits of its own, and run as `nice` as they are told, since
real ones are on other machines. A line of standard input is answered by what they did so far.
"""

import asyncio
import json
import os
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from helpers.h2_flood import Flood, flood
from helpers.raw_http2 import END_HEADERS, HEADERS, PREFACE, SETTINGS, block, frame, message
from ssop.v1 import content_pb2, router_pb2

PATH: Final = "/ssop.v1.RouterService/Generate"
ADDRESS: Final = "127.0.0.2"
_TESTS: Final = Path(__file__).resolve().parents[1]
_STREAMS_OF_ONE: Final = 100
_INITIAL_WINDOW: Final = 4
_OPENED_PER_S: Final = 150
"""Below the rate of one key at the front."""


@dataclass(frozen=True, slots=True)
class Attack:
    """Streams that are opened and reset, so many a second, or so many that are opened and never read."""

    port: int
    ca: str
    key: str
    schema: str = ""
    resets_per_s: float = 0.0
    unread: int = 0
    nice: int = 10


async def hold(attack: Attack, count: Flood) -> None:
    """Ask, with a window of 0 bytes, and stay."""
    context = ssl.create_default_context(cafile=attack.ca)
    context.set_alpn_protocols(["h2"])
    part = content_pb2.ContentPart(text="How is it?")
    prompt = content_pb2.Prompt(
        messages=[content_pb2.Message(role=content_pb2.ROLE_USER, parts=[part])],
        output_schema=content_pb2.OutputSchema(json_schema=attack.schema),
    )
    body = router_pb2.GenerateRequest(prompt=prompt).SerializeToString()
    headers = [
        (b":method", b"POST"),
        (b":scheme", b"https"),
        (b":path", PATH.encode()),
        (b":authority", b"localhost"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"authorization", f"Bearer {attack.key}".encode()),
    ]
    writers = []
    while count.streams < attack.unread:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", attack.port, ssl=context, server_hostname="localhost", local_addr=(ADDRESS, 0)
        )
        writers.append((reader, writer))
        count.connections += 1
        writer.write(PREFACE + frame(SETTINGS, 0, 0, struct.pack("!HI", _INITIAL_WINDOW, 0)))
        for number in range(min(_STREAMS_OF_ONE, attack.unread - count.streams)):
            stream = 2 * number + 1
            writer.write(frame(HEADERS, END_HEADERS, stream, block(headers)) + message(stream, body))
            await writer.drain()
            count.streams += 1
            await asyncio.sleep(1 / _OPENED_PER_S)
    await asyncio.Event().wait()


async def main(attack: Attack) -> None:
    """Until standard input ends."""
    count = Flood()
    if attack.resets_per_s:
        work = flood(
            attack.port, attack.ca, attack.key, count, per_s=attack.resets_per_s, path=PATH, source=(ADDRESS, 0)
        )
    else:
        work = hold(attack, count)
    running = asyncio.create_task(work)
    while line := await asyncio.to_thread(sys.stdin.readline):
        assert line == "count\n"
        print(json.dumps(asdict(count)), flush=True)
    running.cancel()


class HostileClients:
    """The process, from outside."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def count(self) -> Flood:
        """What it has done so far."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("count\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the hostile clients have ended"
        return Flood(**json.loads(answer))


@contextmanager
def hostile_clients(attack: Attack) -> Iterator[HostileClients]:
    """Run them until the block ends."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(_TESTS)]))
    command = ["nice", "-n", str(attack.nice), sys.executable, "-m", "helpers.hostile_clients"]
    process = subprocess.Popen(
        [*command, json.dumps(asdict(attack))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        text=True,
    )
    try:
        yield HostileClients(process)
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    told: dict[str, Any] = json.loads(sys.argv[1])
    asyncio.run(main(Attack(**told)))
