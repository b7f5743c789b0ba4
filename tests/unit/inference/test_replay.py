import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from helpers.as_written import run_both_ways
from helpers.inference import ready_model, serve, user_prompt
from ssop.v1 import frame_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_inference.backend import GenerateRequest
from ssop_inference.core.prompt import ChatMessage
from ssop_inference.node import Node
from ssop_inference.replay import RecordingError, ReplayBackend, read_recording

way = run_both_ways("ssop_inference.replay", "ReplayBackend", "RecordingError", "read_recording")

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def recording(tmp_path: Path, *streams: Any) -> ReplayBackend:
    path = tmp_path / "streams.jsonl"
    path.write_text("\n".join(json.dumps(stream) for stream in streams))
    return ReplayBackend("replay", read_recording(path), slots=1)


def request(text: str = "x") -> GenerateRequest:
    return GenerateRequest((ChatMessage("user", text),), asyncio.get_running_loop().time() + 10)


async def play(backend: ReplayBackend, text: str = "x") -> bytes:
    async with backend.generate(request(text)) as generation:
        played = b""
        while tokens := await generation.read():
            played += b"".join(token.text for token in tokens)
    return played


async def test_streams_are_played_in_turn(tmp_path: Path) -> None:
    backend = recording(tmp_path, {"tokens": [[0, "a"]]}, {"tokens": [[0, "b"]]})
    assert [await play(backend) for _ in range(3)] == [b"a", b"b", b"a"]


async def test_pauses_are_kept(tmp_path: Path) -> None:
    backend = recording(tmp_path, {"tokens": [[20, "a"], [30, "b"]]})
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    await play(backend)
    assert loop.time() - started_s >= 0.05


async def test_match_chooses_by_the_prompt(tmp_path: Path) -> None:
    backend = recording(tmp_path, {"tokens": [[0, "a"]], "match": "cats"}, {"tokens": [[0, "b"]], "match": "dogs"})
    assert [await play(backend, "of dogs"), await play(backend, "of dogs")] == [b"b", b"b"]


async def test_prompt_without_a_match_fails(tmp_path: Path) -> None:
    with pytest.raises(MeshError) as caught:
        await play(recording(tmp_path, {"tokens": [], "match": "cats"}))
    assert caught.value.reason == ErrorReason.ERROR_REASON_BACKEND_FAILED


async def test_cancel_ends_a_pause_and_frees_the_slot(tmp_path: Path) -> None:
    backend = recording(tmp_path, {"tokens": [[0, "a"], [60_000, "b"]]})
    async with backend.generate(request()) as generation:
        await generation.read()
        waiting = asyncio.create_task(generation.read())
        await asyncio.sleep(0)
        generation.cancel()
        assert await waiting == []
    assert backend.load_now().slots_busy == 0


async def test_recording_is_judged_like_any_answer(tmp_path: Path) -> None:
    backend = recording(tmp_path, {"tokens": [[0, '{"a": '], [0, "1}"]], "input_tokens": 7})
    running = serve(Node("node-1", [ready_model(backend)]))
    answer = await running.client.generate(user_prompt("x", schema=SCHEMA))
    assert (answer.decoder.result, answer.end.usage.input_tokens) == ({"a": 1}, 7)


async def test_stream_that_breaks_is_a_failure_after_its_tokens(tmp_path: Path) -> None:
    backend = recording(tmp_path, {"tokens": [[0, '{"a": 1, ']], "stop": "failed"})
    running = serve(Node("node-1", [ready_model(backend)]))
    answer = await running.client.generate(user_prompt("x", schema=SCHEMA))
    assert answer.end.incomplete_reason == frame_pb2.INCOMPLETE_REASON_BACKEND_FAILED


@pytest.mark.parametrize(
    "line", ["", "{", "[]", "{}", '{"tokens": [[0]]}', '{"tokens": [[-1, "a"]]}', '{"tokens": [], "stop": "never"}',
             '{"tokens": [[1e9, "a"]]}', '{"tokens": [[0, 5]]}'],
)  # fmt: skip
def test_broken_recording_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "streams.jsonl"
    path.write_text(line)
    with pytest.raises(RecordingError):
        read_recording(path)
