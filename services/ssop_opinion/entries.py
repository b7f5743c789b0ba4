"""What the queue's Redis holds: posts that wait, and dead letters; and how they are written there."""

import time
from dataclasses import dataclass
from typing import Any

from ssop_opinion.core.payload import read_payload
from ssop_opinion.core.post import Post


@dataclass(frozen=True, slots=True)
class Entry:
    """A post that was read. `post` None: its payload can't be read. `tries` counts from 1, over all workers.

    `stream` is the tenant whose stream it is in; empty: the common one. Ids differ within a stream alone.
    """

    id: str
    post: Post | None
    payload: bytes
    tries: int = 1
    stream: str = ""

    @property
    def place(self) -> tuple[str, str]:
        """Where it is in the queue: no other post is there."""
        return self.stream, self.id


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What did not become a record, and why. `payload` is that of an accepted post, empty for what never was one."""

    reason: str
    tenant: str
    source: str = ""
    channel: str = ""
    size_bytes: int = 0
    digest: str = ""
    payload: bytes = b""


def text_of(value: Any) -> str:
    """What Redis replied, as text."""
    return value.decode() if isinstance(value, bytes) else str(value)


def read_entry(stream: str, id_: bytes, fields: Any, tries: int = 1) -> Entry:
    """An entry of a stream of posts."""
    found = fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))
    payload = found.get(b"post", b"")
    try:
        post = read_payload(payload)
    except ValueError:
        post = None
    return Entry(id_.decode(), post, payload, tries, stream)


def letter_fields(letter: DeadLetter) -> Any:
    """The fields of a dead letter's entry."""
    return {
        "reason": letter.reason,
        "post": letter.payload,
        "tenant": letter.tenant,
        "bytes": letter.size_bytes or len(letter.payload),
        "source": letter.source,
        "channel": letter.channel,
        "digest": letter.digest,
        "at_ms": time.time_ns() // 1_000_000,
    }


def read_letter(fields: Any) -> DeadLetter:
    """The dead letter of an entry."""
    found = {text_of(key): value for key, value in fields.items()}
    return DeadLetter(
        reason=text_of(found.get("reason", "")),
        tenant=text_of(found.get("tenant", "")),
        source=text_of(found.get("source", "")),
        channel=text_of(found.get("channel", "")),
        size_bytes=int(found.get("bytes", 0)),
        digest=text_of(found.get("digest", "")),
        payload=found.get("post", b""),
    )
