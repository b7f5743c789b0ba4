"""A cascade on the whole mesh: the real model's own probabilities decide whose answer it is."""

import json
from collections.abc import Iterator
from importlib import resources

import pytest

from helpers.live_mesh import LiveMesh, run_mesh, wait_until
from ssop.v1 import mesh_pb2
from ssop_cli import data
from ssop_sdk import SsopClient

MIN_CONFIDENCE = 0.75
MOOD = {
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad"]}, "reason": {"type": "string", "maxLength": 40}},
    "required": ["mood", "reason"],
    "additionalProperties": False,
}
POSTS = [json.loads(line)["text"] for line in resources.files(data).joinpath("posts.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveMesh]:
    changes = {"router": {"cascade_fields": 1, "cascade_min_confidence": MIN_CONFIDENCE, "cascade_window_ms": 30_000}}
    with run_mesh(tmp_path_factory.mktemp("cascade"), changes) as running:
        yield running


@pytest.fixture
def caller(live: LiveMesh) -> Iterator[SsopClient]:
    with SsopClient(live.key, live.target, timeout_s=120) as made:
        yield made


def busy_slots(client: SsopClient) -> float:
    nodes = client.mesh_status().nodes
    return sum(model.slots_busy.value for node in nodes for model in node.status.models)


def test_confidence_of_the_first_field_decides(caller: SsopClient) -> None:
    escalated = []
    for post in POSTS[:12]:
        stream = caller.generate(f"Good or bad news for the maker? {post}", output_schema=MOOD, policy="cascade")
        assert stream.result()["mood"] in {"good", "bad"}
        decision, accounting = stream.decision, stream.accounting
        assert decision is not None
        assert accounting is not None
        is_escalated = decision.tier == mesh_pb2.TIER_FULL
        escalated.append(is_escalated)
        assert is_escalated == (decision.cascade_confidence < MIN_CONFIDENCE)
        assert decision.cascade_reason == (
            mesh_pb2.CASCADE_REASON_ESCALATED_UNSURE if is_escalated else mesh_pb2.CASCADE_REASON_KEPT_CONFIDENT
        )
        assert is_escalated == (accounting.discarded_usage.output_tokens > 0)
        assert not stream.logprobs
    assert {False, True} == set(escalated), "posts of which the model is sure, and others"
    wait_until(lambda: not busy_slots(caller), 60, "every slot is free")


def test_stored_answer_is_replayed(caller: SsopClient) -> None:
    prompt = f"Good or bad news? {POSTS[0]}"
    answers = [caller.generate(prompt, output_schema=MOOD, policy="cascade").result()]

    def is_replayed() -> bool:
        stream = caller.generate(prompt, output_schema=MOOD, policy="cascade")
        answers.append(stream.result())
        return stream.decision is not None and stream.decision.cache_reason == mesh_pb2.CACHE_REASON_HIT

    # Where the store gets no core for its bound, the answer that comes is stored instead.
    wait_until(is_replayed, 60, "an answer is replayed")
    assert answers[-1] == answers[-2]


def test_client_that_goes_away_in_the_window_frees_the_slots(caller: SsopClient) -> None:
    stream = caller.generate(
        "Write a long text.",
        output_schema={"type": "object", "properties": {"text": {"type": "string", "minLength": 1500}}},
        policy="cascade,no_cache",
    )
    wait_until(lambda: busy_slots(caller) > 0, 60, "lite generates")
    stream.cancel()
    wait_until(lambda: not busy_slots(caller), 60, "every slot is free")
