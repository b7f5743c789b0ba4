"""What a router says to nodes and clients is protobuf's own, byte for byte."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssop.v1.content_pb2 import ContentPart, Message, Prompt, Role
from ssop.v1.mesh_pb2 import Usage
from ssop_router.core import _messages, _messages_py

UINT32 = st.sampled_from([0, 0, 1, 127, 128, 2**32 - 1]) | st.integers(0, 2**32 - 1)
UINT64 = UINT32 | st.integers(0, 2**64 - 1)
NONE = st.none()
TEXTS = st.just("") | st.text(max_size=200).filter(lambda text: text.isprintable())
FLOATS = st.sampled_from([0.0, -0.0, 1e-46, 0.1]) | st.floats(width=32)
USAGES = st.builds(Usage, input_tokens=UINT32, output_tokens=UINT32, cached_input_tokens=UINT32).map(
    Usage.SerializeToString
)
PROMPTS = st.builds(
    lambda texts: Prompt(messages=[Message(role=Role.ROLE_USER, parts=[ContentPart(text=text)]) for text in texts]),
    st.lists(TEXTS, max_size=3),
).map(Prompt.SerializeToString)


@given(TEXTS, TEXTS, PROMPTS)
def test_a_request_to_a_node_is_protobufs_own(request_id: str, model: str, prompt: bytes) -> None:
    written = _messages.write_request(request_id, model, prompt)
    assert written == _messages_py.write_request(request_id, model, prompt)


@given(
    st.tuples(
        st.binary(max_size=40),
        TEXTS,
        st.none() | FLOATS,
        UINT32,
        st.none() | FLOATS,
        FLOATS,
        FLOATS,
        st.none() | FLOATS,
    )
)
def test_a_decision_is_protobufs_own(values: tuple[Any, ...]) -> None:
    assert _messages.write_decision(*values) == _messages_py.write_decision(*values)


@given(st.tuples(USAGES, st.booleans(), *[UINT32] * 7, UINT64, UINT32, NONE | USAGES, UINT32, UINT32, UINT32))
def test_an_accounting_is_protobufs_own(values: tuple[Any, ...]) -> None:
    assert _messages.write_accounting(*values) == _messages_py.write_accounting(*values)


@pytest.mark.parametrize("way", [_messages, _messages_py], ids=["compiled", "twin"])
@pytest.mark.parametrize("decision_us", [-1, 2**32])
def test_a_number_that_no_field_holds_is_refused(way: Any, decision_us: int) -> None:
    with pytest.raises((ValueError, OverflowError)):
        way.write_decision(b"", "r", None, decision_us, None, 0.0, 0.0, None)
