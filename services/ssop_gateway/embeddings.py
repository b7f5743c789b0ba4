"""POST /v1/embeddings: vectors of the retrieval service's embedder, for OpenAI's SDKs."""

import base64
import struct
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from ssop.v1 import rag_pb2
from ssop_gateway.core.faults import EdgeError, unsupported
from ssop_gateway.core.reading import read_model
from ssop_gateway.exchange import Exchange, timeout_ms
from ssop_gateway.generate import read_object
from ssop_gateway.upstream import EMBED

MAX_INPUTS: Final = 256
# What one call into the mesh takes.
_BATCH: Final = 16
_FLOAT_BYTES: Final = 4
_ANY_MODEL: Final = frozenset({"", "auto"})

Text = Annotated[str, Field(min_length=1)]


class EmbeddingsBody(BaseModel):
    """What OpenAI's clients send."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str = Field("", max_length=256, description="The embedder's tag, or `auto`.")
    input: Text | Annotated[list[Text], Field(min_length=1, max_length=MAX_INPUTS)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, description="Only the embedder's own number.")
    user: str | None = None


async def embeddings(exchange: Exchange) -> None:
    """Serve POST /v1/embeddings. Needs the scope `rag`; each 16 texts count as a call for the rate limit."""
    caller = exchange.caller()
    body = read_model(EmbeddingsBody, await read_object(exchange, "/v1/embeddings takes no schema"))
    texts = [body.input] if isinstance(body.input, str) else body.input
    timeout_s = timeout_ms(exchange, None) / 1000
    vectors: list[bytes] = []
    tag = ""
    for start in range(0, len(texts), _BATCH):
        request = rag_pb2.EmbedRequest(texts=texts[start : start + _BATCH], is_urgent=True)
        call = exchange.edge.router.unary(
            EMBED, request, rag_pb2.EmbedResponse, caller=caller, timeout_s=max(0.001, timeout_s - exchange.elapsed_s)
        )
        response = await _until_gone(exchange, call)
        if tag and response.embedder != tag:
            raise EdgeError("BACKEND_FAILED", "the embedder was changed meanwhile", retry_after_ms=1_000)
        tag = response.embedder
        _check_asked(body, tag, response.vectors)
        vectors += response.vectors
    await exchange.answer_json(
        200,
        {
            "object": "list",
            "model": tag,
            "data": [
                {"object": "embedding", "index": index, "embedding": _encode(vector, body.encoding_format)}
                for index, vector in enumerate(vectors)
            ],
            # The embedder counts none.
            "usage": {"prompt_tokens": 0, "total_tokens": 0},
        },
    )


async def _until_gone(exchange: Exchange, call: Any) -> rag_pb2.EmbedResponse:
    response: rag_pb2.EmbedResponse = await exchange.until_gone(call)
    return response


def _check_asked(body: EmbeddingsBody, tag: str, vectors: Any) -> None:
    if body.model not in _ANY_MODEL and body.model != tag:
        raise EdgeError(
            "MODEL_UNKNOWN", f"the embedder of this mesh is `{tag}`, or `auto`", fields=(("model", "is another"),)
        )
    size = len(vectors[0]) // _FLOAT_BYTES if vectors else 0
    if body.dimensions not in (None, size):
        raise unsupported("dimensions", f"must be {size}, the embedder's own number")
    if len({len(vector) for vector in vectors}) > 1:
        raise EdgeError("PROTOCOL_ERROR", "the vectors differ in length")


def _encode(vector: bytes, form: str) -> Any:
    """A vector of float32, little-endian: as numbers, or in base64 as it is."""
    if form == "base64":
        return base64.b64encode(vector).decode("ascii")
    return list(struct.unpack(f"<{len(vector) // _FLOAT_BYTES}f", vector))
