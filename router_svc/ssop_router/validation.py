# cython: annotation_typing=False
"""What a request must look like. Every fault is found, so that callers mend a request once.

`validation.pxd` gives the types with which this very file is compiled.
"""

import math
import re
from collections.abc import Iterator
from typing import Final

from ssop.v1.content_pb2 import Message, Prompt, Role, Sampling, ToolMode
from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.router_pb2 import GenerateRequest, RetrievalOptions
from ssop_chassis.errors import MeshError, invalid_request
from ssop_router.core.parts import read_parts
from ssop_router.core.prompt import MAX_MESSAGES, MAX_TOOLS, PromptParts

MAX_RESUME_WINDOW_MS: Final = 600_000
MAX_DEGRADED_LEVEL: Final = 3
MIN_BUFFER_BYTES: Final = 64
MAX_BUFFER_BYTES: Final = 16_384
MAX_LINGER_MS: Final = 1_000
MAX_REQUEST_ID_CHARS: Final = 64
MAX_PARTS: Final = 4_096
MAX_COLLECTIONS: Final = 64
MAX_RECEIPTS: Final = 64
_MAX_IMAGES: Final = 20
_MAX_CALL_ID_CHARS: Final = 256
_MAX_STOPS: Final = 4
_MAX_STOP_BYTES: Final = 64
_MAX_TOP_K: Final = 32
_MAX_FAULTS: Final = 16
_REQUEST_ID: Final = re.compile(rf"[A-Za-z0-9._:-]{{1,{MAX_REQUEST_ID_CHARS}}}")
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_COLLECTION: Final = _TOOL_NAME
# Of its class: a message that is asked for a method looks for a field of that name first.
_serialize: Final = Prompt.SerializeToString
_has: Final = GenerateRequest.HasField

Fault = tuple[str, str]


def read_prompt(prompt: Prompt, *, max_prompt_bytes: int) -> PromptParts:
    """Take a prompt apart. Raises MESSAGE_TOO_LARGE."""
    wire = _serialize(prompt, deterministic=True)
    check_prompt_size(len(wire), max_prompt_bytes)
    return read_parts(prompt, wire)


def check_request(request: GenerateRequest, parts: PromptParts) -> None:
    """Raise REQUEST_INVALID with one entry for each fault (at most 16). `parts` are those of its prompt."""
    if is_plain(request, parts):
        return
    faults = [fault for fault, _ in zip(_find_faults(request), range(_MAX_FAULTS), strict=False)]
    if faults:
        raise invalid_request(*faults)


def is_plain(request: GenerateRequest, parts: PromptParts) -> bool:
    """Whether a request is of the common kind, without any fault; False says nothing."""
    return (
        parts.plain is not None
        and (not parts.buffer_bytes or MIN_BUFFER_BYTES <= parts.buffer_bytes <= MAX_BUFFER_BYTES)
        and parts.linger_ms <= MAX_LINGER_MS
        and (not request.request_id or _REQUEST_ID.fullmatch(request.request_id) is not None)
        and len(request.conversation_id) <= MAX_REQUEST_ID_CHARS
        and request.max_degraded_level <= MAX_DEGRADED_LEVEL
        and request.resume_window_ms <= MAX_RESUME_WINDOW_MS
        and not _has(request, "retrieval")
        and not request.receipts
    )


def check_prompt_size(size_bytes: int, max_prompt_bytes: int) -> None:
    """Raise MESSAGE_TOO_LARGE where a prompt of this size is over the limit."""
    if size_bytes > max_prompt_bytes:
        raise MeshError(
            ErrorReason.ERROR_REASON_MESSAGE_TOO_LARGE,
            f"the prompt is larger than {max_prompt_bytes} bytes",
            metadata={"limit_bytes": str(max_prompt_bytes)},
        )


def check_request_id(request_id: str) -> None:
    """Raise REQUEST_INVALID unless the id has 1 to 64 characters of `[A-Za-z0-9._:-]`."""
    if not _REQUEST_ID.fullmatch(request_id):
        raise invalid_request(("request_id", "must be 1 to 64 characters of [A-Za-z0-9._:-]"))


def _find_faults(request: GenerateRequest) -> Iterator[Fault]:
    if request.request_id and not _REQUEST_ID.fullmatch(request.request_id):
        yield "request_id", "must be 1 to 64 characters of [A-Za-z0-9._:-]"
    if request.max_degraded_level > MAX_DEGRADED_LEVEL:
        yield "max_degraded_level", "must be from 0 to 3"
    if request.resume_window_ms > MAX_RESUME_WINDOW_MS:
        yield "resume_window_ms", f"must be at most {MAX_RESUME_WINDOW_MS}"
    if len(request.conversation_id) > 64:
        yield "conversation_id", "must have at most 64 characters"
    if len(request.receipts) > MAX_RECEIPTS:
        yield "receipts", f"must be at most {MAX_RECEIPTS}"
    yield from _find_retrieval_faults(request.retrieval)
    yield from _find_prompt_faults(request.prompt)


def _find_retrieval_faults(retrieval: RetrievalOptions) -> Iterator[Fault]:
    if retrieval.top_k > _MAX_TOP_K:
        yield "retrieval.top_k", f"must be at most {_MAX_TOP_K}"
    if not 0 <= retrieval.rag_prefetch_ratio <= 1:
        yield "retrieval.rag_prefetch_ratio", "must be from 0 to 1"
    if len(retrieval.collections) > MAX_COLLECTIONS:
        yield "retrieval.collections", f"must be at most {MAX_COLLECTIONS}"
    for index, collection in enumerate(retrieval.collections[:MAX_COLLECTIONS]):
        if not _COLLECTION.fullmatch(collection):
            yield f"retrieval.collections[{index}]", "must be 1 to 64 characters of [A-Za-z0-9_-]"


def _find_prompt_faults(prompt: Prompt) -> Iterator[Fault]:
    if not prompt.messages:
        yield "prompt.messages", "must hold at least one message"
    if len(prompt.messages) > MAX_MESSAGES:
        yield "prompt.messages", f"must be at most {MAX_MESSAGES}"
    elif sum(len(message.parts) + len(message.tool_calls) for message in prompt.messages) > MAX_PARTS:
        yield "prompt.messages", f"must hold at most {MAX_PARTS} parts and tool calls together"
    else:
        images = sum(part.WhichOneof("part") == "image" for message in prompt.messages for part in message.parts)
        if images > _MAX_IMAGES:
            yield "prompt.messages", f"must hold at most {_MAX_IMAGES} images"
        for index, message in enumerate(prompt.messages):
            yield from _find_message_faults(f"prompt.messages[{index}]", message)
    size = prompt.stream_buffer_size
    if size and not MIN_BUFFER_BYTES <= size <= MAX_BUFFER_BYTES:
        yield "prompt.stream_buffer_size", f"must be 0, or from {MIN_BUFFER_BYTES} to {MAX_BUFFER_BYTES}"
    if prompt.linger_ms > MAX_LINGER_MS:
        yield "prompt.linger_ms", f"must be at most {MAX_LINGER_MS}"
    yield from _find_sampling_faults(prompt.sampling, has_schema=prompt.HasField("output_schema"))
    yield from _find_tool_faults(prompt)


def _find_message_faults(path: str, message: Message) -> Iterator[Fault]:
    if message.role not in (Role.ROLE_SYSTEM, Role.ROLE_USER, Role.ROLE_ASSISTANT, Role.ROLE_TOOL):
        yield f"{path}.role", "must be one of the roles"
    if not message.parts and not (message.role == Role.ROLE_ASSISTANT and message.tool_calls):
        yield f"{path}.parts", "must hold at least one part"
    if message.role == Role.ROLE_TOOL and not message.tool_call_id:
        yield f"{path}.tool_call_id", "must name the call whose result this is"
    yield from _find_part_faults(path, message)
    yield from _find_call_faults(path, message)


def _find_part_faults(path: str, message: Message) -> Iterator[Fault]:
    for index, part in enumerate(message.parts):
        kind = part.WhichOneof("part")
        if kind is None:
            yield f"{path}.parts[{index}]", "must be text, image, audio or document"
        elif kind in ("image", "audio"):
            media = part.image if kind == "image" else part.audio
            if not media.mime_type:
                yield f"{path}.parts[{index}].{kind}.mime_type", "must be set"
            if not media.data:
                yield f"{path}.parts[{index}].{kind}.data", "must not be empty"


def _find_call_faults(path: str, message: Message) -> Iterator[Fault]:
    for index, call in enumerate(message.tool_calls):
        if not _TOOL_NAME.fullmatch(call.name):
            yield f"{path}.tool_calls[{index}].name", "must be 1 to 64 characters of [A-Za-z0-9_-]"
        if len(call.id) > _MAX_CALL_ID_CHARS:
            yield f"{path}.tool_calls[{index}].id", f"must have at most {_MAX_CALL_ID_CHARS} characters"
    if message.tool_calls and message.role != Role.ROLE_ASSISTANT:
        yield f"{path}.tool_calls", "are for messages of the assistant"


def _find_sampling_faults(sampling: Sampling, *, has_schema: bool) -> Iterator[Fault]:
    if not _is_within(sampling.temperature, 0, 2):
        yield "prompt.sampling.temperature", "must be from 0 to 2"
    if sampling.HasField("top_p") and not (0 < sampling.top_p <= 1):
        yield "prompt.sampling.top_p", "must be above 0 and at most 1"
    for name in ("presence_penalty", "frequency_penalty"):
        if not _is_within(getattr(sampling, name), -2, 2):
            yield f"prompt.sampling.{name}", "must be from -2 to 2"
    if sampling.stop and has_schema:
        yield "prompt.sampling.stop", "must be empty where a schema is given"
    if len(sampling.stop) > _MAX_STOPS:
        yield "prompt.sampling.stop", f"must be at most {_MAX_STOPS}"
    for index, stop in enumerate(sampling.stop):
        if not 1 <= len(stop.encode()) <= _MAX_STOP_BYTES:
            yield f"prompt.sampling.stop[{index}]", f"must have from 1 to {_MAX_STOP_BYTES} bytes"


def _is_within(value: float, least: float, most: float) -> bool:
    return math.isfinite(value) and least <= value <= most


def _find_tool_faults(prompt: Prompt) -> Iterator[Fault]:
    if len(prompt.tools) > MAX_TOOLS:
        yield "prompt.tools", f"must be at most {MAX_TOOLS}"
    names: set[str] = set()
    for index, tool in enumerate(prompt.tools[:MAX_TOOLS]):
        if not _TOOL_NAME.fullmatch(tool.name):
            yield f"prompt.tools[{index}].name", "must be 1 to 64 characters of [A-Za-z0-9_-]"
        elif tool.name in names:
            yield f"prompt.tools[{index}].name", "must be unique in the request"
        names.add(tool.name)
    choice = prompt.tool_choice
    if choice.tool_name and choice.tool_name not in names:
        yield "prompt.tool_choice.tool_name", "must be one of the request's tools"
    if choice.mode == ToolMode.TOOL_MODE_REQUIRED and not prompt.tools:
        yield "prompt.tool_choice.mode", "requires tools"
