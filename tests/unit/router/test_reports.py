"""What the end of a request says in the log."""

import logging
from collections.abc import Callable
from typing import Any, Final

import pytest

from helpers.scripted_mesh import GOOD, Mesh, ask, encode, failing, node_status_chunk
from ssop.v1.frame_pb2 import Chunk
from ssop_chassis.call import Call
from ssop_chassis.logs import FIELDS

FIELDS_OF_A_REQUEST: Final = [
    *("request_id", "tenant", "outcome", "tier", "tier_reason", "abstention", "weak_signals", "node", "node_reason"),
    *("cache_reason", "retrieval_reason", "degraded_level", "failed_attempts", "continuations", "unavailable"),
    *("cascade_reason", "cascade_confidence", "verdict", "frames_sent", "admission_ms", "retrieval_wait_ms"),
    *("rag_overlap_ms", "prefetches", "prefetch_hits", "first_field_ms", "total_ms"),
]

Read = Callable[[], dict[str, Any]]


@pytest.fixture
def read_line(caplog: pytest.LogCaptureFixture) -> Read:
    """The fields of the last request's line."""
    caplog.set_level(logging.INFO, "ssop_router.reports")

    def read() -> dict[str, Any]:
        found: dict[str, Any] = vars([record for record in caplog.records if record.message == "request"][-1])[FIELDS]
        return found

    return read


async def test_line_of_a_request_has_its_fields_in_order(mesh: Mesh, read_line: Read) -> None:
    await mesh.generate(ask(request_id="one"))
    assert list(read_line()) == FIELDS_OF_A_REQUEST


async def test_line_of_a_request_says_how_it_went(mesh: Mesh, read_line: Read) -> None:
    answer = await mesh.generate(ask(request_id="one"))
    line = read_line()
    told = {name: line[name] for name in ("request_id", "tenant", "outcome", "tier", "node", "verdict", "unavailable")}
    assert told == {
        "request_id": "one",
        "tenant": "acme",
        "outcome": "OK",
        "tier": "TIER_FULL",
        "node": line["node"],
        "verdict": "VERDICT_OK",
        "unavailable": [],
    }
    assert line["node"] in mesh.nodes
    assert line["frames_sent"] == sum(frame.kind < 16 for frame in answer.frames)
    assert line["total_ms"] >= line["first_field_ms"] > 0


async def test_line_of_a_request_that_failed_is_not_that_of_one_before(mesh: Mesh, read_line: Read) -> None:
    await mesh.generate(ask(request_id="one", policy="full,no_cache"))
    mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = failing()
    await mesh.generate(ask(request_id="two", policy="full,no_cache"))
    line = read_line()
    assert (line["request_id"], line["outcome"], line["failed_attempts"]) == ("two", "NO_BACKEND", 2)


async def test_line_of_an_answer_from_the_cache_names_no_node(mesh: Mesh, read_line: Read) -> None:
    for name in ("one", "two"):
        await mesh.generate(ask(request_id=name))
    line = read_line()
    assert (line["cache_reason"], line["node"], line["node_reason"]) == ("CACHE_REASON_HIT", "", "")


async def test_line_of_a_request_with_debug_ends_with_its_explanation(mesh: Mesh, read_line: Read) -> None:
    await mesh.generate(ask(request_id="one", debug=True))
    line = read_line()
    assert list(line) == [*FIELDS_OF_A_REQUEST, "explanation"]
    assert line["explanation"]


@pytest.mark.parametrize("tenant", ['a "b" \\ c', "Ünïcode\u2028"])
async def test_names_are_whole_whatever_they_hold(mesh: Mesh, read_line: Read, tenant: str) -> None:
    await mesh.generate(ask(request_id="one"), key=mesh.keys.of(tenant))
    assert read_line()["tenant"] == tenant


async def test_an_answer_whose_verdict_is_unknown_ends_like_one_that_is_not_whole(mesh: Mesh, read_line: Read) -> None:
    frames = Chunk.FromString(b"".join(encode(GOOD))).frames
    # As a node of a later version may say.
    frames[-1].end.verdict = 99  # type: ignore[assignment]
    odd = node_status_chunk() + Chunk(frames=frames).SerializeToString()

    async def script(call: Call, _: object) -> None:
        await call.write(odd)

    for node in mesh.nodes.values():
        node.script = script
    answer = await mesh.generate(ask(request_id="one"))
    assert answer.error is None
    assert answer.documents == list(frames)
    line = read_line()
    assert (line["outcome"], line["verdict"], line["frames_sent"]) == ("OK", "VERDICT_INCOMPLETE", len(frames))
    assert not mesh.cache.stored


async def test_below_the_level_there_is_no_line(mesh: Mesh, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "ssop_router.reports")
    await mesh.generate(ask(request_id="one"))
    assert [record.message for record in caplog.records if record.name == "ssop_router.reports"] == []
