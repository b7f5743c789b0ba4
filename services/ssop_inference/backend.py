"""What a node needs of a model engine. The embedded engine is one; upstream servers come behind the same protocol."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from ssop_inference.core.constraint import TEXT, Constraint, Mode
from ssop_inference.core.prompt import ChatMessage, ControlTokens
from ssop_inference.core.request import DEFAULT_SAMPLING, SamplingOptions
from ssop_inference.core.tokens import Outcome, Stop, Token
from ssop_inference.core.tools import ToolUse

__all__: Final = [
    "Backend",
    "Capabilities",
    "GenerateRequest",
    "Generation",
    "Load",
    "Outcome",
    "Stop",
    "Token",
]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the model can do. `context_tokens` is for one request, prompt and answer together.

    `has_prefill`: it goes on from `GenerateRequest.beginning`; a backend without takes requests with an empty one only.
    """

    context_tokens: int
    slots: int
    has_logprobs: bool
    strictest_mode: Mode = Mode.ENVELOPE
    weights_sha256: str = ""
    has_prefill: bool = False
    features: tuple[str, ...] = ()
    has_tools_with_schema: bool = False
    """It takes tools together with a schema of the answer."""
    has_marked_calls: bool = False
    """It calls tools in the marked form of `core.tools`, held by a grammar; `tools` of a request is None then."""
    kind: str = ""
    """What runs it, as in `ModelStatus.backend`."""
    has_estimated_counts: bool = False


class GenerateRequest(NamedTuple):
    """What to generate. `deadline_s` is on the loop's clock. `priority`: lower runs first.

    `confidence`: the log-probabilities of tokens are those after the grammar's mask, where the backend can say them.
    `beginning`: the answer begins with this text already, and the constraint's grammar is that of the rest. Its tokens
    are input; the limit on output counts them too, so that an answer grows no longer for having been begun twice.
    """

    messages: tuple[ChatMessage, ...]
    deadline_s: float
    sampling: SamplingOptions = DEFAULT_SAMPLING
    constraint: Constraint = TEXT
    logprobs: bool = False
    confidence: bool = False
    priority: int = 0
    beginning: str = ""
    tools: ToolUse | None = None


class Generation(Protocol):
    """A generation that runs. Leaving its context stops the model and gives the slot back."""

    @property
    def queue_s(self) -> float:
        """How long it waited for a slot."""
        ...

    @property
    def outcome(self) -> Outcome:
        """How it ended; before the end, what it has consumed so far."""
        ...

    @property
    def is_over(self) -> bool:
        """The model has stopped: from now on `read` gives what is left, and nothing, without waiting."""
        ...

    async def read(self) -> Sequence[Token]:
        """Everything generated since the last call, at least one token; empty when the model has stopped.

        Raises BACKEND_FAILED when the engine failed.
        """
        ...

    def cancel(self) -> None:
        """Stop the model at once; `read` then returns what is left, and nothing. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class Load:
    """How busy a backend is. `queue_s` is a moving average of the wait for a slot; `age_s` is how old this is.

    `kv_used_ratio` is the share of the KV cache that is in use, from 0 to 1, None where that is not known.
    """

    slots_busy: int
    queue_length: int
    queue_s: float
    output_tokens_per_s: float
    age_s: float = 0.0
    kv_used_ratio: float | None = None


class Backend(Protocol):
    """One model. Methods raise MeshError only."""

    @property
    def name(self) -> str:
        """The model's name."""
        ...

    @property
    def control(self) -> ControlTokens:
        """The model's control tokens, which content must not spell."""
        ...

    async def load(self) -> None:
        """Make it able to generate. Raises BACKEND_FAILED."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can do; complete once it is loaded."""
        ...

    def load_now(self) -> Load:
        """How busy it is at this moment. Cheap; may be called in any thread."""
        ...

    def constrain(self, schema: Any, *, format_assertion: bool) -> Constraint:
        """How the model would be held to a schema (as `json.loads` gives it). Takes milliseconds of CPU."""
        ...

    def check_grammar(self, grammar: str) -> str:
        """ "" where the model can be held to a grammar, else why not; for one with `has_marked_calls` only."""
        ...

    def generate(self, request: GenerateRequest) -> AbstractAsyncContextManager[Generation]:
        """Generate; entering waits for a slot.

        Raises UNSUPPORTED for a beginning that it can't go on from, CONTEXT_EXCEEDED before a slot is taken,
        OVERLOADED when the queue is full, DEADLINE_EXCEEDED when the deadline passes in the queue.
        """
        ...

    async def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """Tokens of a prompt, template included, with the model's own tokenizer."""
        ...

    async def close(self) -> None:
        """Stop what runs and free the model. Idempotent."""
        ...
