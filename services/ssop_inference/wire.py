"""What a kind of model server speaks, behind one protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ssop_inference.backend import GenerateRequest
from ssop_inference.core.constraint import Constraint, Mode
from ssop_inference.core.prompt import ChatMessage
from ssop_inference.core.tokens import Stop, Token
from ssop_inference.core.upstream_counts import Counts
from ssop_inference.upstream_http import UpstreamHttp


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """What a server says of itself: requests that run, requests that wait; `at_s` on the loop's clock.

    `kv_used_ratio` is the share of its KV cache that is in use, from 0 to 1, None where it does not say.
    """

    running: int
    waiting: int
    at_s: float
    kv_used_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server was found to be. 0: not known."""

    context_tokens: int = 0
    slots: int = 0
    has_logprobs: bool = False
    has_usage: bool = False
    has_prefill: bool = False
    strictest_mode: Mode = Mode.ENVELOPE
    has_tools: bool = False
    """It calls tools by itself, as its API has them."""
    has_marked_calls: bool = False
    """It takes a grammar that holds it to calls in the marked form."""
    has_tools_with_schema: bool = False


class Reader(Protocol):
    """Reads the events of one answer. Raises WireError and MeshError."""

    counts: Counts
    stop: Stop | None
    is_ended: bool
    has_logprobs: bool

    pieces: int
    """Texts so far: one a token, as a rule."""
    signs: int
    """Texts and thoughts so far."""

    def feed(self, event: str, data: str) -> list[Token]:
        """Take the next event."""
        ...

    def close(self) -> None:
        """The body is over."""
        ...


class Wire(Protocol):
    """What a kind of server speaks. Methods raise MeshError and WireError; the caller sets deadlines."""

    path: str

    @property
    def dialect_name(self) -> str:
        """How the server is spoken to."""
        ...

    @property
    def model(self) -> str:
        """The model's name on the server."""
        ...

    @property
    def load_page(self) -> str:
        """Where the server says its load; empty where it does not."""
        ...

    async def find_out(self, http: UpstreamHttp) -> ServerFacts:
        """Ask the server what it is, and generate one token."""
        ...

    def body(self, request: GenerateRequest, max_output_tokens: int) -> Mapping[str, Any]:
        """The body of a request."""
        ...

    def reader(self, request: GenerateRequest) -> Reader:
        """A reader for the answer to it."""
        ...

    def constrain(self, schema: Any, *, format_assertion: bool) -> Constraint:
        """See `backend.Backend`."""
        ...

    def check_grammar(self, grammar: str) -> str:
        """See `backend.Backend`."""
        ...

    async def count_tokens(self, http: UpstreamHttp, messages: Sequence[ChatMessage]) -> int | None:
        """Tokens of a prompt by the server's tokenizer; None where it has no such service."""
        ...

    async def try_beginning(self, http: UpstreamHttp, request: GenerateRequest) -> int:
        """Tokens of the beginning that a request has. Raises UNSUPPORTED where the server can't go on from it."""
        ...

    async def read_load(self, http: UpstreamHttp, now_s: float) -> ServerLoad | None:
        """How busy the server is; None where it does not say."""
        ...
