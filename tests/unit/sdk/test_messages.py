"""Prompts, parts and tools as callers write them."""

import base64
import json

import pytest

from ssop.v1 import content_pb2 as pb
from ssop_sdk.messages import read_messages, read_tool_choice, read_tools

PNG = b"\x89PNG\r\n"


def part(content: object) -> pb.ContentPart:
    [message] = read_messages([{"role": "user", "content": [content]}])
    return message.parts[0]


def test_text_is_one_message_of_the_user() -> None:
    [message] = read_messages("hello")
    assert (message.role, message.parts[0].text) == (pb.ROLE_USER, "hello")


def test_roles_are_kept_in_order() -> None:
    roles = ["system", "developer", "user", "assistant"]
    messages = read_messages([{"role": role, "content": "x"} for role in roles])
    assert [m.role for m in messages] == [pb.ROLE_SYSTEM, pb.ROLE_SYSTEM, pb.ROLE_USER, pb.ROLE_ASSISTANT]


def test_protos_pass_through() -> None:
    message = pb.Message(role=pb.ROLE_USER, parts=[pb.ContentPart(text="x")])
    assert read_messages([message]) == [message]


def test_data_url_becomes_an_image() -> None:
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    image = part({"type": "image_url", "image_url": {"url": url}}).image
    assert (image.mime_type, image.data) == ("image/png", PNG)


def test_remote_image_is_refused() -> None:
    with pytest.raises(ValueError, match="fetches no addresses"):
        part({"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}})


def test_audio_has_the_type_of_its_format() -> None:
    data = base64.b64encode(b"RIFF").decode()
    audio = part({"type": "input_audio", "input_audio": {"data": data, "format": "mp3"}}).audio
    assert (audio.mime_type, audio.data) == ("audio/mpeg", b"RIFF")


def test_broken_base64_is_refused_without_quoting_it() -> None:
    with pytest.raises(ValueError, match="no base64") as caught:
        part({"type": "input_audio", "input_audio": {"data": "s3cret!", "format": "wav"}})
    assert "s3cret" not in str(caught.value)


def test_document_part() -> None:
    document = part({"type": "document", "title": "T", "text": "body"}).document
    assert (document.title, document.text) == ("T", "body")


def test_tool_call_and_its_result() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    assistant, tool = read_messages(
        [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "2", "tool_call_id": "c1"},
        ]
    )
    assert (assistant.tool_calls[0].name, len(assistant.parts), tool.tool_call_id) == ("f", 0, "c1")


@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        (None, TypeError),
        (7, TypeError),
        (b"bytes", TypeError),
        ({"role": "user", "content": "x"}, TypeError),
        ([], ValueError),
        (["x"], TypeError),
        ([{"role": "user", "content": 3}], TypeError),
        ([{"role": "robot", "content": "x"}], ValueError),
        ([{"content": "x"}], TypeError),
        ([{"role": "user", "content": [{"type": "video"}]}], ValueError),
    ],
)
def test_what_is_no_prompt_is_refused(prompt: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        read_messages(prompt)  # type: ignore[arg-type]


def test_tools_in_both_shapes_are_the_same() -> None:
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}}
    nested, flat = read_tools([{"type": "function", "function": function}, function])
    assert nested == flat
    assert json.loads(nested.parameters_schema) == {"type": "object"}


def test_tool_choice_names_a_function() -> None:
    choice = read_tool_choice({"type": "function", "function": {"name": "f"}})
    assert choice == pb.ToolChoice(mode=pb.TOOL_MODE_REQUIRED, tool_name="f")


def test_unknown_tool_choice_is_refused() -> None:
    with pytest.raises(ValueError, match="tool_choice"):
        read_tool_choice("maybe")
