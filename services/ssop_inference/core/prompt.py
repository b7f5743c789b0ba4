"""From a proto prompt to chat messages.

Content is data: the spellings of the model's control tokens inside it are broken, so that no text can open or close
a turn of the conversation.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ssop.v1 import content_pb2, inference_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError, invalid_request

# Zero width space: the reader sees no difference, the tokenizer no longer finds the token.
_BREAK: Final = "\u200b"
_COMMON_CONTROL: Final = r"<\|[^|<>\s]{1,64}\|>|</?(?:s|start_of_turn|end_of_turn|bos|eos|pad|unk)>|\[/?INST\]"

_ROLES: Final = {
    content_pb2.ROLE_SYSTEM: "system",
    content_pb2.ROLE_USER: "user",
    content_pb2.ROLE_ASSISTANT: "assistant",
}


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn: `role` is `system`, `user` or `assistant`."""

    role: str
    content: str


class ControlTokens:
    """The spellings that must not reach the tokenizer inside content.

    `spellings` are the model's own; None, where they are not known, is what chat templates commonly use.
    """

    def __init__(self, spellings: Iterable[str] | None = None) -> None:
        own = {spelling for spelling in spellings or () if len(spelling) > 1}
        inner = _any_of(own) if own else _COMMON_CONTROL
        # A look-ahead finds overlapping tokens too, so one pass is enough.
        self._starts = re.compile(f"(?s)(?={inner})(.)")

    def break_up(self, text: str) -> str:
        """The text with every control token split after its first character."""
        return self._starts.sub("\\1" + _BREAK, text)


def _any_of(words: Iterable[str]) -> str:
    """A pattern for any of the words, as a tree of their characters.

    Some models have thousands of control tokens: a plain alternation would try each of them at each `<`.
    """
    tree: dict[str, Any] = {}
    for word in words:
        node = tree
        for character in word:
            node = node.setdefault(character, {})
        node[""] = {}
    return _tree_pattern(tree)


def _tree_pattern(node: Mapping[str, Any]) -> str:
    if "" in node:
        # A word ends here; longer ones that go on are found by it.
        return ""
    branches = [re.escape(character) + _tree_pattern(inner) for character, inner in node.items()]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def build_messages(
    prompt: content_pb2.Prompt,
    passages: Sequence[inference_pb2.Passage],
    control: ControlTokens,
    *,
    schema_hint: str | None = None,
) -> tuple[ChatMessage, ...]:
    """The conversation for a text model: passages stand before the last user message, best first.

    `schema_hint` is a JSON Schema that the system message asks to follow. Raises REQUEST_INVALID for missing or
    malformed messages and CONTENT_UNSUPPORTED for images, audio and tools (metadata `content`).
    """
    if not prompt.messages:
        raise invalid_request(("prompt.messages", "at least one message is needed"))
    if prompt.tools:
        raise _unsupported("tools", "prompt.tools")
    turns = [_turn(message, number) for number, message in enumerate(prompt.messages)]
    if passages:
        last = max((n for n, turn in enumerate(turns) if turn.role == "user"), default=len(turns) - 1)
        context = "\n\n".join(f"[{n}] {passage.text}" for n, passage in enumerate(passages, 1))
        turns[last] = ChatMessage(
            turns[last].role, f"Use these passages where they help.\n\n{context}\n\n{turns[last].content}"
        )
    if schema_hint is not None:
        instruction = (
            "Answer with one JSON document and nothing else. It must conform to this JSON Schema:\n" + schema_hint
        )
        if turns[0].role == "system":
            turns[0] = ChatMessage("system", f"{turns[0].content}\n\n{instruction}")
        else:
            turns.insert(0, ChatMessage("system", instruction))
    return tuple(ChatMessage(turn.role, control.break_up(turn.content)) for turn in turns)


def render_plain(messages: Sequence[ChatMessage]) -> str:
    """The prompt of a base model, which knows no turns: contents in order, an empty line between them."""
    return "\n\n".join(message.content for message in messages)


def compact_schema(schema: Any) -> str:
    """A schema as it stands in a prompt: without blanks."""
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


def _turn(message: content_pb2.Message, number: int) -> ChatMessage:
    where = f"prompt.messages[{number}]"
    if message.role == content_pb2.ROLE_TOOL or message.tool_calls:
        raise _unsupported("tools", where)
    role = _ROLES.get(message.role)
    if role is None:
        raise invalid_request((f"{where}.role", "must be SYSTEM, USER or ASSISTANT"))
    if not message.parts:
        raise invalid_request((f"{where}.parts", "at least one part is needed"))
    return ChatMessage(role, "\n\n".join(_text(part, where, n) for n, part in enumerate(message.parts)))


def _text(part: content_pb2.ContentPart, where: str, number: int) -> str:
    kind = part.WhichOneof("part")
    if kind == "text":
        return part.text
    if kind == "document":
        return f"Document: {part.document.title}\n{part.document.text}"
    if kind is None:
        raise invalid_request((f"{where}.parts[{number}]", "is empty"))
    raise _unsupported(kind, f"{where}.parts[{number}]")


def _unsupported(content: str, where: str) -> MeshError:
    return MeshError(
        ErrorReason.ERROR_REASON_CONTENT_UNSUPPORTED,
        f"{where}: this model can't take {content}",
        metadata={"content": content},
        fields=[(where, f"this model can't take {content}")],
    )
