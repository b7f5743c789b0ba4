"""The compiled reader of requests and its slow twin read the same."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ssop.v1 import content_pb2, inference_pb2
from ssop_inference.core import _asking_py
from ssop_inference.core.asking import IS_COMPILED, read_request

_asking = pytest.importorskip("ssop_inference.core._asking")

Request = inference_pb2.InferenceServiceGenerateRequest
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
small = st.integers(0, 2**32 - 1)
parts = st.builds(content_pb2.ContentPart, text=texts)
messages = st.builds(
    content_pb2.Message, role=st.sampled_from([1, 2, 3]), parts=st.lists(parts, min_size=1, max_size=1)
)
samplings = st.builds(
    content_pb2.Sampling,
    temperature=st.floats(width=32, allow_nan=False),
    top_p=st.none() | st.floats(0, 1, width=32),
    top_k=small,
    seed=st.none() | st.integers(0, 2**64 - 1),
    max_output_tokens=small,
    stop=st.lists(texts, max_size=3),
    presence_penalty=st.floats(-2, 2, width=32),
    frequency_penalty=st.floats(-2, 2, width=32),
)
schemas = st.builds(content_pb2.OutputSchema, json_schema=texts, format_assertion=st.sampled_from([None, True, False]))
prompts = st.builds(
    content_pb2.Prompt,
    messages=st.lists(messages, min_size=1, max_size=3),
    output_schema=st.none() | schemas,
    sampling=st.none() | samplings,
    stream_buffer_size=small,
    logprobs=st.booleans(),
    linger_ms=st.none() | small,
)
plain_requests = st.builds(
    Request, request_id=texts, model=texts, prompt=prompts, priority=small, confidence_tokens=small
)
odd_messages = st.builds(
    content_pb2.Message,
    role=st.integers(-1, 6),
    parts=st.lists(
        parts
        | st.just(content_pb2.ContentPart())
        | st.just(content_pb2.ContentPart(image=content_pb2.Media(data=b"x")))
        | st.just(content_pb2.ContentPart(document=content_pb2.Document(text="d"))),
        max_size=2,
    ),
    tool_call_id=st.sampled_from(["", "c"]),
    tool_calls=st.lists(st.just(content_pb2.ToolCall(name="t")), max_size=1),
)
odd_requests = st.builds(
    Request,
    request_id=texts,
    prompt=st.none()
    | st.builds(
        content_pb2.Prompt,
        messages=st.lists(odd_messages | messages, max_size=2),
        tools=st.lists(st.just(content_pb2.Tool(name="t")), max_size=1),
        tool_choice=st.none() | st.just(content_pb2.ToolChoice()),
    ),
    passages=st.lists(st.just(inference_pb2.Passage(text="p")), max_size=1),
    continue_from=st.none() | st.just(inference_pb2.ContinueFrom(chunk=b"c")),
)


def test_the_reader_is_compiled() -> None:
    assert IS_COMPILED


@given(plain_requests)
def test_plain_requests_are_read_the_same(request: Request) -> None:
    data = request.SerializeToString()
    read = _asking.read_plain(data)
    assert read is not None
    assert read == _asking_py.read_plain(data)


@given(st.one_of(odd_requests, plain_requests))
@example(Request())
def test_what_is_plain_to_one_is_plain_to_the_other(request: Request) -> None:
    data = request.SerializeToString()
    assert _asking.read_plain(data) == _asking_py.read_plain(data)


@given(plain_requests | odd_requests, st.data())
def test_damaged_bytes_are_never_read_as_anything_else(request: Request, data: st.DataObject) -> None:
    whole = bytearray(request.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(whole)))
        change = data.draw(st.sampled_from(["set", "cut", "add"]))
        if change == "cut":
            del whole[at:]
        elif change == "add":
            whole[at:at] = data.draw(st.binary(max_size=6))
        elif at < len(whole):
            whole[at] = data.draw(st.integers(0, 255))
    read = _asking.read_plain(bytes(whole))
    assert read is None or repr(read) == repr(_asking_py.read_plain(bytes(whole)))


@given(plain_requests)
def test_two_halves_of_a_message_are_put_together(request: Request) -> None:
    request.request_id, request.confidence_tokens = "r", 0
    request.prompt.ClearField("sampling")
    request.prompt.stream_buffer_size = request.prompt.linger_ms = 0
    twice = request.SerializeToString() + Request(prompt=content_pb2.Prompt(logprobs=True)).SerializeToString()
    assert _asking.read_plain(twice) is None
    assert read_request(twice).logprobs
