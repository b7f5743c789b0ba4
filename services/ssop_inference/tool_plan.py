"""How a request that offers tools is served by a model: its constraint, its prompt, its writer."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_codec import Schema
from ssop_inference.backend import Backend
from ssop_inference.core.constraint import TEXT, Constraint, Mode
from ssop_inference.core.document import DocumentWriter
from ssop_inference.core.request import Asked
from ssop_inference.core.tool_answer import ToolAnswerWriter
from ssop_inference.core.tools import CallSplitter, Choice, ToolUse, hold_to_calls, write_hint

_JUDGED: Final = "the server calls tools by itself; what it holds their arguments to is not known"


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """`schemas`: of each tool's arguments. `is_marked`: calls come in the marked form.

    `constraint` is what the model is held to, `announced` what the caller is told of it. `hint` is what the system
    message says of the tools, without control tokens; empty where the server's own API carries them.
    """

    use: ToolUse
    schemas: Mapping[str, Schema]
    constraint: Constraint
    announced: Constraint
    is_marked: bool
    hint: str = ""

    def writer(self, asked: Asked) -> Callable[[Callable[[], DocumentWriter], int], ToolAnswerWriter]:
        """Makes the writer of an answer from what opens its main document, and the number that tracers know it by."""

        def make(open_main: Callable[[], DocumentWriter], stream: int) -> ToolAnswerWriter:
            return ToolAnswerWriter(
                self.use,
                self.schemas,
                open_main,
                stream_buffer_bytes=asked.stream_buffer_bytes,
                is_text=asked.schema_text is None,
                # What a server's own calls are held to is not known, so the codec judges all of them.
                is_envelope=not self.is_marked or self.constraint.mode is Mode.ENVELOPE,
                new_id=_new_id,
                stream=stream,
                splitter=CallSplitter() if self.is_marked and self.use.callable else None,
            )

        return make


def plan_tools(
    backend: Backend,
    use: ToolUse,
    schemas: Mapping[str, Schema],
    held: Mapping[str, Constraint],
    answer: Constraint,
) -> ToolPlan:
    """How a model is held to tools; `held` and `answer` as in `hold_to_calls`. Raises CONTENT_UNSUPPORTED."""
    if backend.capabilities.has_marked_calls:
        constraint = answer
        if use.choice is not Choice.NONE:
            constraint = hold_to_calls(use, held, answer)
            if refusal := backend.check_grammar(constraint.grammar or ""):
                raise _unsupported(f"the engine can't compile the tools: {refusal}"[:500])
        hint = backend.control.break_up(write_hint(use)) if use.callable else ""
        return ToolPlan(use, schemas, constraint, constraint, is_marked=True, hint=hint)
    if use.choice is Choice.REQUIRED:
        # The answer is a call, so that a schema of the text says nothing.
        answer = TEXT
    elif answer.mode is not Mode.TEXT and not backend.capabilities.has_tools_with_schema:
        raise _unsupported("this model's server does not take tools together with a schema of the answer")
    announced = replace(answer, mode=Mode.ENVELOPE, detail=_JUDGED) if use.callable else answer
    return ToolPlan(use, schemas, answer, announced, is_marked=False)


def _unsupported(text: str) -> MeshError:
    return MeshError(
        ErrorReason.ERROR_REASON_CONTENT_UNSUPPORTED,
        f"prompt.tools: {text}",
        metadata={"content": "tools"},
        fields=[("prompt.tools", text)],
    )


def _new_id() -> str:
    return f"call_{secrets.token_hex(12)}"
