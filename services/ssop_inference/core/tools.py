"""Tools that a model may call: what a request offers, and how a model that is held by a grammar writes a call.

Where the model's server has calls of its own in its API, these are taken. Elsewhere the model is shown the tools in
its prompt and writes a call in the marked form, `@tool NAME`, a line break and the arguments, which its grammar knows.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from ssop.v1 import content_pb2
from ssop_inference.core.constraint import Constraint, Mode, grammar_schema
from ssop_inference.core.tokens import Token

MARK: Final = b"@tool "
MAX_CALLS: Final = 128
"""Calls of one answer."""
MAX_ID_CHARS: Final = 256
_ANY_OBJECT: Final[Mapping[str, Any]] = {"type": "object"}
# Any text that does not begin as a call does.
_FREE_TEXT: Final = r"/([^@]|@[^t])(.|\n)*/"


class Choice(Enum):
    """Whether the model calls tools."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


_CHOICES: Final = {
    content_pb2.TOOL_MODE_NONE: Choice.NONE,
    content_pb2.TOOL_MODE_REQUIRED: Choice.REQUIRED,
}


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool. `parameters` is the JSON Schema of its arguments, as `json.loads` gives it."""

    name: str
    description: str
    parameters: Any


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools of a request, and which of them must be called. `is_single`: at most one call."""

    specs: tuple[ToolSpec, ...]
    choice: Choice = Choice.AUTO
    name: str = ""
    is_single: bool = False

    @property
    def callable(self) -> tuple[ToolSpec, ...]:
        """The tools that an answer may call."""
        if self.choice is Choice.NONE:
            return ()
        return tuple(spec for spec in self.specs if self.name in {"", spec.name})

    @property
    def size_bytes(self) -> int:
        """About what the tools take of a prompt."""
        texts = (f"{spec.name}{spec.description}{json.dumps(spec.parameters)}" for spec in self.specs)
        return sum(len(text.encode()) + 32 for text in texts)


def parameters_text(tool: content_pb2.Tool) -> str:
    """The schema of a tool's arguments, as JSON text: any object where it gives none."""
    return tool.parameters_schema or json.dumps(_ANY_OBJECT)


def read_tools(prompt: content_pb2.Prompt) -> ToolUse:
    """The tools of a prompt that has some, and whose schemas have been compiled."""
    choice = prompt.tool_choice
    specs = tuple(ToolSpec(tool.name, tool.description, json.loads(parameters_text(tool))) for tool in prompt.tools)
    # The only one there is may as well be named, which more servers take.
    is_only = choice.mode == content_pb2.TOOL_MODE_REQUIRED and len(specs) == 1
    name = specs[0].name if is_only else choice.tool_name
    return ToolUse(specs, _CHOICES.get(choice.mode, Choice.AUTO), name, choice.is_single)


def hold_to_calls(use: ToolUse, held: Mapping[str, Constraint], answer: Constraint) -> Constraint:
    """The constraint of a model that writes calls in the marked form.

    `held`: how it is held to the arguments of each tool; `answer`: how to an answer without a call, which it may give
    unless a call is required. The mode is the weakest of them.
    """
    constraints = [held[spec.name] for spec in use.callable]
    rules = []
    lines = []
    for number, (spec, constraint) in enumerate(zip(use.callable, constraints, strict=True)):
        schema = constraint.schema if constraint.grammar is not None else _ANY_OBJECT
        head = json.dumps(f"{MARK.decode()}{spec.name}\n")
        rules.append(f"{head} arguments{number}")
        lines.append(f"arguments{number}: %json {grammar_schema(schema)}")
    if use.choice is not Choice.REQUIRED:
        rules.append("answer")
        is_held = answer.grammar is not None
        lines.append(f"answer: %json {grammar_schema(answer.schema)}" if is_held else f"answer: {_FREE_TEXT}")
        if answer.mode is not Mode.TEXT:
            constraints.append(answer)
    grammar = "\n".join(["%llguidance {}", f"start: {' | '.join(rules)}", *lines])
    limits = dict.fromkeys(limit for constraint in constraints for limit in constraint.engine_limits)
    details = dict.fromkeys(constraint.detail for constraint in constraints if constraint.detail)
    mode = max(constraint.mode for constraint in constraints)
    return Constraint(mode, None, grammar, tuple(limits), "; ".join(details))


def write_hint(use: ToolUse) -> str:
    """What the system message says of the tools to a model that writes calls in the marked form."""
    lines = [
        f"- {spec.name}: {spec.description or 'no description'}. Arguments, as JSON Schema:"
        f" {json.dumps(spec.parameters, separators=(',', ':'), ensure_ascii=False)}"
        for spec in use.callable
    ]
    how = f"To call a tool, answer with the line `{MARK.decode()}NAME`, then its arguments as JSON, and nothing else."
    must = {Choice.REQUIRED: "Call one of them now."}.get(use.choice, "Call one only where it helps.")
    return "\n".join(["You can call these tools:", *lines, how, must])


def write_call(name: str, arguments: str) -> str:
    """A call in the marked form."""
    return f"{MARK.decode()}{name}\n{arguments}"


class CallSplitter:
    """Tells the text of an answer from a call in the marked form, which is all of the answer where there is one."""

    def __init__(self) -> None:
        self._held: list[Token] = []
        self._call: str | None = None
        self._is_text = False

    def split(self, tokens: Sequence[Token]) -> list[Token]:
        """The same bytes without the mark, each piece with what it belongs to."""
        found: list[Token] = []
        for token in tokens:
            if self._is_text:
                found.append(token)
            elif self._call is not None:
                found.append(Token(token.text, call=1, name=self._call))
            else:
                self._held.append(token)
                found += self._decide()
        return found

    def end(self) -> list[Token]:
        """What is left where the answer ends before it was clear what it is."""
        held, self._held = self._held, []
        return held

    def _decide(self) -> list[Token]:
        text = b"".join(token.text for token in self._held)
        if text.startswith(MARK):
            name, newline, rest = text[len(MARK) :].partition(b"\n")
            if not newline:
                return []
            self._call = name.decode()
            self._held.clear()
            return [Token(rest, call=1, name=self._call)]
        if MARK.startswith(text):
            return []
        self._is_text = True
        return self.end()
