# cython: annotation_typing=False
"""`stream_buffer_size`: what `auto` stands for by what a schema's answers look like, and messages of that size."""

from collections.abc import Sequence
from typing import Final

from ssop_codec import FrameKind, Survey, read_heads
from ssop_inference.core.request import MAX_BUFFER_BYTES

# So many values of one schema say more than an estimate from its bounds.
_ENOUGH_VALUES: Final = 200
_SPLIT_SHARE: Final = 0.01
_PART: Final = int(FrameKind.PART)
_VALUE: Final = int(FrameKind.VALUE)
_PARTS: Final = 1 << _PART


def size_of(chunks: Sequence[bytes]) -> int:
    """How many bytes they have."""
    size_bytes = 0
    # A loop of C, where this is compiled.
    for chunk in chunks:
        size_bytes += len(chunk)
    return size_bytes


def join_chunks(chunks: list[bytes], most_bytes: int) -> list[bytes]:
    """The same frames in as few chunks as hold at most `most_bytes` each; a larger chunk stays as it is.

    Within one answer the bytes of two chunks put together are a chunk (SPEC).
    """
    if len(chunks) < 2:
        return chunks
    if size_of(chunks) <= most_bytes:
        return [b"".join(chunks)]
    joined: list[bytes] = []
    for chunk in chunks:
        if joined and len(joined[-1]) + len(chunk) <= most_bytes:
            joined[-1] += chunk
        else:
            joined.append(chunk)
    return joined


class SplitCounter:
    """Counts the strings of one answer, and those that no frame could hold."""

    def __init__(self) -> None:
        self.values = 0
        self.split_values = 0
        self._is_in_parts = False

    def take(self, chunk: Survey) -> None:
        """What the next chunk holds."""
        if not self._is_in_parts and not chunk.kinds & _PARTS:
            self.values += chunk.values
            return
        for kind, _, _ in read_heads(chunk.heads):
            if kind == _VALUE:
                self.values += 1
                self.split_values += self._is_in_parts
                self._is_in_parts = False
            elif kind == _PART:
                self._is_in_parts = True


class BufferEstimate:
    """The buffer for the answers of one schema, in bytes: a power of two that 99 % of its values fit.

    It starts with what the schema says and doubles, up to 16,384, while more than 1 % of the values seen were split.
    """

    def __init__(self, schema_bytes: int) -> None:
        self.buffer_bytes = schema_bytes
        self._values = 0
        self._split_values = 0

    def observe(self, answer: SplitCounter) -> None:
        """An answer that was written with the present estimate."""
        self._values += answer.values
        self._split_values += answer.split_values
        if self._values < _ENOUGH_VALUES:
            return
        if self._split_values > self._values * _SPLIT_SHARE:
            self.buffer_bytes = min(MAX_BUFFER_BYTES, self.buffer_bytes * 2)
        self._values = self._split_values = 0
