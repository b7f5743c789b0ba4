"""A model whose documents show whether one hand wrote them: all but the seed follows from the seed and the question.

A prompt is a JSON object: `ask` is any text, `request` a name, `kills` at how many characters of the answer the process
of the node that writes it kills itself, each once in all; behind its last token where it has not so many.
"""

import asyncio
import json
import os
import random
import secrets
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_inference.backend import Capabilities, GenerateRequest, Load, Outcome, Stop, Token
from ssop_inference.core.constraint import Constraint, Mode, choose_constraint
from ssop_inference.core.limits import EngineLimits
from ssop_inference.core.prompt import ChatMessage, ControlTokens
from ssop_inference.gate import SchemaGate
from ssop_inference.mask import GrammarMask

SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "seed": {"type": "string", "pattern": "^[0-9a-f]{8}$"},
        "mood": {"enum": ["good", "bad", "so-so"]},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "is_even": {"type": "boolean"},
        "people": {"type": "array", "items": {"$ref": "#/$defs/Person"}, "maxItems": 4},
        "note": {"type": "string"},
        "weights": {"type": "object", "additionalProperties": {"type": "integer"}},
        "owner": {"anyOf": [{"$ref": "#/$defs/Person"}, {"type": "null"}]},
    },
    "required": ["seed", "mood", "count", "ratio", "is_even", "people", "note", "weights", "owner"],
    "additionalProperties": False,
    "$defs": {
        "Person": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "age": {"type": "integer"},
                "friends": {"$ref": "#/$defs/Names"},
            },
            "required": ["name", "age"],
            "additionalProperties": False,
        },
        "Names": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
    },
}
BUFFER_BYTES: Final = 128
"""Chunks so small that the note goes in parts."""
SEED_CHARS: Final = 8
_TOKEN_S: Final = 0.001
_WORDS: Final = ("sea", "salt", "gull", "tide", "Möwe", "浪", "quay", "rope")


def write_document(seed: str, ask: str) -> dict[str, Any]:
    """The document that follows from a seed and a question."""
    rng = random.Random(f"{seed} {ask}")

    def person() -> dict[str, Any]:
        found: dict[str, Any] = {"name": rng.choice(_WORDS), "age": rng.randrange(99)}
        if rng.random() < 0.5:
            found["friends"] = rng.sample(_WORDS, rng.randrange(3))
        return found

    count = rng.randrange(10**6)
    return {
        "seed": seed,
        "mood": rng.choice(["good", "bad", "so-so"]),
        "count": count,
        "ratio": rng.randrange(1, 10**4) / 8 + 0.125,
        "is_even": count % 2 == 0,
        "people": [person() for _ in range(rng.randrange(1, 4))],
        "note": write_text("", f"{seed} {ask}")[SEED_CHARS:],
        "weights": {name: rng.randrange(99) for name in rng.sample(_WORDS, 3)},
        "owner": person() if rng.random() < 0.5 else None,
    }


def write_text(seed: str, ask: str) -> str:
    """The plain text that follows from a seed and a question."""
    rng = random.Random(f"text {seed} {ask}")
    words = " ".join(rng.choice(_WORDS) for _ in range(rng.randrange(40, 80)))
    return f"{seed:{SEED_CHARS}} {words}"


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt, read."""

    ask: str
    request: str
    kills: tuple[int, ...]

    @classmethod
    def read(cls, text: str) -> "Question | None":
        """None for what is no question, such as a warm-up."""
        try:
            found = json.loads(text)
            return cls(found["ask"], found["request"], tuple(found["kills"]))
        except (ValueError, KeyError, TypeError):
            return None

    def write(self) -> str:
        """The prompt."""
        return json.dumps({"ask": self.ask, "request": self.request, "kills": self.kills})


class ReplayGeneration:
    """See `ssop_inference.backend.Generation`."""

    queue_s = 0.0

    def __init__(self, question: Question | None, begun: int, rest: str, claims: Path, grammar: str | None) -> None:
        rng = random.Random(rest)
        self._question = question
        self._position = begun
        self._rest = rest
        self._rng = rng
        self._claims = claims
        self._mask = GrammarMask(grammar) if grammar is not None else None
        self._input_tokens = 5 + begun // 4
        self._output_tokens = 0
        self._is_cancelled = False

    @property
    def outcome(self) -> Outcome:
        """See Generation."""
        return Outcome(Stop.CANCELLED if self._is_cancelled else Stop.END, self._input_tokens, self._output_tokens)

    @property
    def is_over(self) -> bool:
        """See Generation. Its end takes as long as a token."""
        return False

    async def read(self) -> Sequence[Token]:
        """See Generation."""
        await asyncio.sleep(_TOKEN_S)
        self._die_if_asked()
        if self._is_cancelled or not self._rest:
            return []
        size = self._rng.randrange(1, 7)
        piece, self._rest = self._rest[:size], self._rest[size:]
        self._position += len(piece)
        self._output_tokens += 1
        if self._mask is not None:
            self._mask.advance(piece.encode())
            if self._mask.is_lost:
                raise MeshError(ErrorReason.ERROR_REASON_INTERNAL, "the grammar forbids what is true")
        return [Token(piece.encode())]

    def cancel(self) -> None:
        """See Generation."""
        self._is_cancelled = True

    def _die_if_asked(self) -> None:
        if self._question is None:
            return
        for number, position in enumerate(self._question.kills):
            if self._position < position and self._rest:
                continue
            try:
                os.close(os.open(self._claims / f"{self._question.request}-{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)


class ReplayBackend:
    """See `ssop_inference.backend.Backend`. `forgets`: it begins anew, whatever was begun."""

    def __init__(self, name: str, claims: Path, *, forgets: bool = False) -> None:
        self.name = name
        self.control = ControlTokens()
        self.capabilities = Capabilities(8_192, 64, has_logprobs=False, strictest_mode=Mode.FULL, has_prefill=True)
        self._claims = claims
        self._forgets = forgets
        self._gate = SchemaGate()

    async def load(self) -> None:
        """See Backend."""

    def load_now(self) -> Load:
        """See Backend."""
        return Load(0, 0, 0.0, 0.0)

    def constrain(self, schema: Any, *, format_assertion: bool) -> Constraint:
        """See Backend."""
        return choose_constraint(schema, self._gate, EngineLimits(), format_assertion=format_assertion)

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncIterator[ReplayGeneration]:
        """See Backend."""
        beginning = "" if self._forgets else request.beginning
        question = Question.read(request.messages[-1].content)
        if question is None:
            whole = "ready"
        elif request.constraint.mode is Mode.TEXT:
            # Of a text the seed itself may have been begun.
            whole = write_text((beginning[:SEED_CHARS] + secrets.token_hex(4))[:SEED_CHARS], question.ask)
        else:
            seed = beginning.split('"')[3] if beginning else secrets.token_hex(4)
            whole = json.dumps(write_document(seed, question.ask), ensure_ascii=False)
        if not whole.startswith(beginning):
            raise MeshError(ErrorReason.ERROR_REASON_INTERNAL, "the beginning is not what was written")
        grammar = request.constraint.grammar
        generation = ReplayGeneration(question, len(beginning), whole[len(beginning) :], self._claims, grammar)
        try:
            yield generation
        finally:
            generation.cancel()

    def check_grammar(self, grammar: str) -> str:
        """See `backend.Backend`."""
        return ""

    async def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """See Backend."""
        return sum(len(message.content) // 4 for message in messages)

    async def close(self) -> None:
        """See Backend."""
