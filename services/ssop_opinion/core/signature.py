"""The signature of webhooks, and of what counts as the same words.

A request is signed with HMAC-SHA256 (RFC 2104) over `v1.TIMESTAMP.NONCE.BODY`: TIMESTAMP in seconds since the epoch,
NONCE of the sender's choice, each once. The headers are `x-ssop-key` (the id of the key), `x-ssop-timestamp`,
`x-ssop-nonce` and `x-ssop-signature: v1=HEX`.
"""

import hashlib
import hmac
import re
import unicodedata
from dataclasses import dataclass
from typing import Final

_NONCE: Final = re.compile(r"[A-Za-z0-9._~+/=-]{8,128}")
_SIGNATURE: Final = re.compile(r"v1=[0-9a-f]{64}")
_TIMESTAMP: Final = re.compile(r"[0-9]{1,12}")
_NO_SECRET: Final = b"\0" * 32
_LINK: Final = re.compile(r"\b(?:https?://|www\.)\S+", re.IGNORECASE)
# The forms in which a repost names whom it repeats: RT @a:, 转发 @a：, //@a:. A name alone is who is spoken to.
_NAME: Final = r"@[\w.·-]{1,64}\s*[:：]"
_REPOST: Final = re.compile(
    rf"^(?:\s*(?:(?:rt|转发微博|转发|轉發)\s*(?:[/／]{{2}}\s*)?|[/／]{{2}}\s*){_NAME})+", re.IGNORECASE
)


class SignatureError(ValueError):
    """A request that is not signed as it should be. `reason` is a word: `malformed`, `stale` or `mismatch`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Signed:
    """What a request says about its signature, as its headers have it."""

    key_id: str
    timestamp: str
    nonce: str
    signature: str


def sign(secret: bytes, timestamp: str, nonce: str, body: bytes) -> str:
    """The value of `x-ssop-signature`."""
    message = b".".join((b"v1", timestamp.encode(), nonce.encode(), body))
    return "v1=" + hmac.new(secret, message, hashlib.sha256).hexdigest()


def check_signature(signed: Signed, secret: bytes | None, body: bytes, *, now_ms: int, window_ms: int) -> None:
    """Raise SignatureError unless the request is signed with `secret`, within the window; None is a key of nobody.

    A nonce that was used before is the caller's to find.
    """
    if not _TIMESTAMP.fullmatch(signed.timestamp):
        raise SignatureError("malformed", "x-ssop-timestamp is no number of seconds since the epoch")
    if not _NONCE.fullmatch(signed.nonce):
        raise SignatureError("malformed", "x-ssop-nonce has not 8 to 128 characters of A-Z a-z 0-9 . _ ~ + / = -")
    if not _SIGNATURE.fullmatch(signed.signature):
        raise SignatureError("malformed", "x-ssop-signature is not v1= and 64 hexadecimal digits")
    # Computed for unknown keys too, and before the time is looked at, so that the answer's time tells nothing of keys.
    expected = sign(_NO_SECRET if secret is None else secret, signed.timestamp, signed.nonce, body)
    is_right = hmac.compare_digest(expected, signed.signature) and secret is not None
    if not is_right:
        raise SignatureError("mismatch", "the signature is not that of the key")
    if abs(now_ms - int(signed.timestamp) * 1000) > window_ms:
        raise SignatureError("stale", "x-ssop-timestamp is too far from now")


def words_of(text: str) -> str:
    """What is left of a post when reposting is taken away: case, forms of characters, links, spaces, whom it repeats.

    Digits, signs and order stay: they change what is said.
    """
    folded = unicodedata.normalize("NFKC", text)
    folded = _LINK.sub(" ", _REPOST.sub("", folded))
    return " ".join(folded.casefold().split())


def same_words_key(tenant: str, language: str, text: str) -> bytes:
    """16 bytes that near-identical reposts of a tenant share."""
    words = words_of(text) or text
    return hashlib.blake2b(f"{tenant}\n{language}\n{words}".encode(), digest_size=16).digest()
