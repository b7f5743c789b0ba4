"""Generate requests of the common kind, read through protobuf: the oracle of the compiled reader."""

from google.protobuf.message import DecodeError

from ssop.v1 import content_pb2, inference_pb2
from ssop_inference.core.prompt import SPEAKERS, ChatMessage
from ssop_inference.core.request import Asked, read_sampling

_MORE = frozenset({"passages", "continue_from"})
_PROMPT = frozenset({"messages", "output_schema", "sampling", "stream_buffer_size", "logprobs", "linger_ms"})


def read_plain(data: bytes) -> Asked | None:
    """What a request asks for; None where it has more to it than text, a schema and options, or where it has no turn.

    The compiled reader may also leave alone what is written in an uncommon way, such as a message in two pieces.
    """
    try:
        request = inference_pb2.InferenceServiceGenerateRequest.FromString(data)
    except DecodeError:
        return None
    prompt = request.prompt
    turns = [_read_turn(message) for message in prompt.messages]
    if (
        not turns
        or None in turns
        or any(field.name in _MORE for field, _ in request.ListFields())
        or any(field.name not in _PROMPT for field, _ in prompt.ListFields())
    ):
        return None
    return read_fields(request)._replace(turns=tuple(filter(None, turns)), rest=None)


def read_fields(request: inference_pb2.InferenceServiceGenerateRequest) -> Asked:
    """What a request says that any may say; its turns and all else are in `rest`."""
    prompt = request.prompt
    has_schema = prompt.HasField("output_schema")
    schema = prompt.output_schema
    return Asked(
        request.request_id,
        request.model,
        request.priority,
        request.confidence_tokens,
        schema.json_schema if has_schema else None,
        schema.format_assertion if schema.HasField("format_assertion") else True,
        prompt.stream_buffer_size,
        prompt.linger_ms if prompt.HasField("linger_ms") else None,
        prompt.logprobs,
        read_sampling(prompt),
        (),
        request,
    )


def _read_turn(message: content_pb2.Message) -> ChatMessage | None:
    role = SPEAKERS.get(message.role)
    parts = message.parts
    is_text = len(parts) == 1 and parts[0].HasField("text")
    if role is None or not is_text or message.tool_calls or message.tool_call_id:
        return None
    return ChatMessage(role, parts[0].text)
