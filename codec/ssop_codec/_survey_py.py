"""The slow twin of `_survey`, its oracle in tests. Product code never imports it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from .constants import FrameKind
from .errors import FrameError

FIRST_MESH_KIND = 16
LAST_BIT = 63
_PLAIN = (FrameKind.VALUE, FrameKind.PART, FrameKind.CLOSE)


@dataclass(frozen=True)
class SlowSurvey:
    """See `_survey.Survey`; `heads` are read already."""

    kinds: int
    frames: int
    documents: int
    values: int
    is_clean: bool
    is_plain: bool
    is_row: bool
    first_seq: int
    last_seq: int
    heads: list[tuple[int, int, int]]


def survey(chunk: bytes) -> SlowSurvey:
    """Look over the frames of a chunk. Raises FrameError where it is none."""
    pieces = list(_pieces(chunk))
    heads = [_head(body) for _, body in pieces if body is not None]
    seqs = [seq for kind, seq, _ in heads if kind < FIRST_MESH_KIND]
    kinds = 0
    for kind, _, _ in heads:
        kinds |= _bit(kind)
    return SlowSurvey(
        kinds=kinds,
        frames=len(heads),
        documents=len(seqs),
        values=sum(kind == FrameKind.VALUE for kind, _, _ in heads),
        is_clean=all(body is not None for _, body in pieces),
        is_plain=all(body is not None for _, body in pieces) and all(kind in _PLAIN for kind, _, _ in heads),
        is_row=all(after == (before + 1) % 2**64 for before, after in pairwise(seqs)),
        first_seq=seqs[0] if seqs else 0,
        last_seq=seqs[-1] if seqs else 0,
        heads=heads,
    )


def select(chunk: bytes, kinds: int) -> bytes:
    """Chunk bytes of the frames whose kinds have their bits in `kinds`. Raises FrameError."""
    found = [(piece, _head(body)[0]) for piece, body in _pieces(chunk) if body is not None]
    return b"".join(piece for piece, kind in found if kinds & _bit(kind))


def bodies(chunk: bytes, kind: int) -> list[bytes]:
    """The bytes inside each frame of a kind. Raises FrameError."""
    found = [(body, _head(body)[0]) for _, body in _pieces(chunk) if body is not None]
    return [body for body, has in found if has == kind]


class Course:
    """See `_survey.Course`."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._added: list[bytes] = []
        self.last_seq = 0

    @property
    def is_kept(self) -> bool:
        """Nothing is missing."""
        return self._limit_bytes > 0 and sum(map(len, self._added)) <= self._limit_bytes

    @property
    def chunk(self) -> bytes:
        """All frames."""
        return b"".join(self._added) if self.is_kept else b""

    def add(self, chunk: bytes, frames: int) -> None:
        """The next `frames` document frames."""
        self.last_seq += frames
        self._added.append(chunk)

    def follow(self, chunk: bytes) -> SlowSurvey | None:
        """Add a chunk that is the next fields and nothing else. Raises FrameError."""
        found = survey(chunk)
        if not (found.frames and found.is_plain and found.is_row and found.first_seq == self.last_seq + 1):
            return None
        self.add(chunk, found.frames)
        return found


def _bit(kind: int) -> int:
    return 1 << min(kind, LAST_BIT)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint and the place behind it."""
    value = shift = 0
    while at < len(data) and shift <= 63:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            if value >= 2**64:
                break
            return value, at
        shift += 7
    raise FrameError("a varint is cut or too long")


def _pieces(chunk: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Each field of a chunk, and what is inside where it is a frame."""
    at = 0
    while at < len(chunk):
        begin = at
        tag, at = _varint(chunk, at)
        if not 0 < tag >> 3 < 1 << 29:
            raise FrameError("a field number is out of range")
        kind = tag & 7
        size = {1: 8, 5: 4}.get(kind, 0)
        if kind == 0:
            _, at = _varint(chunk, at)
        elif kind == 2:
            size, at = _varint(chunk, at)
        elif not size:
            raise FrameError("a wire type is not known")
        if size > len(chunk) - at:
            raise FrameError("a field is longer than what holds it")
        at += size
        if tag >> 3 != 1:
            yield chunk[begin:at], None
        elif kind == 2:
            yield chunk[begin:at], chunk[at - size : at]
        else:
            raise FrameError("a field has the wire type of another")


def _head(body: bytes) -> tuple[int, int, int]:
    found = {1: 0, 2: 0, 3: 0}
    at = 0
    while at < len(body) and body[at] in {0x08, 0x10, 0x18}:
        field = body[at] >> 3
        found[field], at = _varint(body, at + 1)
    if found[2] > 0x7FFFFFFF or found[3] > 0xFFFFFFFF:
        raise FrameError("a number is out of range")
    return found[2], found[1], found[3]
