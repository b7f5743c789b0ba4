"""Streams of model servers, as their public documentation writes them, and broken ones."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx_sse import EventSource

from ssop_chassis.errors import MeshError
from ssop_inference.core.chat_stream import ChatStreamReader
from ssop_inference.core.message_stream import MessageStreamReader
from ssop_inference.core.upstream_errors import WireError
from ssop_inference.wire import Reader

FOLDER = Path(__file__).resolve().parents[1] / "vectors" / "upstream"
EXPECTED: dict[str, dict[str, Any]] = json.loads((FOLDER / "expected.json").read_text())
SIZES = [1, 7, 1 << 20]


class Body(httpx.AsyncByteStream):
    """A body that comes in pieces of so many bytes."""

    def __init__(self, data: bytes, size: int) -> None:
        self._pieces = [data[start : start + size] for start in range(0, len(data), size)]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


def make_reader(wire: str) -> Reader:
    return ChatStreamReader() if wire == "openai" else MessageStreamReader(is_tool=wire == "anthropic-tool")


async def read(name: str, size: int) -> tuple[Reader, list[Any]]:
    reader = make_reader(EXPECTED[name]["wire"])
    body = Body((FOLDER / f"{name}.sse").read_bytes(), size)
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=body)
    tokens = [
        token async for event in EventSource(response).aiter_sse() for token in reader.feed(event.event, event.data)
    ]
    reader.close()
    return reader, tokens


def test_every_stream_has_an_expectation() -> None:
    assert {path.stem for path in FOLDER.glob("*.sse")} == set(EXPECTED)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [name for name, expected in EXPECTED.items() if "fault" not in expected])
async def test_stream_is_read_as_documented(name: str, size: int) -> None:
    expected = EXPECTED[name]
    reader, tokens = await read(name, size)
    assert b"".join(token.text for token in tokens).decode() == expected["text"]
    assert reader.stop is not None
    assert reader.stop.value == expected["stop"]
    counts = reader.counts
    said = {key: getattr(counts, key) for key in ("input_tokens", "output_tokens", "cached_input_tokens")}
    assert said == {key: expected.get(key, said[key]) for key in said}
    assert [token.logprob for token in tokens] == expected.get("logprobs", [None] * len(tokens))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [name for name, expected in EXPECTED.items() if "fault" in expected])
async def test_broken_stream_is_a_typed_error(name: str, size: int) -> None:
    with pytest.raises((WireError, MeshError)) as caught:
        await read(name, size)
    found = caught.value.reason_name if isinstance(caught.value, MeshError) else "fault"
    assert found == EXPECTED[name]["fault"]


@pytest.mark.parametrize("name", [name for name, expected in EXPECTED.items() if "fault" not in expected])
async def test_stream_that_is_cut_anywhere_is_never_a_success(name: str) -> None:
    data = (FOLDER / f"{name}.sse").read_bytes()
    whole = EXPECTED[name]["text"]
    for end in range(len(data)):
        reader = make_reader(EXPECTED[name]["wire"])
        response = httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Body(data[:end], 1 << 20))
        text = b""
        try:
            async for event in EventSource(response).aiter_sse():
                text += b"".join(token.text for token in reader.feed(event.event, event.data))
            reader.close()
        except (WireError, MeshError):
            continue
        # Only what follows the reason to stop may be lost.
        assert text.decode() == whole
