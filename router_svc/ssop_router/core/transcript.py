"""The document frames that a caller has been sent: what a node that goes on must not contradict. Pure."""

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_codec import Course, scan_heads, select
from ssop_router.core.frames import ALL_KINDS, END_BIT, split_frames


class ContradictionError(MeshError):
    """A frame came again and was not the same: this generation is not the one that was begun."""

    def __init__(self) -> None:
        super().__init__(ErrorReason.ERROR_REASON_LEASE_LOST, "another generation took the place of the one begun")


class Transcript(Course):
    """The frames of one document, as chunk bytes, up to `limit_bytes` in all; beyond that only where it stands."""

    __slots__ = ()

    def rest_of(self, chunk: bytes) -> bytes:
        """What is new in document frames that may begin with some that were sent; a gap is not looked for.

        Raises ContradictionError where one that was sent comes again and differs, or can't be compared any more.
        """
        heads = scan_heads(chunk)
        if not heads or heads[0][1] > self.last_seq:
            return chunk
        frames = list(split_frames(chunk))
        again = sum(seq <= self.last_seq for _, seq, _ in heads)
        known = list(split_frames(self.chunk))[heads[0][1] - 1 :][:again]
        if frames[:again] != known:
            raise ContradictionError
        return b"".join(frames[again:])


def drop_ends(chunk: bytes) -> bytes:
    """Chunk bytes without END frames."""
    return select(chunk, ALL_KINDS & ~END_BIT)
