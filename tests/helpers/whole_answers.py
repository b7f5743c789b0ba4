"""An answer as the mesh of the benchmarks gives it, made by hand."""

from helpers.load_requests import DOCUMENT
from ssop.v1.frame_pb2 import VERDICT_OK, Chunk, FrameKind
from ssop.v1.mesh_pb2 import CacheReason


def whole_answer() -> list[bytes]:
    """Its messages: the decision and the status, the document, the end."""
    mesh, document, end = Chunk(), Chunk(), Chunk()
    mesh.frames.add(kind=FrameKind.FRAME_KIND_DECISION).decision.cache_reason = CacheReason.CACHE_REASON_MISS
    mesh.frames.add(kind=FrameKind.FRAME_KIND_STATUS).status.served_by = "local"
    document.frames.add(seq=1, kind=FrameKind.FRAME_KIND_HEADER).header.SetInParent()
    for seq, _ in enumerate(DOCUMENT, start=2):
        document.frames.add(seq=seq, kind=FrameKind.FRAME_KIND_VALUE, node=seq - 1, string_value="x")
    seq = len(DOCUMENT) + 2
    document.frames.add(seq=seq, kind=FrameKind.FRAME_KIND_CLOSE, object_size=len(DOCUMENT))
    end.frames.add(seq=seq + 1, kind=FrameKind.FRAME_KIND_END).end.verdict = VERDICT_OK
    return [chunk.SerializeToString() for chunk in (mesh, document, end)]
