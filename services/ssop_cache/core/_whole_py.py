"""The slow twin of `_whole`: the same by protobuf and the codec.

It is the oracle of the tests, judges what is unusual, and is what an installation without compiled code runs on.
"""

from google.protobuf.message import DecodeError

from ssop.v1.frame_pb2 import FRAME_KIND_END, VERDICT_OK, Chunk, Frame
from ssop_codec import FrameError, bodies, survey


def is_whole(chunk: bytes) -> bool:
    """Whether chunk bytes are an answer fit to be stored.

    It is when the sequence numbers run from 1 without gaps, the last frame is an end, and each end (tool calls make
    several documents) has the verdict OK. Mesh frames have no place in a stored answer.
    """
    try:
        # The heads say nothing of what is in the fields, and all who ask for the same would get what nobody can read.
        Chunk.FromString(chunk)
        sight = survey(chunk)
        ends = [Frame.FromString(body) for body in bodies(chunk, FRAME_KIND_END)]
    except (FrameError, DecodeError):
        return False
    is_row = sight.is_row and sight.first_seq == 1 and sight.frames == sight.documents
    if not (is_row and ends) or sight.kinds >> (FRAME_KIND_END + 1):
        return False
    return ends[-1].seq == sight.last_seq and [frame.end.verdict for frame in ends] == [VERDICT_OK] * len(ends)
