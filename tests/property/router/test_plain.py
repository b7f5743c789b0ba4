"""What is read as a request of the common kind has no fault, and the features that any other way finds."""

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
from ssop_router.core.policy import Policy
from ssop_router.features import read_features
from ssop_router.validation import read_plain

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


def test_the_common_kind_is_read() -> None:
    assert read_plain(COMMON) == ("é\nb", len("Be brief.") + 3)


@given(plain_requests)
def test_a_plain_one_is_known_as_such(request: GenerateRequest) -> None:
    assert read_plain(request) is not None


@given(requests)
@example(COMMON)
@example(GenerateRequest())
def test_what_is_plain_has_no_fault_and_the_same_features(request: GenerateRequest) -> None:
    plain = read_plain(request)
    if plain is None:
        return
    assert list(validation._find_faults(request)) == []
    scopes = frozenset({"lite"})
    assert read_features(request, Policy(), scopes, plain=plain) == read_features(request, Policy(), scopes)


@pytest.mark.parametrize("name", ["temperature", "top_p", "presence_penalty", "frequency_penalty"])
@pytest.mark.parametrize("value", [-2.1, -2.0, -0.1, 0.0, 0.5, 1.0, 1.1, 2.0, 2.1, float("nan"), float("inf")])
def test_a_number_is_plain_exactly_where_it_is_within_its_bounds(name: str, value: float) -> None:
    request = GenerateRequest()
    request.CopyFrom(COMMON)
    setattr(request.prompt.sampling, name, value)
    assert (read_plain(request) is not None) == (not list(validation._find_faults(request)))


@given(st.integers(60, 70), st.integers(60, 70))
def test_more_than_it_looks_at_is_left_to_the_full_check(count: int, width: int) -> None:
    message = Message(role=Role.ROLE_USER, parts=[ContentPart(text="x")] * width)
    plain = read_plain(GenerateRequest(prompt=Prompt(messages=[message] * count)))
    assert (plain is None) == (count > 64 or width > 64)
