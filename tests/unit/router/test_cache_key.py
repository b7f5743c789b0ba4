"""The canonical key: every field counts, and no two requests share a form."""

import pytest

from ssop_router.core.cache_key import CanonicalRequest, cache_key

BASE = CanonicalRequest(
    tenant="acme",
    scopes=frozenset({"lite", "ssop"}),
    model="small",
    sampling=b"\1",
    template_version="t1",
    schema_hash=b"h" * 32,
    index_version="i1",
    messages=(b"one", b"two"),
)
OTHER = {
    "tenant": "acm",
    "scopes": frozenset({"lite"}),
    "model": "smal",
    "sampling": b"",
    "template_version": "t",
    "schema_hash": b"",
    "index_version": "",
    "messages": (b"onetwo",),
    "tools": (b"t",),
    "tool_choice": b"c",
    "collections": ("docs",),
    "retrieval_top_k": 1,
    "stream_buffer_bytes": 1024,
    "wire_version": 2,
    "codec_version": "0.2.0",
}


def test_key_has_32_bytes() -> None:
    assert len(cache_key(BASE)) == 32


def test_table_of_changes_names_every_field() -> None:
    assert set(OTHER) == set(CanonicalRequest._fields)


@pytest.mark.parametrize("name", OTHER)
def test_every_field_changes_the_key(name: str) -> None:
    assert cache_key(BASE._replace(**{name: OTHER[name]})) != cache_key(BASE)  # type: ignore[arg-type]


def test_order_of_messages_changes_the_key() -> None:
    assert cache_key(BASE._replace(messages=(b"two", b"one"))) != cache_key(BASE)


def test_order_in_which_scopes_were_named_does_not() -> None:
    again = BASE._replace(scopes=frozenset(["ssop", "lite"]))
    assert cache_key(again) == cache_key(BASE)


def test_form_is_fixed() -> None:
    # Another value means that answers stored by an older release are never found again: bump the domain, and say so.
    assert cache_key(BASE).hex() == "f2501a6252e55b17e5f45e72b3b104862d6a3378235019a40bc28d694af15385"
