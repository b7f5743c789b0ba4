"""Tools that a model may call: the engine in the node, model servers, and the SDKs of OpenAI in front of a mesh."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from helpers.eventually import eventually
from helpers.inference import Answer as Generated
from helpers.inference import NodeUnderTest, running_node, user_prompt
from helpers.upstream import END, HEAD, Answer, Cut, Hang, Request, Step, event, page
from helpers.upstream_node import upstream_node
from helpers.vendors import VENDORS, Vendor
from ssop.v1 import content_pb2, frame_pb2, mesh_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_codec import Verdict
from ssop_inference.core.tools import MAX_CALLS

R = ErrorReason
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


def with_tools(
    text: str, mode: int = content_pb2.TOOL_MODE_AUTO, name: str = "", *, is_single: bool = False, schema: Any = None
) -> content_pb2.Prompt:
    """A prompt that offers `weather` and `now`."""
    prompt = user_prompt(text, schema=schema, max_output_tokens=120)
    prompt.tools.add(name="weather", description="The weather of a city.", parameters_schema=json.dumps(WEATHER))
    prompt.tools.add(name="now", description="The time.", parameters_schema=json.dumps(NOTHING))
    prompt.tool_choice.mode = content_pb2.ToolMode.ValueType(mode)
    prompt.tool_choice.tool_name = name
    prompt.tool_choice.is_single = is_single
    return prompt


def read(answer: Generated) -> tuple[str, list[tuple[str, str, Any]], set[int]]:
    """The text, the calls (id, name, arguments), and the verdicts of an answer."""
    decoder = answer.decoder
    assert decoder.missing == 0
    calls = []
    for number, document in sorted(decoder.documents.items()):
        if number:
            assert document.header is not None
            calls.append((document.header.tool_call_id, document.header.tool_name, document.result))
    return decoder.text, calls, {found.end.verdict for found in decoder.documents.values() if found.end}


def ends(answer: Generated) -> list[int]:
    """Why each document ended, in order."""
    return [frame.end.finish_reason for frame in answer.of_kind(frame_pb2.FRAME_KIND_END)]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def node() -> AsyncIterator[NodeUnderTest]:
    async with running_node() as running:
        yield running


@pytest.mark.asyncio(loop_scope="module")
class TestTheEngineInTheNode:
    async def test_is_held_to_the_arguments_of_a_tool_that_is_named(self, node: NodeUnderTest) -> None:
        prompt = with_tools("What will the weather be in Oslo?", content_pb2.TOOL_MODE_REQUIRED, "weather")
        answer = await node.client.generate(prompt)
        text, [(call_id, name, arguments)], verdicts = read(answer)
        assert (text, name, verdicts) == ("", "weather", {Verdict.OK})
        assert set(arguments) == {"city", "days"}
        assert 1 <= arguments["days"] <= 7
        assert call_id.startswith("call_")
        assert answer.status.constraint_mode == mesh_pb2.CONSTRAINT_MODE_FULL
        assert ends(answer) == [frame_pb2.FINISH_REASON_TOOL_CALLS]

    async def test_calls_one_of_several_where_it_must(self, node: NodeUnderTest) -> None:
        answer = await node.client.generate(with_tools("What time is it?", content_pb2.TOOL_MODE_REQUIRED))
        _, [(_, name, arguments)], verdicts = read(answer)
        assert verdicts == {Verdict.OK}
        assert (set(arguments) == {"city", "days"}) if name == "weather" else arguments == {}

    async def test_may_answer_with_text_where_it_chooses(self, node: NodeUnderTest) -> None:
        answer = await node.client.generate(with_tools("Say hello."))
        text, calls, verdicts = read(answer)
        assert bool(text) != bool(calls)
        assert verdicts <= {Verdict.OK, Verdict.INCOMPLETE}

    async def test_calls_nothing_where_it_must_not(self, node: NodeUnderTest) -> None:
        answer = await node.client.generate(with_tools("Weather in Oslo?", content_pb2.TOOL_MODE_NONE))
        text, calls, _ = read(answer)
        assert (bool(text), calls) == (True, [])

    async def test_takes_a_schema_of_the_answer_beside_tools(self, node: NodeUnderTest) -> None:
        schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"], **CLOSED}
        answer = await node.client.generate(with_tools("Say x.", schema=schema))
        _, calls, verdicts = read(answer)
        assert verdicts == {Verdict.OK}
        assert calls or answer.decoder.result in ({"a": "x"}, {"a": "y"})

    async def test_reads_calls_and_results_of_earlier_turns(self, node: NodeUnderTest) -> None:
        prompt = with_tools("Weather in Oslo?", content_pb2.TOOL_MODE_REQUIRED, "weather")
        before = await node.client.count_tokens(prompt)
        call = content_pb2.ToolCall(id="c1", name="weather", arguments='{"city": "Oslo", "days": 1}')
        prompt.messages.add(role=content_pb2.ROLE_ASSISTANT, tool_calls=[call])
        prompt.messages.add(
            role=content_pb2.ROLE_TOOL, tool_call_id="c1", parts=[content_pb2.ContentPart(text="It rains.")]
        )
        assert await node.client.count_tokens(prompt) > before + 10
        _, calls, verdicts = read(await node.client.generate(prompt))
        assert (len(calls), verdicts) == (1, {Verdict.OK})

    async def test_arguments_that_are_cut_are_incomplete(self, node: NodeUnderTest) -> None:
        prompt = with_tools("Weather in Oslo?", content_pb2.TOOL_MODE_REQUIRED, "weather")
        prompt.sampling.max_output_tokens = 10
        answer = await node.client.generate(prompt)
        assert read(answer)[2] == {Verdict.INCOMPLETE}
        assert ends(answer) == [frame_pb2.FINISH_REASON_LENGTH]


CLOSED: dict[str, Any] = {"additionalProperties": False}
OPENAI = VENDORS["openai"]
ANTHROPIC = VENDORS["anthropic"]


def chat(delta: Any, finish: str | None = None) -> bytes:
    """An event of OpenAI's stream."""
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def call_delta(index: int, arguments: str | None, **head: Any) -> bytes:
    """A piece of a call in OpenAI's stream."""
    name = head.pop("name", None)
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return chat({"tool_calls": [{"index": index, **head, "function": function}]})


def chat_stream(*steps: bytes, finish: str = "tool_calls") -> Answer:
    """OpenAI's stream around some events."""
    return lambda _: [
        HEAD,
        chat({"role": "assistant", "content": None}),
        *steps,
        chat({}, finish),
        event("[DONE]"),
        END,
    ]


WEATHER_CALL = (
    call_delta(0, "", id="call_1", type="function", name="weather"),
    call_delta(0, '{"city": "Os'),
    call_delta(0, 'lo", "days": 2}'),
)
NOW_CALL = (call_delta(1, "", id="call_2", type="function", name="now"), call_delta(1, "{}"))
TWO_CALLS = [("call_1", "weather", {"city": "Oslo", "days": 2}), ("call_2", "now", {})]


async def test_calls_of_openai_are_documents_that_the_codec_has_judged() -> None:
    async with upstream_node(OPENAI, chat_stream(*WEATHER_CALL, *NOW_CALL)) as under:
        answer = await under.running.client.generate(with_tools("Weather?"))
        assert read(answer) == ("", TWO_CALLS, {Verdict.OK})
        body = under.upstream.of(OPENAI.path)[-1].body
    assert [tool["function"]["name"] for tool in body["tools"]] == ["weather", "now"]
    assert body["tools"][0]["function"]["parameters"] == WEATHER
    assert body["tool_choice"] == "auto"
    assert answer.status.constraint_mode == mesh_pb2.CONSTRAINT_MODE_ENVELOPE
    assert ends(answer) == [frame_pb2.FINISH_REASON_TOOL_CALLS] * 2


async def test_text_beside_calls_is_the_main_document() -> None:
    steps = (chat({"content": "Let me "}), chat({"content": "look."}), *WEATHER_CALL)
    async with upstream_node(OPENAI, chat_stream(*steps)) as under:
        answer = await under.running.client.generate(with_tools("Weather?"))
    assert read(answer) == ("Let me look.", TWO_CALLS[:1], {Verdict.OK})


@pytest.mark.parametrize(
    ("mode", "name", "choice"),
    [
        (content_pb2.TOOL_MODE_REQUIRED, "", "required"),
        (content_pb2.TOOL_MODE_REQUIRED, "weather", {"type": "function", "function": {"name": "weather"}}),
        (content_pb2.TOOL_MODE_NONE, "", "none"),
    ],
)
async def test_the_choice_reaches_the_server(mode: int, name: str, choice: Any) -> None:
    answer = OPENAI.stream() if mode == content_pb2.TOOL_MODE_NONE else chat_stream(*WEATHER_CALL)
    async with upstream_node(OPENAI, answer) as under:
        await under.running.client.generate(with_tools("Weather?", mode, name))
        assert under.upstream.of(OPENAI.path)[-1].body["tool_choice"] == choice


async def test_arguments_that_break_their_schema_are_invalid_and_end_the_answer() -> None:
    steps = (call_delta(0, '{"city": 5', id="c", name="weather"), *NOW_CALL)
    async with upstream_node(OPENAI, chat_stream(*steps)) as under:
        answer = await under.running.client.generate(with_tools("Weather?"))
    assert read(answer)[2] == {Verdict.INVALID}
    assert (answer.end.violation.rule, answer.end.violation.pointer) == ("type", "/city")


async def test_a_call_that_is_left_open_when_the_next_begins_is_incomplete() -> None:
    steps = (call_delta(0, '{"city": "Oslo",', id="c", name="weather"), *NOW_CALL)
    async with upstream_node(OPENAI, chat_stream(*steps)) as under:
        answer = await under.running.client.generate(with_tools("Weather?"))
    assert Verdict.INCOMPLETE in read(answer)[2]


async def test_a_second_call_is_left_out_where_one_was_asked_for() -> None:
    async with upstream_node(OPENAI, chat_stream(*WEATHER_CALL, *NOW_CALL)) as under:
        answer = await under.running.client.generate(with_tools("Weather?", is_single=True))
        assert under.upstream.of(OPENAI.path)[-1].body["parallel_tool_calls"] is False
    assert read(answer) == ("", TWO_CALLS[:1], {Verdict.OK})


@pytest.mark.parametrize(
    ("steps", "mode", "name"),
    [
        ((chat({"content": "I will not."}),), content_pb2.TOOL_MODE_REQUIRED, ""),
        (NOW_CALL, content_pb2.TOOL_MODE_REQUIRED, "weather"),
        ((call_delta(0, "{}", id="c", name="unheard_of"),), content_pb2.TOOL_MODE_AUTO, ""),
        ((call_delta(0, "{}", id="c"),), content_pb2.TOOL_MODE_AUTO, ""),
        ((chat({"tool_calls": "no"}),), content_pb2.TOOL_MODE_AUTO, ""),
        ((chat({"tool_calls": [{"index": 0, "function": {"name": 5}}]}),), content_pb2.TOOL_MODE_AUTO, ""),
        ((call_delta(0, "{}", id="c" * 300, name="now"),), content_pb2.TOOL_MODE_AUTO, ""),
    ],
    ids=["text", "another", "unknown", "nameless", "no list", "no name", "long id"],
)
async def test_what_is_no_call_of_the_request_is_a_failure(steps: Sequence[bytes], mode: int, name: str) -> None:
    async with upstream_node(OPENAI, chat_stream(*steps)) as under:
        with pytest.raises(MeshError) as caught:
            await under.running.client.generate(with_tools("Weather?", mode, name))
    assert caught.value.reason == R.ERROR_REASON_BACKEND_FAILED


@pytest.mark.parametrize("vendor", [OPENAI, ANTHROPIC], ids=["openai", "anthropic"])
async def test_a_caller_that_goes_in_the_middle_of_a_call_frees_the_server(vendor: Vendor) -> None:
    begun = WEATHER_CALL[:2] if vendor is OPENAI else ()
    blocks = messages_stream(tool_block("c", "weather", '{"city": "Os'))
    steps = [HEAD, *begun, Hang()] if vendor is OPENAI else []

    def answer(request: Request) -> Sequence[Step]:
        return steps or [*list(blocks(request))[:4], Hang()]

    async with upstream_node(vendor, answer) as under:
        async with under.running.client.open(with_tools("Weather?")):
            await eventually(lambda: "tools" in under.upstream.of(vendor.path)[-1].body, timeout_s=60)
        asked = under.upstream.of(vendor.path)[-1]
        await eventually(lambda: asked.freed_s is not None, timeout_s=60)
        assert asked.is_cut


async def test_a_stream_that_is_cut_in_the_middle_of_a_call_is_no_call() -> None:
    call = (WEATHER_CALL[0], call_delta(0, '{"city": "Oslo", '))
    async with upstream_node(OPENAI, lambda _: [HEAD, *call, Cut()]) as under:
        answer = await under.running.client.generate(with_tools("Weather?"))
    assert read(answer)[2] == {Verdict.INCOMPLETE}
    assert answer.end.incomplete_reason == frame_pb2.INCOMPLETE_REASON_BACKEND_FAILED


@pytest.mark.parametrize(
    "end", [[Cut()], [END], [chat({}, "length"), event("[DONE]"), END]], ids=["cut", "closed", "limit"]
)
async def test_whole_calls_of_a_stream_that_does_not_end_well_are_no_success(end: list[Step]) -> None:
    async with upstream_node(OPENAI, lambda _: [HEAD, *WEATHER_CALL, *NOW_CALL, *end]) as under:
        answer = await under.running.client.generate(with_tools("Weather?"))
    text, calls, verdicts = read(answer)
    assert (text, calls) == ("", TWO_CALLS)
    assert verdicts == {Verdict.OK, Verdict.INCOMPLETE}


async def test_a_server_that_makes_calls_without_end_is_stopped() -> None:
    calls = [call_delta(index, "{}", id=f"c{index}", name="now") for index in range(200)]
    async with upstream_node(OPENAI, chat_stream(*calls)) as under:
        answer = await under.running.client.generate(with_tools("Weather?"))
    # As many as were whole are kept, and the answer says that it is not.
    _, made, verdicts = read(answer)
    assert len(made) == MAX_CALLS
    assert verdicts == {Verdict.OK, Verdict.INCOMPLETE}


async def test_many_calls_at_the_same_time_are_kept_apart() -> None:
    async with upstream_node(OPENAI, chat_stream(*WEATHER_CALL, *NOW_CALL), slots=8) as under:
        ask = under.running.client.generate
        answers = await asyncio.gather(*(ask(with_tools("Weather?"), request_id=f"r{n}") for n in range(40)))
    assert all(read(answer) == ("", TWO_CALLS, {Verdict.OK}) for answer in answers)


async def test_calls_and_results_of_earlier_turns_reach_openai_as_they_were() -> None:
    prompt = with_tools("Weather?")
    call = content_pb2.ToolCall(id="c1", name="weather", arguments='{"city": "Oslo", "days": 1}')
    prompt.messages.add(role=content_pb2.ROLE_ASSISTANT, tool_calls=[call])
    prompt.messages.add(role=content_pb2.ROLE_TOOL, tool_call_id="c1", parts=[content_pb2.ContentPart(text="Rain.")])
    async with upstream_node(OPENAI, OPENAI.stream(("It rains.",))) as under:
        answer = await under.running.client.generate(prompt)
        made, result = under.upstream.of(OPENAI.path)[-1].body["messages"][1:]
    assert read(answer)[0] == "It rains."
    function = {"name": "weather", "arguments": '{"city": "Oslo", "days": 1}'}
    assert made == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    assert result == {"role": "tool", "content": "Rain.", "tool_call_id": "c1"}


def block(kind: str, **fields: Any) -> bytes:
    """An event of Anthropic's stream."""
    return event({"type": kind, **fields}, name=kind)


def messages_stream(*blocks: tuple[dict[str, Any], Sequence[dict[str, Any]]]) -> Answer:
    """Anthropic's stream of content blocks, each with its deltas."""

    def answer(_: Request) -> Sequence[Step]:
        usage = {"input_tokens": 9, "output_tokens": 1}
        steps: list[Step] = [HEAD, block("message_start", message={"id": "m", "role": "assistant", "usage": usage})]
        for index, (head, deltas) in enumerate(blocks):
            steps.append(block("content_block_start", index=index, content_block=head))
            steps += [block("content_block_delta", index=index, delta=delta) for delta in deltas]
            steps.append(block("content_block_stop", index=index))
        end = block("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 30})
        return [*steps, end, block("message_stop"), END]

    return answer


def tool_block(call_id: str, name: str, *texts: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block of a call."""
    head = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    return head, [{"type": "input_json_delta", "partial_json": text} for text in texts]


async def test_calls_of_anthropic_are_documents_too() -> None:
    text = ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "Let me look."}])
    stream = messages_stream(text, tool_block("call_1", "weather", "", '{"city": "Oslo", ', '"days": 2}'), NOW_BLOCK)
    async with upstream_node(ANTHROPIC, stream) as under:
        answer = await under.running.client.generate(with_tools("Weather?"))
        body = under.upstream.of(ANTHROPIC.path)[-1].body
    assert read(answer) == ("Let me look.", TWO_CALLS, {Verdict.OK})
    assert body["tools"][0] == {"name": "weather", "description": "The weather of a city.", "input_schema": WEATHER}
    assert body["tool_choice"] == {"type": "auto"}


NOW_BLOCK = tool_block("call_2", "now")


@pytest.mark.parametrize(
    ("mode", "name", "choice"),
    [
        (content_pb2.TOOL_MODE_REQUIRED, "", {"type": "any", "disable_parallel_tool_use": True}),
        (
            content_pb2.TOOL_MODE_REQUIRED,
            "weather",
            {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
        ),
    ],
)
async def test_the_choice_reaches_anthropic(mode: int, name: str, choice: Any) -> None:
    stream = messages_stream(tool_block("c", "weather", '{"city": "Oslo", "days": 2}'))
    async with upstream_node(ANTHROPIC, stream) as under:
        await under.running.client.generate(with_tools("Weather?", mode, name, is_single=True))
        assert under.upstream.of(ANTHROPIC.path)[-1].body["tool_choice"] == choice


async def test_earlier_turns_reach_anthropic_as_blocks() -> None:
    prompt = with_tools("Weather?")
    call = content_pb2.ToolCall(id="c1", name="weather", arguments='{"city": "Oslo", "days": 1}')
    prompt.messages.add(
        role=content_pb2.ROLE_ASSISTANT, parts=[content_pb2.ContentPart(text="I look.")], tool_calls=[call]
    )
    prompt.messages.add(role=content_pb2.ROLE_TOOL, tool_call_id="c1", parts=[content_pb2.ContentPart(text="Rain.")])
    async with upstream_node(ANTHROPIC, messages_stream(NOW_BLOCK)) as under:
        await under.running.client.generate(prompt)
        turns = under.upstream.of(ANTHROPIC.path)[-1].body["messages"]
    assert turns[1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo", "days": 1}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "Rain."}]},
    ]


async def test_a_server_of_which_it_is_not_known_takes_no_tools() -> None:
    async with upstream_node(VENDORS["vllm"], VENDORS["vllm"].stream()) as under:
        assert (await under.running.client.status()).models[0].capabilities == []
        with pytest.raises(MeshError) as caught:
            await under.running.client.generate(with_tools("Weather?"))
    assert caught.value.reason == R.ERROR_REASON_CONTENT_UNSUPPORTED


async def test_a_server_that_is_set_to_call_tools_is_tried() -> None:
    def answer(request: Request) -> Sequence[Step]:
        name = request.body["tools"][0]["function"]["name"] if "tools" in request.body else ""
        return chat_stream(call_delta(0, "{}", id="c", name=name))(request)

    async with upstream_node(VENDORS["vllm"], answer, has_tools=True) as under:
        assert (await under.running.client.status()).models[0].capabilities == ["tools"]


async def test_a_server_that_takes_tools_and_answers_with_text_is_announced_without(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with upstream_node(VENDORS["vllm"], VENDORS["vllm"].stream(), has_tools=True) as under:
        assert (await under.running.client.status()).models[0].capabilities == []
    assert "does not call tools" in caplog.text


async def test_a_server_that_refuses_tools_is_announced_without() -> None:
    def answer(request: Request) -> Sequence[Step]:
        refusal = page({"error": {"message": "tools need a flag", "type": "bad"}}, status="400 Bad Request")
        return refusal if "tools" in request.body else VENDORS["vllm"].stream()(request)

    async with upstream_node(VENDORS["vllm"], answer, has_tools=True) as under:
        assert (await under.running.client.status()).models[0].capabilities == []


async def test_tools_with_a_schema_are_refused_by_name_where_the_server_takes_them_apart_only() -> None:
    async with upstream_node(VENDORS["deepseek"], VENDORS["deepseek"].stream()) as under:
        with pytest.raises(MeshError) as caught:
            await under.running.client.generate(with_tools("Weather?", schema=WEATHER))
    assert caught.value.reason == R.ERROR_REASON_CONTENT_UNSUPPORTED


async def test_a_grammar_of_ours_holds_the_calls_of_a_llama_server() -> None:
    vendor = VENDORS["llama-server"]
    async with upstream_node(vendor, vendor.stream(("@tool wea", "ther\n", '{"city": "Oslo", "days": 2}'))) as under:
        answer = await under.running.client.generate(with_tools("Weather?", content_pb2.TOOL_MODE_REQUIRED, "weather"))
        body = under.upstream.of(vendor.path)[-1].body
    _, [(_, name, arguments)], verdicts = read(answer)
    assert (name, arguments, verdicts) == ("weather", {"city": "Oslo", "days": 2}, {Verdict.OK})
    assert "tools" not in body
    assert "@tool weather" in body["grammar"]
    assert "@tool NAME" in body["messages"][0]["content"]
