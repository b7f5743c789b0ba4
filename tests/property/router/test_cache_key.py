"""Two requests share a key only when they are the same request; and records come back as they went."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ssop_cache.core.keys import Layout
from ssop_cache.core.records import AnswerRecord, RecordError, decode_record, encode_record
from ssop_router.core import _form, _form_py
from ssop_router.core.cache_key import CanonicalRequest, cache_key

# Few and short values, so that items meet at their borders.
SHORT = st.sampled_from(["", "a", "b", "ab", "ba", "\0", "\u00e9"])
BYTES = st.sampled_from([b"", b"a", b"ab", b"\0", b"\0\0\0\0\0\0\0\1a"])
REQUESTS = st.builds(
    CanonicalRequest,
    tenant=SHORT,
    scopes=st.frozensets(SHORT, max_size=2),
    model=SHORT,
    sampling=BYTES,
    template_version=SHORT,
    schema_hash=BYTES,
    index_version=SHORT,
    messages=st.lists(BYTES, max_size=3).map(tuple),
    tools=st.lists(BYTES, max_size=2).map(tuple),
    tool_choice=BYTES,
    collections=st.lists(SHORT, max_size=2).map(tuple),
    retrieval_top_k=st.integers(0, 2),
    stream_buffer_bytes=st.integers(0, 2),
    wire_version=st.integers(1, 2),
    codec_version=SHORT,
)


@given(REQUESTS, REQUESTS)
def test_keys_are_equal_only_for_equal_requests(one: CanonicalRequest, other: CanonicalRequest) -> None:
    assert (cache_key(one) == cache_key(other)) == (one == other)


@given(REQUESTS)
@example(CanonicalRequest("t" * 5_000, frozenset({"b", "a"}), "m", b"s" * 3_000, "", b"h", "", (b"m" * 9_000, b"")))
def test_kernel_and_twin_write_the_same_form(request: CanonicalRequest) -> None:
    assert _form.encode(request) == _form_py.encode(request)


@pytest.mark.parametrize("missing", ["tenant", "sampling", "schema_hash", "tools", "tool_choice", "collections"])
@pytest.mark.parametrize("encode", [_form.encode, _form_py.encode], ids=["compiled", "twin"])
def test_what_is_missing_has_no_form(encode: Callable[[CanonicalRequest], bytes], missing: str) -> None:
    request = CanonicalRequest("t", frozenset(), "m", b"", "", b"", "", (b"m",))
    absent: Any = None
    with pytest.raises((TypeError, AttributeError)):
        encode(request._replace(**{missing: absent}))
    with pytest.raises((TypeError, AttributeError)):
        encode(request._replace(messages=(b"m", absent)))


@given(REQUESTS, st.text())
def test_no_key_is_shared_between_tenants(request: CanonicalRequest, tenant: str) -> None:
    assume(tenant != request.tenant)
    assert cache_key(request._replace(tenant=tenant)) != cache_key(request)


@given(st.text(), st.text(), st.binary(min_size=32, max_size=32))
def test_same_cache_key_of_two_tenants_is_two_keys_in_redis(one: str, other: str, key: bytes) -> None:
    assume(one != other)
    layout = Layout(1, "0.1.0")
    assert layout.of_tenant(one).answer(key) != layout.of_tenant(other).answer(key)
    assert layout.of_tenant(one).lease(key) != layout.of_tenant(other).lease(key)


RECORDS = st.builds(AnswerRecord, st.text(), st.integers(0, 65_535), st.text(), st.text(), st.binary())


@given(RECORDS)
def test_record_comes_back_as_it_went(record: AnswerRecord) -> None:
    assert decode_record(encode_record(record)) == record


@given(st.binary())
def test_decoding_raises_nothing_but_its_own_error(data: bytes) -> None:
    with suppress(RecordError):
        decode_record(b"SSA1" + data)
