"""Answers that are cut and gone on with, on a scripted mesh: the document, its nodes, and what was asked of them."""

from helpers.scripted_mesh import GOOD, Answer, Mesh, Script, encode, going_on
from ssop.v1.frame_pb2 import Chunk
from ssop.v1.inference_pb2 import InferenceServiceGenerateRequest
from ssop_chassis.call import Call

WHOLE = list(Chunk.FromString(b"".join(encode(GOOD))).frames)
WHOLE_CHUNKS = [Chunk(frames=[frame]).SerializeToString(deterministic=True) for frame in WHOLE]


def first_try(script: Script, then: Script) -> Script:
    """A script for requests that begin a document, and one for those that go on with it."""

    async def choose(call: Call, request: InferenceServiceGenerateRequest) -> None:
        await (then if request.HasField("continue_from") else script)(call, request)

    return choose


def everywhere(mesh: Mesh, script: Script, then: Script | None = None) -> None:
    """Give every node a script, and one for what it goes on with."""
    for node in mesh.nodes.values():
        node.script = first_try(script, then or going_on())


def asked_to_go_on(mesh: Mesh) -> list[tuple[str, InferenceServiceGenerateRequest]]:
    """What nodes were asked to go on with, by node."""
    return [
        (name, request)
        for name, node in mesh.nodes.items()
        for request in node.requests
        if request.HasField("continue_from")
    ]


def assert_whole(answer: Answer) -> None:
    """It is the whole document, frame by frame."""
    assert answer.error is None
    assert answer.documents == WHOLE
