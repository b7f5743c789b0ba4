from typing_extensions import Buffer

from .errors import Violation
from .limits import Limits
from .rules import Schema

class Encoder:
    """Makes the frames of one document from the bytes that a model generates."""

    def __init__(
        self,
        schema: Schema | None,
        *,
        stream_buffer_bytes: int = 0,
        limits: Limits | None = None,
        envelope: bool = False,
        document: int = 0,
        first_seq: int = 1,
        track_spans: bool = False,
        tool_name: str = "",
        tool_call_id: str = "",
        stream_id: int = 0,
    ) -> None: ...
    def feed(self, data: Buffer, /) -> int: ...
    def take(self) -> bytes: ...
    def flush(self) -> bytes: ...
    def drain(self, flush: bool = False) -> list[bytes]: ...
    def finish(
        self,
        *,
        finish_reason: int = 0,
        incomplete_reason: int = 0,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cached_input_tokens: int = 0,
    ) -> None: ...
    def take_spans(self) -> list[tuple[int, int, int]]: ...
    @property
    def verdict(self) -> int: ...
    @property
    def violation(self) -> Violation | None: ...
    @property
    def stream_id(self) -> int: ...
    @property
    def frames(self) -> int: ...
    @property
    def has_field(self) -> bool: ...
    @property
    def is_done(self) -> bool: ...
