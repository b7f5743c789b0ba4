"""What is read as a request of the common kind has no fault, and the features that any other way finds."""

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ssop.v1.content_pb2 import (
    ContentPart,
    Document,
    Media,
    Message,
    OutputSchema,
    Prompt,
    Role,
    Sampling,
    Tool,
    ToolCall,
    ToolChoice,
)
from ssop.v1.mesh_pb2 import Receipt
from ssop.v1.router_pb2 import CacheOptions, GenerateRequest, RetrievalOptions
from ssop_router import validation
from ssop_router.core import _parts, _parts_py
from ssop_router.core.policy import Policy
from ssop_router.core.prompt import MAX_MESSAGES, MAX_TOOLS, PromptParts
from ssop_router.features import read_features
from ssop_router.validation import is_plain, read_prompt

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.sampled_from([-2.1, -2.0, -0.1, 0.0, 0.5, 1.0, 2.0, 2.1, float("nan"), float("inf")])
messages = st.builds(
    Message,
    role=st.sampled_from([Role.ROLE_SYSTEM, Role.ROLE_USER, Role.ROLE_ASSISTANT]),
    parts=st.lists(st.builds(ContentPart, text=texts), min_size=1, max_size=3),
)
plain_requests = st.builds(
    GenerateRequest,
    request_id=st.sampled_from(["", "a-1", "a" * 64]),
    prompt=st.builds(
        Prompt,
        messages=st.lists(messages, min_size=1, max_size=4),
        sampling=st.none() | st.builds(Sampling, temperature=st.floats(0, 2), max_output_tokens=st.integers(0, 10)),
        stream_buffer_size=st.sampled_from([0, 64, 16_384]),
        linger_ms=st.sampled_from([None, 0, 1_000]),
        output_schema=st.none() | st.just(OutputSchema(json_schema="{}")),
        logprobs=st.booleans(),
    ),
    model=st.sampled_from(["", "auto"]),
    conversation_id=st.sampled_from(["", "c" * 64]),
    max_degraded_level=st.none() | st.integers(0, 3),
    resume_window_ms=st.sampled_from([0, 600_000]),
    cache=st.none() | st.builds(CacheOptions, allow_sampled=st.booleans()),
)
odd_parts = st.one_of(
    st.just(ContentPart()),
    st.just(ContentPart(image=Media(mime_type="image/png", data=b"x"))),
    st.builds(ContentPart, document=st.builds(Document, text=texts, title=texts)),
)
oddities = st.one_of(
    st.builds(GenerateRequest, request_id=st.sampled_from(["a b", "a" * 65])),
    st.builds(GenerateRequest, conversation_id=st.just("c" * 65)),
    st.builds(GenerateRequest, max_degraded_level=st.just(4)),
    st.builds(GenerateRequest, resume_window_ms=st.just(600_001)),
    st.builds(GenerateRequest, receipts=st.lists(st.just(Receipt()), min_size=1, max_size=65)),
    st.builds(GenerateRequest, retrieval=st.builds(RetrievalOptions, top_k=st.integers(0, 33))),
    st.builds(
        GenerateRequest,
        prompt=st.one_of(
            st.builds(Prompt, stream_buffer_size=st.sampled_from([63, 16_385])),
            st.builds(Prompt, linger_ms=st.just(1_001)),
            st.builds(Prompt, sampling=st.builds(Sampling, temperature=numbers)),
            st.builds(Prompt, sampling=st.builds(Sampling, top_p=numbers)),
            st.builds(Prompt, sampling=st.builds(Sampling, presence_penalty=numbers)),
            st.builds(Prompt, sampling=st.builds(Sampling, frequency_penalty=numbers)),
            st.builds(Prompt, sampling=st.builds(Sampling, stop=st.lists(texts, min_size=1, max_size=5))),
            st.just(Prompt(tools=[Tool(name="t", description="d")])),
            st.just(Prompt(tool_choice=ToolChoice(tool_name="t"))),
            st.builds(Prompt, messages=st.lists(st.builds(Message, role=st.sampled_from(Role.values())), min_size=1)),
            st.builds(
                Prompt,
                messages=st.lists(
                    st.builds(Message, role=st.sampled_from(Role.values()), parts=st.lists(odd_parts, max_size=2)),
                    min_size=1,
                    max_size=2,
                ),
            ),
            st.builds(
                Prompt,
                messages=st.just(
                    [Message(role=Role.ROLE_ASSISTANT, tool_calls=[ToolCall(name="t", arguments="{}")])] * 2
                ),
            ),
        ),
    ),
)


def merge(request: GenerateRequest, odd: list[GenerateRequest]) -> GenerateRequest:
    for one in odd:
        request.MergeFrom(one)
    return request


requests = st.builds(merge, plain_requests, st.lists(oddities, max_size=2))
COMMON = GenerateRequest(
    prompt=Prompt(
        messages=[
            Message(role=Role.ROLE_SYSTEM, parts=[ContentPart(text="Be brief.")]),
            Message(role=Role.ROLE_USER, parts=[ContentPart(text="é"), ContentPart(text="b")]),
        ]
    )
)


def take_apart(request: GenerateRequest) -> PromptParts:
    return read_prompt(request.prompt, max_prompt_bytes=10**9)


def is_common(request: GenerateRequest) -> bool:
    return is_plain(request, take_apart(request))


def test_the_common_kind_is_read() -> None:
    assert take_apart(COMMON).plain == ("é\nb", len("Be brief.") + 3)


@given(plain_requests)
def test_a_plain_one_is_known_as_such(request: GenerateRequest) -> None:
    assert is_common(request)


@given(requests)
@example(COMMON)
@example(GenerateRequest())
def test_what_is_plain_has_no_fault_and_the_same_features(request: GenerateRequest) -> None:
    parts = take_apart(request)
    if not is_plain(request, parts):
        return
    assert list(validation._find_faults(request)) == []
    scopes, any_kind = frozenset({"lite"}), parts._replace(plain=None)
    assert read_features(request, parts, Policy(), scopes) == read_features(request, any_kind, Policy(), scopes)


@given(requests)
@example(COMMON)
@example(GenerateRequest())
@example(GenerateRequest(prompt=Prompt(output_schema=OutputSchema(format_assertion=False))))
def test_kernel_and_twin_take_a_prompt_apart_alike(request: GenerateRequest) -> None:
    prompt = request.prompt
    wire = prompt.SerializeToString(deterministic=True)
    assert repr(_parts.read_parts(prompt, wire)) == repr(_parts_py.read_parts(prompt, wire))


FOUND_IN_NONE = st.sampled_from(
    [
        b"\xa0\x06\x07",
        b"\xa1\x06" + bytes(8),
        b"\xa2\x06\x02hi",
        b"\xa5\x06" + bytes(4),
        b"\xa3\x06\xa4\x06",
        # A group of each kind of field, another group too.
        b"\xa3\x06" + b"\x08\xff\x01\x11" + bytes(8) + b"\x1a\x01x\x25" + bytes(4) + b"\x2b\x2c\xa4\x06",
        b"\xa3\x06" * 50 + b"\xa4\x06" * 50,
    ]
)


@given(plain_requests, FOUND_IN_NONE, st.sampled_from(["prompt", "message", "part", "sampling", "schema"]))
@example(COMMON, b"\xa3\x06\xa4\x06", "prompt")
def test_fields_of_strangers_are_passed_over(request: GenerateRequest, field: bytes, place: str) -> None:
    prompt = Prompt()
    prompt.CopyFrom(request.prompt)
    holder = {
        "prompt": prompt,
        "message": prompt.messages[0],
        "part": prompt.messages[0].parts[0],
        "sampling": prompt.sampling,
        "schema": prompt.output_schema,
    }[place]
    holder.MergeFromString(field)
    wire = prompt.SerializeToString(deterministic=True)
    assert field in wire
    found, expected = _parts.read_parts(prompt, wire), _parts_py.read_parts(prompt, wire)
    # The kernel may leave what it does not know to the full check.
    assert found.plain in (None, expected.plain)
    assert found._replace(plain=None) == expected._replace(plain=None)


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_group_that_is_cut_is_refused(cut: int) -> None:
    wire = COMMON.prompt.SerializeToString() + b"\xa3\x06\x08\x01\x1a\x01x\xa4\x06"
    with pytest.raises(ValueError, match="cut"):
        _parts.read_parts(COMMON.prompt, wire[:-cut])


def test_no_more_is_taken_than_any_prompt_may_have() -> None:
    prompt = Prompt(messages=[Message(role=Role.ROLE_USER)] * 5_000, tools=[Tool(name="t")] * 200)
    wire = prompt.SerializeToString(deterministic=True)
    for kernel in (_parts, _parts_py):
        parts = kernel.read_parts(prompt, wire)
        assert (len(parts.messages), len(parts.tools), parts.plain) == (MAX_MESSAGES, MAX_TOOLS, None)


@given(requests, st.integers(0, 400), st.binary(max_size=3))
def test_bytes_that_are_no_prompt_are_refused_or_read_and_nothing_else(
    request: GenerateRequest, cut: int, garbage: bytes
) -> None:
    wire = request.prompt.SerializeToString()
    with suppress(ValueError):
        _parts.read_parts(request.prompt, wire[:cut] + garbage + wire[cut + len(garbage) :])


@pytest.mark.parametrize("name", ["temperature", "top_p", "presence_penalty", "frequency_penalty"])
@pytest.mark.parametrize("value", [-2.1, -2.0, -0.1, 0.0, 0.5, 1.0, 1.1, 2.0, 2.1, float("nan"), float("inf")])
def test_a_number_is_plain_exactly_where_it_is_within_its_bounds(name: str, value: float) -> None:
    request = GenerateRequest()
    request.CopyFrom(COMMON)
    setattr(request.prompt.sampling, name, value)
    assert is_common(request) == (not list(validation._find_faults(request)))


@given(st.integers(60, 70), st.integers(60, 70))
def test_more_than_it_looks_at_is_left_to_the_full_check(count: int, width: int) -> None:
    message = Message(role=Role.ROLE_USER, parts=[ContentPart(text="x")] * width)
    request = GenerateRequest(prompt=Prompt(messages=[message] * count))
    assert is_common(request) == (count <= 64 and width <= 64)
