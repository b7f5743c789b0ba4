import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from helpers.eventually import eventually
from helpers.inference import (
    NodeUnderTest,
    Script,
    ScriptedBackend,
    ready_model,
    scripted_node,
    serve,
    user_prompt,
)
from helpers.machine import stretched
from ssop.v1 import frame_pb2, inference_pb2, mesh_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_codec import Verdict
from ssop_inference.backend import Load, Stop, Token
from ssop_inference.core.constraint import Constraint, Mode
from ssop_inference.core.prompt import TOOLS, ControlTokens
from ssop_inference.node import Node
from ssop_inference.resource import Memory

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer", "maximum": 9}, "b": {"type": "string"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
FAILED = MeshError(ErrorReason.ERROR_REASON_BACKEND_FAILED, "the engine failed")


def node_of(*scripts: Script, **fields: Any) -> tuple[NodeUnderTest, ScriptedBackend]:
    backend = ScriptedBackend(*scripts, **fields)
    return scripted_node(backend), backend


async def test_document_is_delivered_with_its_usage() -> None:
    running, _ = node_of(Script([b'{"a": 1, "b": "x', b'y"}']))
    answer = await running.client.generate(user_prompt("x", schema=SCHEMA))
    assert answer.decoder.result == {"a": 1, "b": "xy"}
    assert (answer.end.usage.input_tokens, answer.end.usage.output_tokens) == (11, 2)
    assert answer.end.finish_reason == frame_pb2.FINISH_REASON_STOP


async def test_status_says_mode_limits_and_passages() -> None:
    constraint = Constraint(Mode.RELAXED, engine_limits=("maxLength=9 at /b",))
    running, _ = node_of(Script([b'{"a": 1, "b": ""}']), constraint=constraint)
    passage = inference_pb2.Passage(ref=mesh_pb2.PassageRef(document_id="d"), text="t")
    answer = await running.client.generate(user_prompt("x", schema=SCHEMA), passages=[passage])
    assert answer.messages[0].frames[0].status == mesh_pb2.DeliveryStatus(
        state=mesh_pb2.DELIVERY_STATE_OK,
        constraint_mode=mesh_pb2.CONSTRAINT_MODE_RELAXED,
        engine_limits=["maxLength=9 at /b"],
        passages=[mesh_pb2.PassageRef(document_id="d")],
    )


async def test_completed_field_leaves_before_the_next_token() -> None:
    running, backend = node_of(Script([b'{"a": 1, "b"', 60.0, b': "x"}']))
    async with running.client.open(user_prompt("x", schema=SCHEMA)) as stream:
        frames = frame_pb2.Chunk.FromString(await stream.read() or b"").frames
    kinds = [frame_pb2.FRAME_KIND_STATUS, frame_pb2.FRAME_KIND_HEADER, frame_pb2.FRAME_KIND_VALUE]
    assert [frame.kind for frame in frames] == kinds
    assert backend.generations[0].is_cancelled


async def test_answer_that_is_there_at_once_is_one_message() -> None:
    running, _ = node_of(Script([[Token(b'{"a": 1, '), Token(b'"b": "x"'), Token(b"}")]]))
    answer = await running.client.generate(user_prompt("x", schema=SCHEMA))
    (message,) = answer.messages
    assert [message.frames[0].kind, message.frames[-1].kind] == [
        frame_pb2.FRAME_KIND_STATUS,
        frame_pb2.FRAME_KIND_END,
    ]


async def test_nothing_leaves_before_the_first_field() -> None:
    running, _ = node_of(Script([b"{", b'"a"', b": 1", b", "]))
    answer = await running.client.generate(user_prompt("x", schema=SCHEMA))
    assert frame_pb2.FRAME_KIND_VALUE in [frame.kind for frame in answer.messages[0].frames]


async def test_schema_that_was_asked_about_before_the_model_was_loaded_spells_none_of_its_own_tokens() -> None:
    running, backend = node_of(Script([b"{}"]), constraint=Constraint(Mode.ENVELOPE))
    schema = {"type": "object", "title": "(own)"}
    await running.client.check_constraint(schema)
    backend.control = ControlTokens(("(own)",))
    await running.client.generate(user_prompt("x", schema=schema))
    told = backend.requests[0].messages[0].content
    assert '"title"' in told
    assert "(own)" not in told


async def test_what_a_model_is_told_of_schema_and_tools_spells_no_control_token() -> None:
    running, backend = node_of(Script([b'{"a": 1, "b": ""}']), constraint=Constraint(Mode.ENVELOPE))
    backend.capabilities = replace(backend.capabilities, features=(TOOLS,), has_marked_calls=True)
    prompt = user_prompt("x", schema={**SCHEMA, "description": "<|im_end|>"})
    prompt.tools.add(name="f", description="<|im_start|>")
    await running.client.generate(prompt)
    told = backend.requests[0].messages[0].content
    assert (told.count("im_end|>"), told.count("im_start|>"), told.count("<|im")) == (1, 1, 0)


THREE: dict[str, Any] = {"type": "object", "properties": {name: {"type": "integer"} for name in "abc"}}


async def test_field_that_is_held_leaves_without_the_next_token() -> None:
    running, _ = node_of(Script([b'{"a": 1,', b'"b": 2,', 600.0]))
    prompt = user_prompt("x", schema=THREE)
    prompt.linger_ms = 20
    async with running.client.open(prompt, timeout_s=600) as stream:
        messages = [frame_pb2.Chunk.FromString(await stream.read() or b"") for _ in range(2)]
    assert [frame.int_value for frame in messages[1].frames] == [2]


@pytest.mark.parametrize(("asked_ms", "messages"), [(None, 2), (0, 3)])
async def test_node_lingers_where_a_request_names_no_time(asked_ms: int | None, messages: int) -> None:
    backend = ScriptedBackend(Script([b'{"a": 1,', b'"b": 2,', b'"c": 3', b"}"]))
    node = Node("node-1", [ready_model(backend)], memory=lambda: Memory(100, 200, 0))
    prompt = user_prompt("x", schema=THREE)
    if asked_ms is not None:
        prompt.linger_ms = asked_ms
    answer = await serve(node, linger_ms=600_000).client.generate(prompt)
    assert answer.decoder.result == {"a": 1, "b": 2, "c": 3}
    assert len(answer.messages) == messages


async def test_messages_of_what_is_ready_together_keep_to_the_buffer() -> None:
    items = ", ".join(f'"{n:030}"' for n in range(40))
    running, _ = node_of(Script([f"[{items}]".encode()]))
    prompt = user_prompt("x", schema={"type": "array", "items": {"type": "string"}})
    prompt.stream_buffer_size = 256
    answer = await running.client.generate(prompt)
    sizes = [message.ByteSize() for message in answer.messages]
    assert max(sizes) <= 256
    assert len(sizes) < 14
    assert answer.end.verdict == frame_pb2.VERDICT_OK


async def test_first_violation_stops_the_model_and_ends_the_document() -> None:
    running, backend = node_of(Script([b'{"a": 99', b', "b"', b': "never"}']))
    answer = await running.client.generate(user_prompt("x", schema=SCHEMA))
    assert answer.end.verdict == frame_pb2.VERDICT_INVALID
    assert (answer.end.violation.rule, answer.end.violation.pointer) == ("maximum", "/a")
    assert answer.end.finish_reason == frame_pb2.FINISH_REASON_ABORTED
    assert backend.generations[0].is_cancelled
    assert running.metric("ssop_inference_violations_total", gen_ai_request_model="scripted", mode="full") == 1


@pytest.mark.parametrize(
    ("stop", "incomplete", "finish"),
    [
        (Stop.OUTPUT_LIMIT, frame_pb2.INCOMPLETE_REASON_MAX_OUTPUT_TOKENS, frame_pb2.FINISH_REASON_LENGTH),
        (Stop.CONTEXT_FULL, frame_pb2.INCOMPLETE_REASON_CONTEXT_FULL, frame_pb2.FINISH_REASON_LENGTH),
        (Stop.END, frame_pb2.INCOMPLETE_REASON_STOPPED_EARLY, frame_pb2.FINISH_REASON_STOP),
        (
            Stop.CONTENT_FILTER,
            frame_pb2.INCOMPLETE_REASON_CONTENT_FILTER,
            frame_pb2.FINISH_REASON_CONTENT_FILTER,
        ),
    ],
)
async def test_cut_document_is_incomplete_with_its_reason(stop: Stop, incomplete: int, finish: int) -> None:
    running, _ = node_of(Script([b'{"a": 1, "b": "x'], stop))
    answer = await running.client.generate(user_prompt("x", schema=SCHEMA))
    assert answer.end.verdict == frame_pb2.VERDICT_INCOMPLETE
    assert (answer.end.incomplete_reason, answer.end.finish_reason) == (incomplete, finish)


async def test_limit_that_the_last_token_reaches_does_not_spoil_the_document() -> None:
    running, _ = node_of(Script([b'{"a": 1, "b": ""}'], Stop.OUTPUT_LIMIT))
    answer = await running.client.generate(user_prompt("x", schema=SCHEMA))
    assert answer.decoder.verdict == Verdict.OK


async def test_plain_text_needs_no_schema() -> None:
    running, _ = node_of(Script([b"Hello ", "wörld".encode()]))
    answer = await running.client.generate(user_prompt("x"))
    assert answer.decoder.text == "Hello wörld"
    assert answer.status.constraint_mode == mesh_pb2.CONSTRAINT_MODE_UNSPECIFIED


async def test_cut_plain_text_is_incomplete() -> None:
    running, _ = node_of(Script([b"Hello"], Stop.OUTPUT_LIMIT))
    answer = await running.client.generate(user_prompt("x"))
    assert answer.end.incomplete_reason == frame_pb2.INCOMPLETE_REASON_MAX_OUTPUT_TOKENS


async def test_envelope_reads_past_fences_and_stops_the_model_after_the_document() -> None:
    running, backend = node_of(
        Script([b"Sure!\n```json\n", b'{"a": 1, "b": "x"}', b"\n```\nHope", b" it helps"]),
        constraint=Constraint(Mode.ENVELOPE, detail="no grammar"),
    )
    answer = await running.client.generate(user_prompt("x", schema=SCHEMA))
    assert answer.decoder.result == {"a": 1, "b": "x"}
    assert backend.generations[0].outcome.output_tokens == 2


async def test_envelope_shows_the_schema_to_the_model() -> None:
    running, backend = node_of(constraint=Constraint(Mode.ENVELOPE))
    await running.client.generate(user_prompt("x", schema=SCHEMA))
    assert json.dumps(SCHEMA, separators=(",", ":")) in backend.requests[0].messages[0].content


async def test_grammar_hides_the_schema_unless_the_model_is_set_to_see_it() -> None:
    backends = ScriptedBackend(name="a"), ScriptedBackend(name="b")
    hidden, shown = scripted_node(backends[0]), scripted_node(backends[1], has_schema_in_prompt=True)
    for running in (hidden, shown):
        await running.client.generate(user_prompt("x", schema=SCHEMA))
    assert [len(backend.requests[0].messages) for backend in backends] == [1, 2]


async def test_failure_before_the_first_field_is_an_error() -> None:
    running, _ = node_of(Script([b'{"a"', FAILED]))
    with pytest.raises(MeshError) as caught:
        await running.client.generate(user_prompt("x", schema=SCHEMA))
    assert caught.value.reason == ErrorReason.ERROR_REASON_BACKEND_FAILED


async def test_failure_after_the_first_field_ends_the_document() -> None:
    running, _ = node_of(Script([b'{"a": 1,', FAILED]))
    answer = await running.client.generate(user_prompt("x", schema=SCHEMA))
    assert answer.end.incomplete_reason == frame_pb2.INCOMPLETE_REASON_BACKEND_FAILED


async def test_deadline_before_the_first_field_is_an_error_with_its_stage() -> None:
    running, _ = node_of(Script([b'{"a"', 60.0]))
    with pytest.raises(MeshError) as caught:
        await running.client.generate(user_prompt("x", schema=SCHEMA), timeout_s=2)
    assert caught.value.metadata == {"stage": "generate"}


async def test_deadline_after_the_first_field_ends_the_document() -> None:
    running, backend = node_of(Script([b'{"a": 1,', 60.0]))
    answer = await running.client.generate(user_prompt("x", schema=SCHEMA), timeout_s=2)
    assert answer.end.incomplete_reason == frame_pb2.INCOMPLETE_REASON_DEADLINE
    assert backend.generations[0].is_cancelled


async def test_client_that_goes_away_stops_the_model() -> None:
    running, backend = node_of(Script([b'{"a": 1,', 60.0]))
    stream = running.client.open(user_prompt("x", schema=SCHEMA))
    await stream.read()
    await stream.cancel()
    assert backend.generations[0].is_cancelled
    duration = "gen_ai_server_request_duration_seconds_count"
    assert running.metric(duration, gen_ai_request_model="scripted", outcome="cancelled") == 1


async def test_log_probabilities_follow_their_fields() -> None:
    tokens = [Token(b'{"a": ', -0.5), Token(b"1", -1.0), Token(b', "b": "x"', -2.0), Token(b"}", -0.1)]
    running, _ = node_of(Script([tokens]))
    prompt = user_prompt("x", schema=SCHEMA)
    prompt.logprobs = True
    answer = await running.client.generate(prompt)
    fields = [f for frame in answer.of_kind(frame_pb2.FRAME_KIND_LOGPROBS) for f in frame.logprobs.fields]
    assert [(f.seq, f.sum_logprob, f.tokens) for f in fields] == [(2, -1.0, 1), (3, -2.0, 1)]


async def test_log_probabilities_that_a_backend_lacks_are_refused() -> None:
    running, _ = node_of(has_logprobs=False)
    prompt = user_prompt("x")
    prompt.logprobs = True
    with pytest.raises(MeshError) as caught:
        await running.client.generate(prompt)
    assert caught.value.reason == ErrorReason.ERROR_REASON_LOGPROBS_UNSUPPORTED


async def test_tool_whose_schema_is_no_json_is_refused() -> None:
    running, backend = node_of()
    backend.capabilities = replace(backend.capabilities, features=(TOOLS,), has_marked_calls=True)
    prompt = user_prompt("x")
    prompt.tools.add(name="f", parameters_schema='%s%n{"type')
    with pytest.raises(MeshError) as caught:
        await running.client.generate(prompt)
    assert caught.value.reason == ErrorReason.ERROR_REASON_SCHEMA_REFUSED


async def test_refused_schema_names_the_keyword() -> None:
    running, _ = node_of()
    with pytest.raises(MeshError) as caught:
        await running.client.generate(user_prompt("x", schema={"type": "object", "unevaluatedProperties": False}))
    assert caught.value.reason == ErrorReason.ERROR_REASON_SCHEMA_REFUSED
    assert caught.value.metadata["keyword"] == "unevaluatedProperties"


async def test_unknown_model_is_named() -> None:
    running, _ = node_of()
    with pytest.raises(MeshError) as caught:
        await running.client.generate(user_prompt("x"), model="other")
    assert caught.value.reason == ErrorReason.ERROR_REASON_MODEL_UNKNOWN
    assert caught.value.metadata == {"model": "other"}


async def test_model_that_is_not_ready_is_not_used() -> None:
    running, backend = node_of()
    running.node.models[0].state = inference_pb2.MODEL_STATE_WARMING
    with pytest.raises(MeshError) as caught:
        await running.client.generate(user_prompt("x"))
    assert caught.value.reason == ErrorReason.ERROR_REASON_BACKEND_NOT_READY
    assert backend.requests == []


async def test_priority_and_sampling_reach_the_backend() -> None:
    running, backend = node_of()
    await running.client.generate(user_prompt("x", temperature=0.5, seed=7, stop=["."]), priority=2)
    request = backend.requests[0]
    assert (request.priority, request.sampling.temperature, request.sampling.seed) == (2, 0.5, 7)
    assert request.sampling.stop == (".",)


async def test_schemas_are_compiled_once_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    running, backend = node_of()
    compiled: list[Any] = []

    def constrain(tree: Any, *, format_assertion: bool) -> Constraint:
        compiled.append(tree)
        return Constraint(Mode.FULL)

    monkeypatch.setattr(backend, "constrain", constrain)
    schemas = [{"type": "string", "maxLength": n} for n in range(10)]
    for schema in (*schemas, *schemas[2:], schemas[0]):
        await running.client.check_constraint(schema)
    assert len(compiled) == 11


async def test_status_comes_at_once_and_on_change() -> None:
    running, backend = node_of()
    async with running.client.watch_status() as stream:
        first = inference_pb2.WatchStatusResponse.FromString(await stream.read() or b"")
        backend.load_value = Load(3, 2, 0.5, 10.0, age_s=0.2)
        running.node.notify()
        second = inference_pb2.WatchStatusResponse.FromString(await stream.read() or b"")
    assert first.models[0].slots_busy.value == 0
    assert second.models[0].slots_busy == inference_pb2.Gauge(value=3, age_ms=200)
    assert second.models[0].queue_ms.value == 500


async def test_status_is_repeated_every_second() -> None:
    running, _ = node_of()
    async with running.client.watch_status() as stream:
        await stream.read()
        started_s = asyncio.get_running_loop().time()
        await stream.read()
    assert asyncio.get_running_loop().time() - started_s <= stretched(1.5)


async def test_drain_is_told_to_watchers_and_ends_their_streams() -> None:
    running, _ = node_of()
    async with running.client.watch_status() as stream:
        await stream.read()
        running.node.drain()
        last = inference_pb2.WatchStatusResponse.FromString(await stream.read() or b"")
        assert last.models[0].state == inference_pb2.MODEL_STATE_DRAINING
        assert await stream.read() is None


async def test_start_makes_models_ready_only_after_a_token() -> None:
    running, backend = node_of(Script([b"H"]))
    model = running.node.models[0]
    model.state = inference_pb2.MODEL_STATE_LOADING
    await running.node.start(timeout_s=5)
    assert model.state == inference_pb2.MODEL_STATE_READY
    assert backend.requests[0].sampling.max_output_tokens == 1


async def test_model_that_generates_nothing_is_never_ready() -> None:
    running, _ = node_of(Script([]))
    with pytest.raises(MeshError):
        await running.node.start(timeout_s=5)
    assert running.node.models[0].state == inference_pb2.MODEL_STATE_FAILED


async def test_warm_up_answers_for_every_model() -> None:
    running = scripted_node(ScriptedBackend(name="a"), ScriptedBackend(name="b"))
    assert (await running.client.warm_up()).keys() == {"a", "b"}
    assert (await running.client.warm_up("b")).keys() == {"b"}


async def test_warm_up_goes_before_all_who_wait() -> None:
    running, backend = node_of()
    await running.client.warm_up()
    assert backend.requests[-1].priority < 0


async def test_tokens_are_counted_by_the_model() -> None:
    running, _ = node_of()
    assert await running.client.count_tokens(user_prompt("one two three")) == 3


async def test_closing_drains_every_model() -> None:
    running, backend = node_of()
    await running.node.close()
    assert backend.is_closed
    assert running.node.models[0].state == inference_pb2.MODEL_STATE_DRAINING


async def test_slow_reader_holds_the_model_back() -> None:
    running, backend = node_of(Script([b'{"a": 1', b', "b": "', *[b"x" * 4096] * 50, b'"}']))
    async with running.client.open(user_prompt("x", schema=SCHEMA)) as stream:
        await stream.read()
        await asyncio.sleep(0)
        await eventually(lambda: len(backend.generations) == 1)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(backend.generations[0]._pieces) > 30


async def test_schema_whose_grammar_the_engine_lost_is_announced_as_envelope_from_then_on() -> None:
    running, backend = node_of(Script([b"Once upon a time"]), Script([b'{"a": 1, "b": "x"}']))
    answer = await running.client.generate(user_prompt("x", schema=SCHEMA))
    assert answer.status.constraint_mode == mesh_pb2.CONSTRAINT_MODE_FULL
    assert answer.end.violation.rule == "syntax"
    answer = await running.client.generate(user_prompt("x", schema=SCHEMA))
    assert answer.status.constraint_mode == mesh_pb2.CONSTRAINT_MODE_ENVELOPE
    assert answer.end.verdict == frame_pb2.VERDICT_OK
    assert backend.requests[1].constraint.grammar is None
    assert (await running.client.check_constraint(SCHEMA)).detail


async def test_answer_that_breaks_what_grammars_leave_out_keeps_its_mode() -> None:
    running, _ = node_of(Script([b'{"a": 1}']))
    answer = await running.client.generate(user_prompt("x", schema=SCHEMA))
    assert answer.end.verdict == frame_pb2.VERDICT_INVALID
    checked = await running.client.check_constraint(SCHEMA)
    assert checked.constraint_mode == mesh_pb2.CONSTRAINT_MODE_FULL
