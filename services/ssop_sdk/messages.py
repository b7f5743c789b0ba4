"""Messages as callers write them, turned into those of the API.

A prompt is a text, or a sequence of messages: mappings with `role` and `content` as OpenAI's clients take them, or
`ssop.v1.Message`. Errors are TypeError and ValueError and never quote content.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from ssop.v1 import content_pb2 as pb

PromptLike = str | Sequence[Any]
"""A text, or messages in order."""

_ROLES: Final[Mapping[str, pb.Role.ValueType]] = {
    "system": pb.ROLE_SYSTEM,
    "developer": pb.ROLE_SYSTEM,
    "user": pb.ROLE_USER,
    "assistant": pb.ROLE_ASSISTANT,
    "tool": pb.ROLE_TOOL,
}
_AUDIO_TYPES: Final = {"wav": "audio/wav", "mp3": "audio/mpeg", "flac": "audio/flac", "ogg": "audio/ogg"}
_TOOL_MODES: Final[Mapping[str, pb.ToolMode.ValueType]] = {
    "auto": pb.TOOL_MODE_AUTO,
    "none": pb.TOOL_MODE_NONE,
    "required": pb.TOOL_MODE_REQUIRED,
}


def read_messages(prompt: PromptLike) -> list[pb.Message]:
    """The messages of a prompt; a plain text is one message of the user."""
    if isinstance(prompt, str):
        return [pb.Message(role=pb.ROLE_USER, parts=[pb.ContentPart(text=prompt)])]
    if isinstance(prompt, bytes | bytearray | Mapping) or not isinstance(prompt, Iterable):
        raise TypeError(f"a prompt is a str or a sequence of messages, not {type(prompt).__name__}")
    messages = [_read_message(message, f"messages[{i}]") for i, message in enumerate(prompt)]
    if not messages:
        raise ValueError("a prompt has at least one message")
    return messages


def _read_message(message: Any, where: str) -> pb.Message:
    if isinstance(message, pb.Message):
        return message
    if not isinstance(message, Mapping):
        raise TypeError(f"{where} is a mapping or a Message, not {type(message).__name__}")
    role = _ROLES.get(_str(message.get("role"), f"{where}.role"))
    if role is None:
        raise ValueError(f"{where}.role is one of {', '.join(_ROLES)}")
    return pb.Message(
        role=role,
        parts=_read_content(message.get("content"), f"{where}.content"),
        tool_calls=[
            _read_tool_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(message.get("tool_calls") or ())
        ],
        tool_call_id=_str(message.get("tool_call_id") or "", f"{where}.tool_call_id"),
    )


def _read_content(content: Any, where: str) -> list[pb.ContentPart]:
    if content is None:
        return []
    if isinstance(content, str):
        return [pb.ContentPart(text=content)]
    if isinstance(content, bytes | bytearray | Mapping) or not isinstance(content, Iterable):
        raise TypeError(f"{where} is a str or a sequence of parts, not {type(content).__name__}")
    return [_read_part(part, f"{where}[{i}]") for i, part in enumerate(content)]


def _read_part(part: Any, where: str) -> pb.ContentPart:
    if isinstance(part, pb.ContentPart):
        return part
    if isinstance(part, str):
        return pb.ContentPart(text=part)
    if not isinstance(part, Mapping):
        raise TypeError(f"{where} is a str, a mapping or a ContentPart, not {type(part).__name__}")
    read = _PART_READERS.get(part.get("type", ""))
    if read is None:
        raise ValueError(f"{where}.type is one of {', '.join(_PART_READERS)}")
    return read(part, where)


def _read_text(part: Mapping[str, Any], where: str) -> pb.ContentPart:
    return pb.ContentPart(text=_str(part.get("text"), f"{where}.text"))


def _read_image_url(part: Mapping[str, Any], where: str) -> pb.ContentPart:
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, Mapping) else image
    return pb.ContentPart(image=_read_data_url(_str(url, f"{where}.image_url"), where))


def _read_input_audio(part: Mapping[str, Any], where: str) -> pb.ContentPart:
    audio = part.get("input_audio")
    if not isinstance(audio, Mapping):
        raise TypeError(f"{where}.input_audio is a mapping")
    form = _str(audio.get("format"), f"{where}.input_audio.format")
    data = _decode_base64(_str(audio.get("data"), f"{where}.input_audio.data"), where)
    return pb.ContentPart(audio=pb.Media(mime_type=_AUDIO_TYPES.get(form, f"audio/{form}"), data=data))


def _read_media(part: Mapping[str, Any], where: str) -> pb.Media:
    data = part.get("data")
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"{where}.data is bytes, not {type(data).__name__}")
    return pb.Media(mime_type=_str(part.get("mime_type"), f"{where}.mime_type"), data=bytes(data))


def _read_document(part: Mapping[str, Any], where: str) -> pb.ContentPart:
    title = _str(part.get("title") or "", f"{where}.title")
    return pb.ContentPart(document=pb.Document(title=title, text=_str(part.get("text"), f"{where}.text")))


_PART_READERS: Final[Mapping[str, Callable[[Mapping[str, Any], str], pb.ContentPart]]] = {
    "text": _read_text,
    "image_url": _read_image_url,
    "input_audio": _read_input_audio,
    "image": lambda part, where: pb.ContentPart(image=_read_media(part, where)),
    "audio": lambda part, where: pb.ContentPart(audio=_read_media(part, where)),
    "document": _read_document,
}


def _read_data_url(url: str, where: str) -> pb.Media:
    # RFC 2397. The mesh fetches nothing from the net on behalf of a prompt.
    head, comma, body = url.partition(",")
    if not head.startswith("data:") or not comma or not head.endswith(";base64"):
        raise ValueError(f"{where}: images come as data:<type>;base64,<data>; the mesh fetches no addresses")
    mime_type = head.removeprefix("data:").removesuffix(";base64").partition(";")[0]
    return pb.Media(mime_type=mime_type or "application/octet-stream", data=_decode_base64(body, where))


def _decode_base64(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(f"{where}: the data is no base64") from None


def _str(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{where} is a str, not {type(value).__name__}")
    return value


def _read_tool_call(call: Any, where: str) -> pb.ToolCall:
    if isinstance(call, pb.ToolCall):
        return call
    if not isinstance(call, Mapping):
        raise TypeError(f"{where} is a mapping or a ToolCall, not {type(call).__name__}")
    function = call.get("function", call)
    if not isinstance(function, Mapping):
        raise TypeError(f"{where}.function is a mapping")
    arguments = function.get("arguments", "{}")
    return pb.ToolCall(
        id=_str(call.get("id") or "", f"{where}.id"),
        name=_str(function.get("name"), f"{where}.name"),
        arguments=arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False),
    )


def read_tools(tools: Iterable[Any]) -> list[pb.Tool]:
    """Tools as OpenAI's clients take them (`{"type": "function", "function": {...}}`), flat, or `ssop.v1.Tool`."""
    return [_read_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools)]


def _read_tool(tool: Any, where: str) -> pb.Tool:
    if isinstance(tool, pb.Tool):
        return tool
    if not isinstance(tool, Mapping):
        raise TypeError(f"{where} is a mapping or a Tool, not {type(tool).__name__}")
    function = tool.get("function", tool)
    if not isinstance(function, Mapping):
        raise TypeError(f"{where}.function is a mapping")
    parameters = function.get("parameters", {"type": "object"})
    return pb.Tool(
        name=_str(function.get("name"), f"{where}.name"),
        description=_str(function.get("description") or "", f"{where}.description"),
        parameters_schema=(
            parameters if isinstance(parameters, str) else json.dumps(parameters, ensure_ascii=False, allow_nan=False)
        ),
    )


def read_tool_choice(choice: Any) -> pb.ToolChoice | None:
    """`auto`, `none`, `required`, the name of a tool in OpenAI's form, or `ssop.v1.ToolChoice`."""
    if choice is None or isinstance(choice, pb.ToolChoice):
        return choice
    if isinstance(choice, str):
        if choice not in _TOOL_MODES:
            raise ValueError(f"tool_choice is one of {', '.join(_TOOL_MODES)}, or names a function")
        return pb.ToolChoice(mode=_TOOL_MODES[choice])
    if isinstance(choice, Mapping):
        function = choice.get("function", choice)
        if isinstance(function, Mapping):
            name = _str(function.get("name"), "tool_choice.function.name")
            return pb.ToolChoice(mode=pb.TOOL_MODE_REQUIRED, tool_name=name)
    raise TypeError(f"tool_choice is a str or a mapping, not {type(choice).__name__}")
