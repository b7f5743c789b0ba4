"""Judging what came through a door."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssop_opinion.core.payload import read_payload, write_payload
from ssop_opinion.core.post import MAX_TEXT_BYTES, Post, PostError, Raw
from ssop_opinion.core.reading import (
    MAX_AHEAD_MS,
    MAX_POST_BYTES,
    LineSplitter,
    judge,
    parse_post,
    split_body,
)

NOW_MS = 1_800_000_000_000


def read(body: Any, **more: Any) -> Post:
    return judge(Raw(body, "acme", "crm", "webhook", NOW_MS, {"region": "eu"}), **more)


def fault(body: Any) -> str:
    with pytest.raises(PostError) as caught:
        read(body)
    return caught.value.reason


def test_a_whole_post_is_read() -> None:
    body = {
        "id": "17", "text": "it broke", "posted_at": "2026-11-30T08:00:00+08:00", "language": "en", "region": "us",
        "product_line": "phones",
    }  # fmt: skip
    assert read(body) == Post(
        "acme", "crm", "17", "it broke", "webhook", NOW_MS, 1_795_996_800_000, "en", "us", "phones"
    )


def test_labels_that_a_post_lacks_are_the_doors() -> None:
    assert read({"text": "x"}).region == "eu"


def test_an_id_is_made_of_what_was_said_and_when() -> None:
    first, same, later = (read({"text": "x", "posted_ms": ms}).id for ms in (1, 1, 2))
    assert first == same != later


def test_long_integers_are_no_ids() -> None:
    assert read({"id": 2**53 - 1, "text": "x"}).id == "9007199254740991"
    assert fault({"id": 2**53, "text": "x"}) == "id_type"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "text_missing"),
        ({"text": 5}, "text_type"),
        ({"text": " \n"}, "text_empty"),
        ({"text": "x" * (MAX_TEXT_BYTES + 1)}, "text_too_long"),
        ({"text": "机" * (MAX_TEXT_BYTES // 3 + 1)}, "text_too_long"),
        ({"text": "a\0b"}, "text_has_nul"),
        ({"text": "\ud800"}, "text_not_unicode"),
        ({"text": "x", "id": ""}, "id_length"),
        ({"text": "x", "id": "y" * 129}, "id_length"),
        ({"text": "x", "id": "a b"}, "id_characters"),
        ({"text": "x", "id": "a\n"}, "id_characters"),
        ({"text": "x", "id": True}, "id_type"),
        ({"text": "x", "id": 1.5}, "id_type"),
        ({"text": "x", "id": {"$gt": ""}}, "id_type"),
        ({"text": "x", "tenant": "other"}, "unknown_member"),
        ({"text": "x", "source": "other"}, "unknown_member"),
        ({"text": "x", "posted_ms": -1}, "posted_range"),
        ({"text": "x", "posted_ms": NOW_MS + MAX_AHEAD_MS + 1}, "posted_range"),
        ({"text": "x", "posted_ms": True}, "posted_type"),
        ({"text": "x", "posted_at": "yesterday"}, "posted_type"),
        ({"text": "x", "posted_at": "2026-11-30T08:00:00"}, "posted_type"),
        ({"text": "x", "posted_at": "1" * 50}, "posted_type"),
        ({"text": "x", "posted_ms": 1, "posted_at": "2026-11-30T08:00:00Z"}, "posted_twice"),
        ({"text": "x", "language": 1}, "language_type"),
        ({"text": "x", "language": "en'; DROP"}, "language_form"),
        ({"text": "x", "region": ["eu"]}, "region_type"),
        ({"text": "x", "region": "r" * 65}, "region_too_long"),
        ({"text": "x", "product_line": "a\u0007"}, "product_line_characters"),
    ],
)
def test_a_fault_has_its_reason(body: Any, reason: str) -> None:
    assert fault(body) == reason


def test_a_fault_quotes_nothing() -> None:
    for body in ({"text": "x", "secret-name": 1}, {"text": "x", "id": "my secret"}, {"text": "x", "region": "sec\ret"}):
        with pytest.raises(PostError) as caught:
            read(body)
        assert "secret" not in str(caught.value)


def test_a_tenant_in_a_body_is_left_out_where_unknown_members_are_taken() -> None:
    post = read({"text": "x", "tenant": "other", "source": "other"}, has_unknown_members=True)
    assert (post.tenant, post.source) == ("acme", "crm")


def test_post_as_large_as_may_be_is_read() -> None:
    assert parse_post(b" " * (MAX_POST_BYTES - 2) + b"{}") == {}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff\xfe", "not_utf8"),
        (b"{", "not_json"),
        (b'{"text": "\\ud800"}', "not_json"),
        (b'{"text": NaN}', "not_json"),
        (b"[" * 10_000, "not_json"),
        (b"[]", "not_an_object"),
        (b'"text"', "not_an_object"),
        (b" " * (MAX_POST_BYTES + 1), "post_too_large"),
    ],
)
def test_what_is_no_object_has_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(PostError) as caught:
        parse_post(data)
    assert caught.value.reason == reason


def test_lines_of_a_body_fail_one_by_one() -> None:
    found = split_body(b'{"text":"a"}\n\nnot json\r\n{"text":"b"}', "application/x-ndjson", 10)
    assert [one.reason if isinstance(one, PostError) else one["text"] for one in found] == ["a", "not_json", "b"]


def test_entries_of_an_array_fail_one_by_one() -> None:
    found = split_body(b'[{"text":"a"}, 5]', "application/json", 10)
    assert [one.reason if isinstance(one, PostError) else one["text"] for one in found] == ["a", "not_an_object"]


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
def test_a_body_of_too_many_posts_is_refused_whole(kind: str) -> None:
    body = json.dumps([{"text": "a"}] * 3).encode() if kind == "application/json" else b'{"text":"a"}\n' * 3
    with pytest.raises(PostError) as caught:
        split_body(body, kind, 2)
    assert caught.value.reason == "too_many_posts"


@pytest.mark.parametrize("body", [b"", b"[]", b"null"])
def test_a_body_without_posts_is_a_fault(body: bytes) -> None:
    with pytest.raises(PostError):
        split_body(body, "application/json", 2)


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=6))
def test_lines_do_not_depend_on_the_pieces(data: bytes, cuts: list[int]) -> None:
    def split(pieces: list[bytes]) -> list[Any]:
        lines = LineSplitter(20)
        found = [line for piece in pieces for line in lines.feed(piece)]
        return [one.reason if isinstance(one, PostError) else one for one in (*found, *lines.end())]

    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[begin:end] for begin, end in pairwise(places)]
    assert split(pieces) == split([data])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(["id", "text", "posted_ms", "posted_at", "language", "region", "product_line", "else"]),
)
def test_whatever_comes_is_a_post_or_a_fault(value: Any, name: str) -> None:
    try:
        post = read({"text": "x", name: value})
    except PostError:
        return
    assert (post.tenant, post.source) == ("acme", "crm")
    assert read_payload(write_payload(post)) == post
