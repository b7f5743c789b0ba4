"""What a request must look like, one fault each."""

import time
from collections.abc import Callable

import pytest

from helpers.scripted_mesh import ask
from ssop.v1.content_pb2 import ContentPart, Media, Message, Role, Sampling, Tool, ToolCall, ToolChoice, ToolMode
from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.mesh_pb2 import Receipt
from ssop.v1.router_pb2 import GenerateRequest
from ssop_chassis.errors import MeshError
from ssop_router.validation import check_request, read_prompt

Change = Callable[[GenerateRequest], object]


def check(request: GenerateRequest, max_prompt_bytes: int = 100_000) -> None:
    check_request(request, read_prompt(request.prompt, max_prompt_bytes=max_prompt_bytes))


def sampling(request: GenerateRequest) -> Sampling:
    return request.prompt.sampling


FAULTS: dict[str, tuple[Change, str]] = {
    "id": (lambda r: setattr(r, "request_id", "a b"), "request_id"),
    "long id": (lambda r: setattr(r, "request_id", "a" * 65), "request_id"),
    "level": (lambda r: setattr(r, "max_degraded_level", 4), "max_degraded_level"),
    "window": (lambda r: setattr(r, "resume_window_ms", 600_001), "resume_window_ms"),
    "conversation": (lambda r: setattr(r, "conversation_id", "c" * 65), "conversation_id"),
    "receipts": (lambda r: r.receipts.extend([Receipt()] * 65), "receipts"),
    "collections": (lambda r: r.retrieval.collections.extend(["c"] * 65), "retrieval.collections"),
    "messages": (lambda r: r.prompt.messages.extend([r.prompt.messages[0]] * 4_096), "prompt.messages"),
    "parts": (lambda r: r.prompt.messages[0].parts.extend([ContentPart(text="x")] * 4_096), "prompt.messages"),
    "top_k": (lambda r: setattr(r.retrieval, "top_k", 33), "retrieval.top_k"),
    "ratio": (lambda r: setattr(r.retrieval, "rag_prefetch_ratio", float("nan")), "retrieval.rag_prefetch_ratio"),
    "collection": (lambda r: r.retrieval.collections.append("a/b"), "retrieval.collections[0]"),
    "no message": (lambda r: r.prompt.ClearField("messages"), "prompt.messages"),
    "role": (lambda r: r.prompt.messages.append(Message(parts=[ContentPart(text="x")])), "prompt.messages[1].role"),
    "no part": (lambda r: r.prompt.messages.append(Message(role=Role.ROLE_USER)), "prompt.messages[1].parts"),
    "empty part": (lambda r: r.prompt.messages[0].parts.append(ContentPart()), "prompt.messages[0].parts[1]"),
    "mime": (
        lambda r: r.prompt.messages[0].parts.append(ContentPart(image=Media(data=b"x"))),
        "prompt.messages[0].parts[1].image.mime_type",
    ),
    "tool result": (
        lambda r: r.prompt.messages.append(Message(role=Role.ROLE_TOOL, parts=[ContentPart(text="x")])),
        "prompt.messages[1].tool_call_id",
    ),
    "buffer": (lambda r: setattr(r.prompt, "stream_buffer_size", 63), "prompt.stream_buffer_size"),
    "large buffer": (lambda r: setattr(r.prompt, "stream_buffer_size", 16_385), "prompt.stream_buffer_size"),
    "linger": (lambda r: setattr(r.prompt, "linger_ms", 1_001), "prompt.linger_ms"),
    "temperature": (lambda r: setattr(sampling(r), "temperature", 2.1), "prompt.sampling.temperature"),
    "temperature nan": (lambda r: setattr(sampling(r), "temperature", float("nan")), "prompt.sampling.temperature"),
    "top_p": (lambda r: setattr(sampling(r), "top_p", 0.0), "prompt.sampling.top_p"),
    "penalty": (lambda r: setattr(sampling(r), "presence_penalty", 3), "prompt.sampling.presence_penalty"),
    "stop": (lambda r: sampling(r).stop.append("x"), "prompt.sampling.stop"),
    "tool name": (lambda r: r.prompt.tools.append(Tool(name="a b")), "prompt.tools[0].name"),
    "tool twice": (lambda r: r.prompt.tools.extend([Tool(name="a"), Tool(name="a")]), "prompt.tools[1].name"),
    "tools": (
        lambda r: r.prompt.tools.extend(Tool(name=f"t{i}") for i in range(129)),
        "prompt.tools",
    ),
    "choice": (
        lambda r: r.prompt.tool_choice.CopyFrom(ToolChoice(tool_name="x")),
        "prompt.tool_choice.tool_name",
    ),
    "required": (
        lambda r: r.prompt.tool_choice.CopyFrom(ToolChoice(mode=ToolMode.TOOL_MODE_REQUIRED)),
        "prompt.tool_choice.mode",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_named(name: str) -> None:
    change, path = FAULTS[name]
    request = ask()
    change(request)
    with pytest.raises(MeshError) as caught:
        check(request)
    assert caught.value.reason == ErrorReason.ERROR_REASON_REQUEST_INVALID
    assert [fault for fault, _ in caught.value.fields] == [path]


def test_good_request_passes() -> None:
    check(ask(request_id="a-b.c:d_1", max_degraded_level=3))


def test_number_of_faults_is_bounded() -> None:
    request = GenerateRequest()
    request.prompt.messages.extend([Message()] * 100)
    with pytest.raises(MeshError) as caught:
        check(request)
    assert 0 < len(caught.value.fields) <= 16


# As many of each as a message of the largest size holds.
MANY: dict[str, Change] = {
    "messages": lambda r: r.prompt.messages.extend([Message(role=Role.ROLE_USER, parts=[ContentPart()])] * 300_000),
    "parts": lambda r: r.prompt.messages[0].parts.extend([ContentPart()] * 900_000),
    "tool calls": lambda r: r.prompt.messages.add(role=Role.ROLE_ASSISTANT).tool_calls.extend([ToolCall()] * 900_000),
    "tools": lambda r: r.prompt.tools.extend([Tool(name="a")] * 400_000),
    "stops": lambda r: r.prompt.sampling.stop.extend([""] * 900_000),
    "collections": lambda r: r.retrieval.collections.extend(["c"] * 600_000),
    "receipts": lambda r: r.receipts.extend([Receipt()] * 900_000),
}


@pytest.mark.parametrize("name", MANY)
def test_a_flood_of_entries_is_refused_for_less_than_its_parsing_costs(name: str) -> None:
    request = ask()
    MANY[name](request)
    data = request.SerializeToString()
    started_s = time.process_time()
    parsed = GenerateRequest.FromString(data)
    parsing_s = time.process_time() - started_s
    with pytest.raises(MeshError) as caught:
        check(parsed, len(data))
    checking_s = time.process_time() - started_s - parsing_s
    assert caught.value.reason == ErrorReason.ERROR_REASON_REQUEST_INVALID
    assert checking_s < 3 * parsing_s + 0.02
