"""Cascades over a scripted mesh."""

from collections.abc import AsyncIterator
from typing import Any

from helpers.scripted_mesh import (
    Answer,
    Mesh,
    answering,
    ask,
)
from ssop.v1 import mesh_pb2
from ssop_chassis.memory import MemoryStream
from ssop_codec import Decoder

LITE_ANSWER = '{"mood":"lite","score":1}'
FULL_ANSWER = '{"mood":"full","score":2}'
FULL_USAGE = mesh_pb2.Usage(input_tokens=7, output_tokens=3)
LITE_USAGE = mesh_pb2.Usage(input_tokens=70, output_tokens=5)


def cascade(text: str = "How is the mood?", **fields: Any) -> Any:
    """A request under the policy `cascade`."""
    return ask(text, policy="cascade", **fields)


def document(answer: Answer) -> Any:
    """The document that a client reads from an answer."""
    decoder = Decoder()
    for chunk in answer.chunks:
        decoder.feed(chunk)
    return decoder.result


async def read_on(stream: MemoryStream) -> AsyncIterator[bytes]:
    """The chunks that are still to come."""
    while (chunk := await stream.read()) is not None:
        yield chunk


def prepare(mesh: Mesh, lite: Any, full: Any = None) -> None:
    """Give the lite node one script and both full nodes another."""
    mesh.nodes["lite-1"].script = lite
    mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = full or answering(FULL_ANSWER)
