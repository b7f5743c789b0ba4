# cython: annotation_typing=False
"""From a proto prompt to chat messages.

Content is data: the spellings of the model's control tokens inside it are broken, so that no text can open or close
a turn of the conversation.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ssop.v1 import content_pb2, inference_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError, invalid_request

# Zero width space: the reader sees no difference, the tokenizer no longer finds the token.
_BREAK: Final = "\u200b"
_COMMON_CONTROL: Final = r"<\|[^|<>\s]{1,64}\|>|</?(?:s|start_of_turn|end_of_turn|bos|eos|pad|unk)>|\[/?INST\]"
_MOST_FIRSTS: Final = 8

_ROLES: Final = {
    content_pb2.ROLE_SYSTEM: "system",
    content_pb2.ROLE_USER: "user",
    content_pb2.ROLE_ASSISTANT: "assistant",
    content_pb2.ROLE_TOOL: "tool",
}
_CONFORM: Final = "Answer with one JSON document and nothing else. It must conform to this JSON Schema:\n"
SPEAKERS: Final = {number: role for number, role in _ROLES.items() if role != "tool"}
"""Whose turns are what they say."""
IMAGE: Final = "image"
TOOLS: Final = "tools"
_IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})


@dataclass(frozen=True, slots=True)
class Image:
    """A picture of a message."""

    mime_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A call that the model made in an earlier turn; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


class ChatMessage(NamedTuple):
    """One turn: `role` is `system`, `user`, `assistant`, or `tool` for the result of the call `call_id`.

    `content` is all its text. `parts` are text and images in order, where there are images.
    """

    role: str
    content: str
    parts: tuple["str | Image", ...] = ()
    calls: tuple[MadeCall, ...] = ()
    call_id: str = ""


class ControlTokens:
    """The spellings that must not reach the tokenizer inside content.

    `spellings` are the model's own; None, where they are not known, is what chat templates commonly use.
    """

    def __init__(self, spellings: Iterable[str] | None = None) -> None:
        own = {spelling for spelling in spellings or () if len(spelling) > 1}
        inner = _any_of(own) if own else _COMMON_CONTROL
        self._firsts = {spelling[0] for spelling in own} or {"<", "["}
        # A look-ahead finds overlapping tokens too, so one pass is enough.
        self._starts = re.compile(f"(?s)(?={inner})(.)")

    def break_up(self, text: str) -> str:
        """The text with every control token split after its first character."""
        # Most texts have no character that begins one, and the pattern tries each place.
        if len(self._firsts) <= _MOST_FIRSTS:
            for first in self._firsts:
                if first in text:
                    break
            else:
                return text
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


def read_turns(prompt: content_pb2.Prompt, features: Collection[str] = ()) -> tuple[ChatMessage, ...]:
    """The turns of a prompt. `features` are what the model takes of `image` and `tools`.

    Raises REQUEST_INVALID for missing or malformed messages, and CONTENT_UNSUPPORTED for what the model can't take
    (metadata `content`).
    """
    turns = tuple([_turn(message, number, features) for number, message in enumerate(prompt.messages)])
    if not turns:
        raise invalid_request(("prompt.messages", "at least one message is needed"))
    if prompt.tools and prompt.tool_choice.mode != content_pb2.TOOL_MODE_NONE and TOOLS not in features:
        raise refuse_content(TOOLS, "prompt.tools")
    return turns


def build_messages(
    turns: Sequence[ChatMessage],
    passages: Sequence[inference_pb2.Passage],
    control: ControlTokens,
    instruction: str = "",
    write_call: Callable[[str, str], str] | None = None,
) -> tuple[ChatMessage, ...]:
    """The conversation for a model: passages stand before the last user message, best first.

    `instruction` is what the system message says besides, without control tokens already. `write_call` makes text of
    earlier calls (name, arguments), for a model whose turns are text alone.
    """
    if write_call is not None:
        turns = _as_text(turns, write_call)
    if passages:
        turns = _with_passages(turns, passages)
    told = [_broken(turn, control) for turn in turns]
    if instruction and told[0].role == "system":
        told[0] = told[0]._replace(content=f"{told[0].content}\n\n{instruction}")
    elif instruction:
        told.insert(0, _system_turn(instruction))
    return tuple(told)


# A schema's instruction is told with each of its requests.
@lru_cache(16)
def _system_turn(instruction: str) -> ChatMessage:
    return ChatMessage("system", instruction)


def _with_passages(turns: Sequence[ChatMessage], passages: Sequence[inference_pb2.Passage]) -> list[ChatMessage]:
    last = max((n for n, turn in enumerate(turns) if turn.role == "user"), default=len(turns) - 1)
    context = "\n\n".join(f"[{n}] {passage.text}" for n, passage in enumerate(passages, 1))
    shown = f"Use these passages where they help.\n\n{context}"
    turn = turns[last]
    told = list(turns)
    told[last] = turn._replace(content=f"{shown}\n\n{turn.content}", parts=(shown, *turn.parts) if turn.parts else ())
    return told


def write_instruction(schema: Any) -> str:
    """What a model is told of the schema that its answer is held to; `schema` as `json.loads` gives it."""
    return _CONFORM + compact_schema(schema)


def compact_schema(schema: Any) -> str:
    """A schema as it stands in a prompt: without blanks."""
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


def _broken(turn: ChatMessage, control: ControlTokens) -> ChatMessage:
    """A turn without control tokens in what it says."""
    content = control.break_up(turn.content)
    if not turn.parts and not turn.calls:
        return turn if content == turn.content else turn._replace(content=content)
    parts = tuple(control.break_up(part) if isinstance(part, str) else part for part in turn.parts)
    calls = tuple(
        replace(call, name=control.break_up(call.name), arguments=control.break_up(call.arguments))
        for call in turn.calls
    )
    return turn._replace(content=content, parts=parts, calls=calls)


def _as_text(turns: Sequence[ChatMessage], write_call: Callable[[str, str], str]) -> list[ChatMessage]:
    """Turns of text alone: calls in the form that the model is asked to write them in, results as the user's words."""
    names = {call.id: call.name for turn in turns for call in turn.calls}
    texts: list[ChatMessage] = []
    for turn in turns:
        if turn.role == "tool":
            texts.append(ChatMessage("user", f"Result of {names.get(turn.call_id, 'the tool')}:\n{turn.content}"))
        elif turn.calls:
            calls = "\n".join(write_call(call.name, call.arguments) for call in turn.calls)
            texts.append(ChatMessage("assistant", f"{turn.content}\n\n{calls}" if turn.content else calls))
        else:
            texts.append(turn)
    return texts


def render_plain(messages: Sequence[ChatMessage]) -> str:
    """The prompt of a base model, which knows no turns: contents in order, an empty line between them."""
    return "\n\n".join(message.content for message in messages)


def _turn(message: content_pb2.Message, number: int, features: Collection[str]) -> ChatMessage:
    parts = message.parts
    if len(parts) == 1 and parts[0].HasField("text") and not message.tool_calls:
        role = SPEAKERS.get(message.role)
        if role is not None:
            return ChatMessage(role, parts[0].text)
    where = f"prompt.messages[{number}]"
    if (message.role == content_pb2.ROLE_TOOL or message.tool_calls) and TOOLS not in features:
        raise refuse_content(TOOLS, where)
    role = _ROLES.get(message.role)
    if role is None:
        raise invalid_request((f"{where}.role", "must be SYSTEM, USER, ASSISTANT or TOOL"))
    if message.tool_calls and role != "assistant":
        raise invalid_request((f"{where}.tool_calls", "are the assistant's"))
    if not parts and not message.tool_calls:
        raise invalid_request((f"{where}.parts", "at least one part is needed"))
    is_pictured = IMAGE in features and role == "user"
    shown = tuple(_part(part, where, n, is_pictured=is_pictured) for n, part in enumerate(parts))
    return ChatMessage(
        role,
        "\n\n".join(part for part in shown if isinstance(part, str)),
        shown if any(isinstance(part, Image) for part in shown) else (),
        tuple(MadeCall(call.id, call.name, call.arguments or "{}") for call in message.tool_calls),
        message.tool_call_id if role == "tool" else "",
    )


def _part(part: content_pb2.ContentPart, where: str, number: int, *, is_pictured: bool) -> "str | Image":
    kind = part.WhichOneof("part")
    if kind == "text":
        return part.text
    if kind == "document":
        return f"Document: {part.document.title}\n{part.document.text}"
    if kind is None:
        raise invalid_request((f"{where}.parts[{number}]", "is empty"))
    if kind == IMAGE and is_pictured:
        if part.image.mime_type not in _IMAGE_TYPES:
            raise refuse_content("an image of this type", f"{where}.parts[{number}]")
        return Image(part.image.mime_type, part.image.data)
    raise refuse_content(kind, f"{where}.parts[{number}]")


def refuse_content(content: str, where: str) -> MeshError:
    """CONTENT_UNSUPPORTED for a part of a prompt; `content` is what it is, such as `image`."""
    return MeshError(
        ErrorReason.ERROR_REASON_CONTENT_UNSUPPORTED,
        f"{where}: this model can't take {content}",
        metadata={"content": content},
        fields=[(where, f"this model can't take {content}")],
    )
