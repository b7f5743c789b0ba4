"""Judging what came through a door: JSON becomes a post, or a fault with a reason that quotes nothing.

What a body says can't choose its tenant, its source, or how it is stored. A post is held to the same rules whatever
door it came through; doors differ in whether members of other names are a fault.
"""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from pydantic_core import from_json

from ssop_opinion.core.post import MAX_ID_BYTES, MAX_LABEL_BYTES, MAX_TEXT_BYTES, Post, PostError, Raw

MEMBERS: Final = frozenset({"id", "text", "posted_ms", "posted_at", "language", "lang", "region", "product_line"})
MAX_POST_BYTES: Final = 65_536
"""Largest JSON of one post: every character of a longest text may be an escape."""
MAX_AHEAD_MS: Final = 86_400_000
"""How far in the future a post may say it was posted: clocks and time zones are wrong by that much."""
_MAX_LANGUAGE_BYTES: Final = 35
_NUL: Final = "\0"


def parse_post(data: bytes) -> Mapping[str, Any]:
    """The JSON object of one post. Raises PostError."""
    if len(data) > MAX_POST_BYTES:
        raise PostError("post_too_large", f"a post has at most {MAX_POST_BYTES} bytes")
    return _as_object(_parse(data))


def _as_object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise PostError("not_an_object", "a post is a JSON object")
    return value


def _parse(data: bytes) -> Any:
    try:
        data.decode()
    except UnicodeDecodeError:
        raise PostError("not_utf8", "the post is not UTF-8") from None
    try:
        return from_json(data, allow_inf_nan=False)
    except ValueError:
        raise PostError("not_json", "the post is not JSON") from None


def split_body(body: bytes, content_type: str, max_posts: int) -> list[Mapping[str, Any] | PostError]:
    """The posts of a webhook's body: one JSON object, an array of them, or one a line (`application/x-ndjson`).

    What is no JSON object is a PostError in its place. Raises PostError for a body that can't be split.
    """
    if content_type in {"application/x-ndjson", "application/jsonl", "application/x-jsonlines"}:
        lines = [line for line in body.split(b"\n") if line.strip()]
        if not lines:
            raise PostError("empty", "the body holds no post")
        _bound(len(lines), max_posts)
        return [_attempt(line) for line in lines]
    if len(body) <= MAX_POST_BYTES or body.lstrip()[:1] == b"[":
        value = _parse(body)
    else:
        raise PostError("post_too_large", f"a post has at most {MAX_POST_BYTES} bytes")
    if not isinstance(value, list):
        return [_as_object(value)]
    if not value:
        raise PostError("empty", "the body holds no post")
    _bound(len(value), max_posts)
    return [one if isinstance(one, dict) else PostError("not_an_object", "a post is a JSON object") for one in value]


def _bound(count: int, max_posts: int) -> None:
    if count > max_posts:
        raise PostError("too_many_posts", f"a body has at most {max_posts} posts")


def _attempt(data: bytes) -> Mapping[str, Any] | PostError:
    try:
        return parse_post(data)
    except PostError as error:
        return error


def judge(raw: Raw, *, has_unknown_members: bool = False) -> Post:
    """The post of a JSON object. Raises PostError."""
    body = raw.body
    if not has_unknown_members and not body.keys() <= MEMBERS:
        raise PostError("unknown_member", "a post has members of other names than " + ", ".join(sorted(MEMBERS)))
    text = _text(body)
    posted_ms = _posted_ms(body, raw.received_ms)
    language = body.get("language", body.get("lang", ""))
    return Post(
        tenant=raw.tenant,
        source=raw.source,
        id=_id(body, text, posted_ms),
        text=text,
        channel=raw.channel,
        received_ms=raw.received_ms,
        posted_ms=posted_ms,
        language=_language(language if language is not None else ""),
        region=_label(raw, "region"),
        product_line=_label(raw, "product_line"),
    )


def _text(body: Mapping[str, Any]) -> str:
    text = body.get("text")
    if text is None:
        raise PostError("text_missing", "a post has a text")
    if not isinstance(text, str):
        raise PostError("text_type", "the text of a post is a string")
    if not text.strip():
        raise PostError("text_empty", "the text of a post is empty")
    if len(text) > MAX_TEXT_BYTES or _size(text, "text") > MAX_TEXT_BYTES:
        raise PostError("text_too_long", f"the text of a post has at most {MAX_TEXT_BYTES} bytes")
    if _NUL in text:
        raise PostError("text_has_nul", "the text of a post holds a NUL")
    return text


def _size(value: str, name: str) -> int:
    """Bytes in UTF-8. JSON can name lone surrogates, which have no UTF-8."""
    try:
        return len(value.encode())
    except UnicodeEncodeError:
        raise PostError(f"{name}_not_unicode", f"the {name} holds half a surrogate pair") from None


def _id(body: Mapping[str, Any], text: str, posted_ms: int) -> str:
    value = body.get("id")
    if value is None:
        # The same words at the same time are the same post: there is nothing else to tell two deliveries by.
        return "h-" + hashlib.sha256(f"{posted_ms}\n{text}".encode()).hexdigest()[:40]
    if isinstance(value, int) and not isinstance(value, bool):
        # What JSON readers make of long numbers differs, so only those that all read alike are ids.
        if not 0 <= value < 2**53:
            raise PostError("id_type", "the id of a post is a string, or an integer below 2^53")
        return str(value)
    if not isinstance(value, str):
        raise PostError("id_type", "the id of a post is a string, or an integer below 2^53")
    if not value or _size(value, "id") > MAX_ID_BYTES:
        raise PostError("id_length", f"the id of a post has 1 to {MAX_ID_BYTES} bytes")
    if not value.isprintable() or " " in value:
        raise PostError("id_characters", "the id of a post holds spaces or control characters")
    return value


def _posted_ms(body: Mapping[str, Any], now_ms: int) -> int:
    value, written = body.get("posted_ms"), body.get("posted_at")
    if value is None and written is None:
        return 0
    if value is not None and written is not None:
        raise PostError("posted_twice", "a post has posted_ms or posted_at, not both")
    if written is not None:
        value = _moment_ms(written)
    if not isinstance(value, int) or isinstance(value, bool):
        raise PostError("posted_type", "posted_ms is an integer: milliseconds since the epoch")
    if not 0 <= value <= now_ms + MAX_AHEAD_MS:
        raise PostError("posted_range", "the post was posted before 1970, or more than a day in the future")
    return value


def _moment_ms(written: Any) -> int:
    if isinstance(written, str) and len(written) <= 40:
        try:
            moment = datetime.fromisoformat(written)
            if moment.tzinfo is not None:
                return round(moment.timestamp() * 1000)
        except (ValueError, OverflowError):
            pass
    raise PostError("posted_type", "posted_at is a moment as 2026-11-30T08:00:00Z")


def _language(value: Any) -> str:
    if not isinstance(value, str):
        raise PostError("language_type", "the language of a post is a string")
    is_tag = value.isascii() and value.replace("-", "").replace("_", "").isalnum()
    if value and (len(value) > _MAX_LANGUAGE_BYTES or not is_tag):
        raise PostError("language_form", "the language of a post is a tag such as zh or en-GB")
    return value


def _label(raw: Raw, name: str) -> str:
    value = raw.body.get(name)
    if value is None:
        return raw.defaults.get(name, "")
    if not isinstance(value, str):
        raise PostError(f"{name}_type", f"the {name} of a post is a string")
    if _size(value, name) > MAX_LABEL_BYTES:
        raise PostError(f"{name}_too_long", f"the {name} of a post has at most {MAX_LABEL_BYTES} bytes")
    if not value.isprintable():
        raise PostError(f"{name}_characters", f"the {name} of a post holds control characters")
    return value


def split_lines(parts: Iterator[bytes], max_bytes: int = MAX_POST_BYTES) -> Iterator[bytes | PostError]:
    """Lines of what comes in pieces, without their ends; one that is longer than `max_bytes` is a PostError."""
    lines = LineSplitter(max_bytes)
    for part in parts:
        yield from lines.feed(part)
    yield from lines.end()


class LineSplitter:
    """Lines of what comes in pieces. Holds at most `max_bytes` of a line; the rest of a longer one is left out."""

    def __init__(self, max_bytes: int = MAX_POST_BYTES) -> None:
        self._max_bytes = max_bytes
        self._held: list[bytes] = []
        self._size = 0

    def feed(self, part: bytes) -> Iterator[bytes | PostError]:
        """The lines that this piece ends."""
        *ended, rest = part.split(b"\n")
        for line in ended:
            self._hold(line)
            yield from self.end()
        self._hold(rest)

    def end(self) -> Iterator[bytes | PostError]:
        """The line that is held, unless it is empty."""
        held, size = b"".join(self._held), self._size
        self._held, self._size = [], 0
        if size > self._max_bytes:
            yield PostError("post_too_large", f"a post has at most {self._max_bytes} bytes")
        elif line := held.strip():
            yield line

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._max_bytes:
            self._held = []
        elif piece:
            self._held.append(piece)
