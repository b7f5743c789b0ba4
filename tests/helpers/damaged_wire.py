"""Connections of HTTP/2 as lists of frames, whole or damaged: what fuzzing feeds to the native transport."""

import random
import struct
import zlib
from collections.abc import Sequence
from typing import Final

from hpack import Encoder

from helpers.raw_http2 import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    block,
)

PRIORITY, PUSH_PROMISE, UNKNOWN = 2, 5, 0xBE
PADDED, WITH_PRIORITY = 0x8, 0x20
PATHS: Final = (
    b"/test.T/Echo",
    b"/test.T/Count",
    b"/test.T/Mirror",
    b"/test.T/Fail",
    b"/test.T/Hang",
    b"/test.T/No",
    b"/",
)
NUMBERS: Final = (0, 1, 2, 5, 127, 128, 255, 16_384, 16_385, 65_535, 65_536, 2**24 - 1, 2**31 - 1, 2**31, 2**32 - 1)
# Of RFC 7541: an index of nothing, the size of the table, integers that never end, a code of Huffman that is none.
BAD_BLOCKS: Final = (
    b"\x80",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x3f\xe1\xff\xff\x0f",
    b"\x3f" + b"\x80" * 20,
    b"\x20",
    b"\x00\x7f\xff\xff\xff\x07",
    b"\x40\x84\xff\xff\xff\xff\x00",
    b"\x00\x00\x00",
    b"\x82" * 300,
    b"\x00\x03a\x00b\x03c\r\n",
)

Frame = tuple[int, int, int, bytes]
"""Kind, flags, stream, payload."""


def prefixed(payload: bytes, flag: int = 0) -> bytes:
    """A gRPC message."""
    return struct.pack("!BI", flag, len(payload)) + payload


class Maker:
    """Makes connections. All randomness is that of `rng`."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._encoder = Encoder()

    def client(self) -> list[Frame]:
        """What a client sends after its preface."""
        rng = self.rng
        self._encoder = Encoder()
        frames = [self._settings()]
        calls = [self._call(2 * number + 1) for number in range(rng.randint(1, 4))]
        return frames + self._weave(calls)

    def server(self) -> list[Frame]:
        """What a server answers to calls on the streams 1, 3 and 5."""
        self._encoder = Encoder()
        return [self._settings(), (SETTINGS, ACK, 0, b""), *self._weave([self._answer(n) for n in (1, 3, 5)])]

    def _weave(self, calls: Sequence[list[Frame]]) -> list[Frame]:
        rng, frames = self.rng, []
        rest = [list(call) for call in calls if call]
        while rest:
            call = rng.choice(rest) if rng.random() < 0.3 else rest[0]
            frames.append(call.pop(0))
            # A block of headers is one piece (RFC 9113, 6.10).
            while frames[-1][0] in {HEADERS, CONTINUATION} and not frames[-1][1] & END_HEADERS and call:
                frames.append(call.pop(0))
            rest = [left for left in rest if left]
            if rng.random() < 0.15:
                frames.append(self._between())
        return frames

    def _settings(self) -> Frame:
        rng = self.rng
        pairs = [(rng.choice((1, 3, 4, 5, 6, 0xAB)), rng.choice(NUMBERS)) for _ in range(rng.choice((0, 0, 0, 1, 3)))]
        return SETTINGS, 0, 0, b"".join(struct.pack("!HI", name, value) for name, value in pairs)

    def _between(self) -> Frame:
        rng = self.rng
        stream_id = rng.choice((0, 1, 3, 5))
        return rng.choice(
            (
                (PING, rng.choice((0, ACK)), 0, rng.randbytes(8)),
                (WINDOW_UPDATE, 0, stream_id, struct.pack("!I", rng.choice(NUMBERS) & 0x7FFFFFFF)),
                (PRIORITY, 0, stream_id or 1, struct.pack("!IB", rng.randrange(9), 16)),
                (UNKNOWN, rng.randrange(256), stream_id, rng.randbytes(rng.randrange(20))),
                (RST_STREAM, 0, stream_id or 1, struct.pack("!I", rng.randrange(16))),
                (GOAWAY, 0, 0, struct.pack("!II", rng.choice(NUMBERS) & 0x7FFFFFFF, rng.randrange(16))),
                self._settings(),
            )
        )

    def _block(self, pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
        if self.rng.random() < 0.3:
            return block([(name, value[:100]) for name, value in pairs])
        return bytes(self._encoder.encode(list(pairs), huffman=self.rng.random() < 0.5))

    def _headers(self, stream_id: int, pairs: Sequence[tuple[bytes, bytes]], flags: int = 0) -> list[Frame]:
        rng, data = self.rng, self._block(pairs)
        if rng.random() < 0.05:
            data += rng.choice(BAD_BLOCKS)
        if rng.random() < 0.8:
            return [(HEADERS, flags | END_HEADERS, stream_id, data)]
        parts = [data[at : at + 30] for at in range(0, len(data), 30)] or [b""]
        kinds = [HEADERS, *[CONTINUATION] * (len(parts) - 1)]
        frames = [(kind, 0, stream_id, part) for kind, part in zip(kinds, parts, strict=True)]
        frames[0] = (HEADERS, flags | (END_HEADERS if len(parts) == 1 else 0), stream_id, parts[0])
        if len(parts) > 1:
            frames[-1] = (CONTINUATION, END_HEADERS, stream_id, parts[-1])
        return frames

    def _messages(self) -> bytes:
        rng, data = self.rng, b""
        for _ in range(rng.choice((0, 1, 1, 1, 2, 5))):
            payload = rng.choice((b"", b"7", b"some text " * rng.randrange(1, 30), rng.randbytes(rng.randrange(3_000))))
            choice = rng.random()
            if choice < 0.7:
                data += prefixed(payload)
            elif choice < 0.85:
                data += prefixed(zlib.compress(payload, wbits=rng.choice((31, 15, -15))), 1)
            elif choice < 0.9:
                data += prefixed(zlib.compress(bytes(200_000), wbits=31), 1)
            elif choice < 0.95:
                data += struct.pack("!BI", rng.choice((0, 1, 2, 255)), rng.choice(NUMBERS)) + payload
            else:
                data += prefixed(payload)[: rng.randrange(6)]
        return data

    def _data(self, stream_id: int, data: bytes, *, is_last: bool) -> list[Frame]:
        rng = self.rng
        step = rng.choice((1_000, 5_000, 16_384, max(1, len(data) // 3)))
        parts = [data[at : at + step] for at in range(0, len(data), step)] or [b""]
        frames: list[Frame] = []
        for part in parts[:40]:
            if rng.random() < 0.1 and len(part) < 16_000:
                pad = rng.randrange(50)
                frames.append((DATA, PADDED, stream_id, bytes([pad]) + part + bytes(pad)))
            else:
                frames.append((DATA, 0, stream_id, part))
        if is_last:
            kind, flags, _, payload = frames[-1]
            frames[-1] = (kind, flags | END_STREAM, stream_id, payload)
        return frames

    def _call(self, stream_id: int) -> list[Frame]:
        rng = self.rng
        pairs = [
            (b":method", b"POST" if rng.random() < 0.95 else b"GET"),
            (b":scheme", b"http"),
            (b":path", rng.choice(PATHS)),
            (b":authority", b"test"),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc" if rng.random() < 0.95 else b"text/plain"),
        ]
        extra = (
            (b"grpc-timeout", rng.choice((b"1S", b"5u", b"99999999H", b"x", b"-1S", b"\xb2S"))),
            (b"grpc-encoding", rng.choice((b"gzip", b"deflate", b"identity", b"snappy", b""))),
            (b"grpc-accept-encoding", rng.choice((b"gzip", b"identity", b"gzip,deflate"))),
            (b"x-key-bin", rng.choice((b"AAEC", b"AAE", b"!", b"AA,BB"))),
            (b"x-long", b"v" * rng.choice((1, 90, 5_000))),
            (b"traceparent", rng.choice((b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01", b"00-x"))),
            (b"x-ssop-request-id", rng.randbytes(4).hex().encode()),
        )
        pairs += rng.sample(extra, rng.choice((0, 0, 1, 2, 4)))
        if rng.random() < 0.05:
            return self._headers(stream_id, pairs, END_STREAM)
        frames = [
            *self._headers(stream_id, pairs),
            *self._data(stream_id, self._messages(), is_last=rng.random() < 0.9),
        ]
        if rng.random() < 0.05:
            frames.append((RST_STREAM, 0, stream_id, struct.pack("!I", 8)))
        if rng.random() < 0.05:
            frames += self._headers(stream_id, [(b"x-trailer", b"1")], END_STREAM)
        return frames

    def _answer(self, stream_id: int) -> list[Frame]:
        rng = self.rng
        head = [(b":status", rng.choice((b"200",) * 8 + (b"503", b"100"))), (b"content-type", b"application/grpc")]
        head += rng.sample(((b"grpc-encoding", b"gzip"), (b"x-initial", b"1")), rng.choice((0, 0, 1, 2)))
        status = rng.choice((b"0",) * 6 + (b"5", b"13", b"99", b"", b"x", b"\xb2", b"9" * 5_000))
        tail = [(b"grpc-status", status)]
        extra = (
            (b"grpc-message", rng.choice((b"why", b"%", b"%zz%41", b"\xff\xfe"))),
            (b"grpc-status-details-bin", rng.choice((b"CAUSBGhlbHA", b"!!", b"AAAA", b""))),
            (b"x-key-bin", b"AAE"),
        )
        tail += rng.sample(extra, rng.choice((0, 0, 1, 2)))
        if rng.random() < 0.1:
            return self._headers(stream_id, head + tail, END_STREAM)
        frames = [*self._headers(stream_id, head), *self._data(stream_id, self._messages(), is_last=False)]
        if rng.random() < 0.9:
            frames += self._headers(stream_id, tail, END_STREAM)
        return frames


def damage_frames(frames: Sequence[Frame], rng: random.Random) -> list[Frame]:
    """A copy with none to four changes of whole frames and of what stands in them."""
    out = list(frames)
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        if not out:
            break
        at, choice = rng.randrange(len(out)), rng.randrange(6)
        if choice == 0:
            del out[at]
        elif choice == 1:
            out.insert(at, rng.choice(out))
        elif choice == 2:
            out.insert(rng.randrange(len(out)), out.pop(at))
        else:
            out[at] = _damage_frame(out[at], rng)
    return out


def _damage_frame(frame: Frame, rng: random.Random) -> Frame:
    kind, flags, stream_id, payload = frame
    return rng.choice(
        (
            (kind, flags ^ (1 << rng.randrange(8)), stream_id, payload),
            (rng.randrange(12), flags, stream_id, payload),
            (kind, flags, rng.choice((0, 1, 2, 3, 5, 7, 2**31 - 1)), payload),
            (kind, flags, stream_id, payload[: rng.randrange(len(payload) + 1)]),
            (kind, flags, stream_id, payload + rng.randbytes(rng.randrange(40))),
            (kind, flags, stream_id, damage_bytes(payload, rng)),
            (kind, flags, stream_id, rng.choice(BAD_BLOCKS)),
        )
    )


def damage_bytes(data: bytes, rng: random.Random) -> bytes:
    """A copy with one to four changes of bytes."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(out))
        kind = rng.randrange(5)
        if kind == 0:
            out[at : at + 1] = bytes((rng.randrange(256),))
        elif kind == 1:
            del out[at : at + rng.randint(1, 9)]
        elif kind == 2:
            out[at:at] = rng.randbytes(rng.randint(1, 9))
        elif kind == 3:
            out[at : at + 4] = struct.pack("!I", rng.choice(NUMBERS))
        else:
            del out[at:]
    return bytes(out)


def write_frames(frames: Sequence[Frame], rng: random.Random) -> bytes:
    """The bytes; now and then with a length that is wrong."""
    out = bytearray()
    for kind, flags, stream_id, payload in frames:
        length = rng.choice(NUMBERS) if rng.random() < 0.01 else len(payload)
        out += (
            struct.pack("!I", length & 0xFFFFFF)[1:]
            + struct.pack("!BBI", kind, flags, stream_id & 0xFFFFFFFF)
            + payload
        )
    return bytes(out)


def make_input(role: str, rng: random.Random) -> bytes:
    """What a peer sends to a `server` or to a `client`, damaged or not."""
    maker = Maker(rng)
    frames = damage_frames(maker.client() if role == "server" else maker.server(), rng)
    data = (PREFACE if role == "server" else b"") + write_frames(frames, rng)
    return damage_bytes(data, rng) if rng.random() < 0.3 else data


def cut(data: bytes, rng: random.Random) -> list[bytes]:
    """The pieces in which it comes: one, several, or byte by byte."""
    kind = rng.randrange(4)
    if kind == 0:
        return [data]
    if kind == 1 and len(data) < 2_000:
        return [data[at : at + 1] for at in range(len(data))]
    places = sorted(rng.randint(0, len(data)) for _ in range(rng.randint(1, 8)))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True) if a < b]
