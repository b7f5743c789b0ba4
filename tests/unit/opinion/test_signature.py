"""The signature of webhooks, and what counts as the same words."""

import hashlib
import hmac

import pytest

from ssop_opinion.core.signature import SignatureError, Signed, check_signature, same_words_key, sign, words_of

SECRET = b"sixteen bytes at least"
NOW_MS = 1_800_000_000_000
AT = "1800000000"
NONCE = "a-nonce-1"


def check(
    body: bytes = b"{}", *, at: str = AT, nonce: str = NONCE, secret: bytes | None = SECRET, signature: str = ""
) -> None:
    signed = Signed("k", at, nonce, signature or sign(SECRET, AT, NONCE, b"{}"))
    check_signature(signed, secret, body, now_ms=NOW_MS, window_ms=300_000)


def reason_of(**changes: object) -> str:
    with pytest.raises(SignatureError) as caught:
        check(**changes)  # type: ignore[arg-type]
    return caught.value.reason


def test_a_signed_request_passes() -> None:
    check()


def test_the_signature_is_that_of_the_documentation() -> None:
    by_hand = hmac.new(SECRET, f"v1.{AT}.{NONCE}.{{}}".encode(), hashlib.sha256).hexdigest()
    assert sign(SECRET, AT, NONCE, b"{}") == f"v1={by_hand}"


@pytest.mark.parametrize(
    "changes",
    [
        {"body": b"{ }"},
        {"at": "1800000001"},
        {"nonce": "a-nonce-2"},
        {"secret": b"another secret of someone"},
        {"secret": None},
        {"signature": "v1=" + "0" * 64},
    ],
)
def test_whatever_was_changed_is_a_mismatch(changes: dict[str, object]) -> None:
    assert reason_of(**changes) == "mismatch"


@pytest.mark.parametrize(
    "changes",
    [
        {"at": ""},
        {"at": "-5"},
        {"at": "1" * 13},
        {"at": "１８００００００００"},
        {"nonce": "short"},
        {"nonce": "n" * 129},
        {"nonce": "spaces are not taken"},
        {"signature": "0" * 64},
        {"signature": "v1=" + "Z" * 64},
        {"signature": "v1=" + "ä" * 64},
    ],
)
def test_what_has_not_the_form_is_malformed(changes: dict[str, object]) -> None:
    assert reason_of(**changes) == "malformed"


@pytest.mark.parametrize("offset_s", [-301, 301])
def test_a_signature_outside_of_the_window_is_stale(offset_s: int) -> None:
    at = str(NOW_MS // 1000 + offset_s)
    signed = Signed("k", at, NONCE, sign(SECRET, at, NONCE, b""))
    with pytest.raises(SignatureError) as caught:
        check_signature(signed, SECRET, b"", now_ms=NOW_MS, window_ms=300_000)
    assert caught.value.reason == "stale"


@pytest.mark.parametrize(
    "again",
    [
        "RT @someone: The phone broke",
        "the  PHONE broke",
        "The phone broke https://t.example/abc",
        "The phone broke",
    ],
)
def test_reposts_have_the_same_words(again: str) -> None:
    assert same_words_key("acme", "en", again) == same_words_key("acme", "en", "The phone broke")


@pytest.mark.parametrize(
    "other",
    [
        "The phone broke 2 times",
        "The phone broke!",
        "@acme: The phone broke",
        "broke the phone",
        "The phone broke ❤",
    ],
)
def test_what_may_say_something_else_has_other_words(other: str) -> None:
    assert same_words_key("acme", "en", other) != same_words_key("acme", "en", "The phone broke")


def test_tenants_and_languages_share_no_words() -> None:
    assert len({same_words_key(*of, "x") for of in (("a", "en"), ("b", "en"), ("a", "zh"))}) == 3


def test_chinese_forms_of_reposts_are_known() -> None:
    assert words_of("转发微博 //@张三：手机坏了") == words_of("//@张三:手机坏了") == "手机坏了"


def test_a_post_of_links_alone_keeps_its_own_key() -> None:
    assert same_words_key("a", "", "http://a.example") != same_words_key("a", "", "http://b.example")
