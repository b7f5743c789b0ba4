"""A post as it came in: what every part of the application agrees on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Channel = Literal["webhook", "file", "x_stream", "redis", "kafka"]
MAX_TEXT_BYTES: Final = 16_384
MAX_ID_BYTES: Final = 128
MAX_LABEL_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Post:
    """A post of one tenant. Times are Unix milliseconds.

    `id` is the source's own, or made from the content; with tenant and source it says whether two deliveries are the
    same post. `region` and `product_line` come from the source, are at most MAX_LABEL_BYTES long, and may be empty.
    `posted_ms` is 0 where the source gives no time.
    """

    tenant: str
    source: str
    id: str
    text: str
    channel: Channel
    received_ms: int
    posted_ms: int = 0
    language: str = ""
    region: str = ""
    product_line: str = ""

    @property
    def key(self) -> str:
        """What names the post for ever: deliveries with the same key are one record."""
        return f"{self.tenant}/{self.source}/{self.id}"


class PostError(ValueError):
    """Something that is no post. `reason` is a word of the dead letters, such as `text_too_long`.

    The message quotes nothing of the input.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Raw:
    """A post's JSON before it is judged, with what the door that it came through knows."""

    body: Mapping[str, Any]
    tenant: str
    source: str
    channel: Channel
    received_ms: int
    defaults: Mapping[str, str] = field(default_factory=dict)
