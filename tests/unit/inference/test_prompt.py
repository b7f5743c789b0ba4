import pytest

from helpers.as_written import run_both_ways
from helpers.inference import user_prompt
from ssop.v1 import content_pb2, inference_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_inference.core.prompt import (
    ChatMessage,
    ControlTokens,
    build_messages,
    read_turns,
    render_plain,
    write_instruction,
)

way = run_both_ways("ssop_inference.core.prompt", "ControlTokens", "build_messages")

CONTROL = ControlTokens(["<|im_start|>", "<|im_end|>", "<file>"])


def message(role: content_pb2.Role.ValueType, *texts: str) -> content_pb2.Message:
    return content_pb2.Message(role=role, parts=[content_pb2.ContentPart(text=text) for text in texts])


def refused(prompt: content_pb2.Prompt) -> MeshError:
    with pytest.raises(MeshError) as caught:
        read_turns(prompt)
    return caught.value


def test_roles_and_texts_are_kept_in_order() -> None:
    prompt = content_pb2.Prompt(
        messages=[
            message(content_pb2.ROLE_SYSTEM, "Be brief."),
            message(content_pb2.ROLE_USER, "One", "Two"),
            message(content_pb2.ROLE_ASSISTANT, "Yes"),
        ]
    )
    assert build_messages(read_turns(prompt), (), CONTROL) == (
        ChatMessage("system", "Be brief."),
        ChatMessage("user", "One\n\nTwo"),
        ChatMessage("assistant", "Yes"),
    )


def test_passages_stand_before_the_last_user_message() -> None:
    prompt = content_pb2.Prompt(
        messages=[message(content_pb2.ROLE_USER, "A"), message(content_pb2.ROLE_ASSISTANT, "B")]
    )
    passages = [inference_pb2.Passage(text="first"), inference_pb2.Passage(text="second")]
    first, second = build_messages(read_turns(prompt), passages, CONTROL)
    assert first.content.index("[1] first") < first.content.index("[2] second") < first.content.index("A")
    assert second.content == "B"


def test_control_tokens_are_broken_in_content_and_passages() -> None:
    passages = [inference_pb2.Passage(text="x<file>y")]
    (only,) = build_messages(read_turns(user_prompt("a<|im_end|>b")), passages, CONTROL)
    assert "<|im_end|>" not in only.content
    assert "<file>" not in only.content


def test_control_token_across_two_parts_is_broken() -> None:
    control = ControlTokens(["a\n\nb"])
    prompt = content_pb2.Prompt(messages=[message(content_pb2.ROLE_USER, "a", "b")])
    (only,) = build_messages(read_turns(prompt), (), control)
    assert "a\n\nb" not in only.content


def test_common_control_tokens_are_broken_where_the_model_names_none() -> None:
    assert ControlTokens().break_up("<|eot_id|><start_of_turn>[INST]</s>").count("\u200b") == 4


def test_other_text_is_left_alone() -> None:
    text = "a < b | c > d <html> 你好"
    assert CONTROL.break_up(text) == text


def test_documents_are_shown_with_their_title() -> None:
    part = content_pb2.ContentPart(document=content_pb2.Document(title="Rules", text="Be kind."))
    prompt = content_pb2.Prompt(messages=[content_pb2.Message(role=content_pb2.ROLE_USER, parts=[part])])
    assert build_messages(read_turns(prompt), (), CONTROL)[0].content == "Document: Rules\nBe kind."


def test_instruction_joins_the_system_message() -> None:
    prompt = content_pb2.Prompt(
        messages=[message(content_pb2.ROLE_SYSTEM, "Be brief.<|im_end|>"), message(content_pb2.ROLE_USER, "Hi")]
    )
    messages = build_messages(read_turns(prompt), (), CONTROL, instruction="Be right.")
    assert [turn.role for turn in messages] == ["system", "user"]
    assert messages[0].content == "Be brief.<\u200b|im_end|>\n\nBe right."


def test_instruction_becomes_a_system_message_where_there_is_none() -> None:
    assert build_messages(read_turns(user_prompt("Hi")), (), CONTROL, instruction="x")[0] == ChatMessage("system", "x")


def test_instruction_says_the_schema_without_blanks() -> None:
    assert write_instruction({"type": ["null"]}).endswith('\n{"type":["null"]}')


@pytest.mark.parametrize("kind", ["image", "audio"])
def test_media_is_a_named_error(kind: str) -> None:
    part = content_pb2.ContentPart(**{kind: content_pb2.Media(mime_type="x/y")})  # type: ignore[arg-type]
    error = refused(content_pb2.Prompt(messages=[content_pb2.Message(role=content_pb2.ROLE_USER, parts=[part])]))
    assert error.reason == ErrorReason.ERROR_REASON_CONTENT_UNSUPPORTED
    assert error.metadata == {"content": kind}


def test_tools_are_a_named_error() -> None:
    prompt = user_prompt("Hi")
    prompt.tools.add(name="f")
    assert refused(prompt).metadata == {"content": "tools"}


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([], "prompt.messages"),
        ([content_pb2.Message(role=content_pb2.ROLE_USER)], "prompt.messages[0].parts"),
        ([message(content_pb2.ROLE_UNSPECIFIED, "x")], "prompt.messages[0].role"),
        (
            [content_pb2.Message(role=content_pb2.ROLE_USER, parts=[content_pb2.ContentPart()])],
            "prompt.messages[0].parts[0]",
        ),
    ],
)
def test_malformed_messages_are_refused_by_name(messages: list[content_pb2.Message], field: str) -> None:
    error = refused(content_pb2.Prompt(messages=messages))
    assert error.reason == ErrorReason.ERROR_REASON_REQUEST_INVALID
    assert error.fields[0][0] == field


def test_base_models_get_the_contents_alone() -> None:
    assert render_plain([ChatMessage("system", "A"), ChatMessage("user", "B")]) == "A\n\nB"
