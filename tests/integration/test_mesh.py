"""The whole mesh with its real parts: what a user gets when all is well, and when something is wrong."""

import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import grpc
import jsonschema_rs
import pydantic
import pytest
import redis

import ssop_sdk
from helpers.live_mesh import LiveMesh, wait_until
from helpers.machine import stretched
from ssop.v1 import cache_pb2, inference_pb2
from ssop.v1.mesh_pb2 import CacheReason
from ssop_chassis.identity import Principal, Signer
from ssop_chassis.serving import wall_clock_ms
from ssop_cli import data
from ssop_codec import Encoder, compile_schema
from ssop_opinion.prompting import post_schema
from ssop_sdk import SsopClient

SCHEMA: dict[str, Any] = dict(post_schema().document)
MOOD = {
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad"]}, "reason": {"type": "string", "maxLength": 40}},
    "required": ["mood", "reason"],
    "additionalProperties": False,
}
LONG = {
    "type": "object",
    "properties": {"first": {"enum": ["a", "b"]}, "text": {"type": "string", "minLength": 1500, "maxLength": 2000}},
    "required": ["first", "text"],
    "additionalProperties": False,
}


def metric(port: int, name: str) -> float:
    """The sum over all labels of a metric of a service."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def busy_slots(client: SsopClient) -> float:
    """Slots that generate, as the router last heard."""
    nodes = client.mesh_status().nodes
    return sum(model.slots_busy.value for node in nodes for model in node.status.models)


# --- the main job


# Forty answers of the real model.
@pytest.mark.timeout(600)
def test_shipped_posts_end_well_and_pass_another_validator(mesh: LiveMesh, tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    posts = resources.files(data).joinpath("posts.jsonl").read_text().splitlines()
    command = [sys.executable, "-m", "ssop_cli.main", "analyze", "--json", "--out", str(results)]
    environ = {**os.environ, "SSOP_STATE_DIR": str(mesh.places.state)}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in results.read_text().splitlines()]
    validator = jsonschema_rs.validator_for(SCHEMA)
    good = [record for record in records if record["verdict"] == "ok"]
    assert len(records) == len(posts)
    assert all(validator.is_valid(record["analysis"]) for record in good)
    assert all(record["reason"] for record in records if record["verdict"] != "ok")
    assert len(good) >= 0.95 * len(posts)


def test_first_field_arrives_while_the_model_still_writes(client: SsopClient, mesh: LiveMesh) -> None:
    stream = client.generate("Write a long text.", output_schema=LONG, policy="no_cache")
    first = next(stream)
    assert first.path == "/first"
    wait_until(lambda: busy_slots(client) > 0, 60, "the model still generates")
    stream.cancel()


def test_module_written_for_a_vendors_sdk_runs_with_its_import_changed(mesh: LiveMesh) -> None:
    client = ssop_sdk.GrokClient(api_key=mesh.key, streaming=True, output_schema=MOOD, target=mesh.target)
    result: dict[str, Any] = {}
    messages = [{"role": "user", "content": "The new phone is wonderful."}]
    for frame in client.chat.completions.create(model="grok-3", messages=messages, stream=True):
        if hasattr(frame, "delta") and frame.delta:
            result.update(frame.delta)
    jsonschema_rs.validate(MOOD, result)


class Opinion(pydantic.BaseModel):
    mood: Literal["good", "bad"]
    score: int = pydantic.Field(ge=-5, le=5)
    reason: str = pydantic.Field(max_length=30)
    product: str | None = pydantic.Field(max_length=20)


def test_pydantic_model_goes_in_and_comes_back(client: SsopClient) -> None:
    assert isinstance(client.generate("The screen broke.", output_schema=Opinion).result(), Opinion)


def test_plain_text_streams_in_parts(client: SsopClient) -> None:
    stream = client.generate("Say hello.", max_output_tokens=24)
    parts = [frame for frame in stream if frame.is_part]
    assert len(parts) > 1
    assert stream.text.startswith("".join(str(part.value) for part in parts))


def test_second_asking_is_a_replay_of_the_same_frames_and_bills_nothing(client: SsopClient) -> None:
    frames: list[list[bytes]] = []

    def is_replayed() -> bool:
        with client.generate("A fine day at the shop.", output_schema=MOOD) as stream:
            frames.append([bytes(frame.raw) for frame in stream if frame.seq])
        assert stream.decision is not None
        assert stream.accounting is not None
        is_hit = stream.decision.cache_reason == CacheReason.CACHE_REASON_HIT
        assert stream.accounting.is_billed != is_hit
        return is_hit

    assert not is_replayed()
    # Where the store gets no core for its bound, the answer that comes is stored instead.
    wait_until(is_replayed, 60, "an answer is replayed")
    assert frames[-1] == frames[-2]


def test_model_alone_on_both_tiers_is_said(client: SsopClient) -> None:
    stream = client.generate("Hi.", output_schema=MOOD)
    stream.result()
    assert stream.decision is not None
    assert stream.decision.is_shared_model


# --- what users do wrong


@pytest.mark.parametrize(
    ("options", "error", "detail"),
    [
        ({"output_schema": {"$ref": "https://example.com/s.json"}}, ssop_sdk.SchemaRefused, "$ref"),
        ({"output_schema": {"type": "objekt"}}, ssop_sdk.SchemaRefused, "type"),
        ({"output_schema": '{"type": '}, ssop_sdk.SchemaRefused, ""),
        ({"output_schema": {"unevaluatedItems": False}}, ssop_sdk.SchemaRefused, "unevaluatedItems"),
        ({"model": "no-such-model"}, ssop_sdk.ModelUnknown, "no-such-model"),
        ({"policy": "lite,full"}, ssop_sdk.PolicyInvalid, ""),
        ({"temperature": 9.0}, ssop_sdk.RequestInvalid, "temperature"),
    ],
    ids=["remote ref", "broken keyword", "broken JSON", "unsupported keyword", "model", "policy", "temperature"],
)
def test_wrong_request_is_refused_with_its_reason(
    client: SsopClient, options: dict[str, Any], error: type[ssop_sdk.SsopError], detail: str
) -> None:
    with pytest.raises(error) as caught:
        client.generate("x", **options).result()
    assert detail in str(caught.value) + str(caught.value.metadata)


def test_prompt_over_the_context_says_both_counts(client: SsopClient) -> None:
    with pytest.raises(ssop_sdk.ContextExceeded) as caught:
        client.generate("word " * 5000, output_schema=MOOD).result()
    assert caught.value.input_tokens > caught.value.limit_tokens > 0


@pytest.mark.parametrize("key", ["", "ssop_local_wrong", "sk-something"])
def test_wrong_key_is_refused(mesh: LiveMesh, key: str) -> None:
    with SsopClient(key or "x", mesh.target) as wrong, pytest.raises(ssop_sdk.AuthenticationError):
        wrong.generate("x").result()


@pytest.mark.parametrize(
    ("service", "method"),
    [
        ("inference", "/ssop.v1.InferenceService/Generate"),
        ("inference", "/ssop.v1.InferenceService/WarmUp"),
        ("cache", "/ssop.v1.CacheService/Admit"),
        ("cache", "/ssop.v1.CacheService/Lookup"),
        ("rag", "/ssop.v1.RagService/Retrieve"),
        ("rag", "/ssop.v1.RagService/ListCollections"),
    ],
)
@pytest.mark.parametrize("token", ["none", "client key", "forged"])
def test_inner_service_refuses_whom_no_edge_has_vouched_for(
    mesh: LiveMesh, service: str, method: str, token: str
) -> None:
    forged = Signer(b"f" * 32, "router", wall_clock_ms).metadata(Principal("other", "k", frozenset({"admin", "rag"})))
    metadata: dict[str, list[tuple[str, Any]]] = {
        "none": [],
        "client key": [("authorization", f"Bearer {mesh.key}")],
        "forged": list(forged.items()),
    }
    with mesh.channel(service) as channel, pytest.raises(grpc.RpcError) as caught:
        list(channel.unary_stream(method)(b"", timeout=30, metadata=metadata[token]))
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_tenants_do_not_see_each_others_answers(mesh: LiveMesh) -> None:
    key = os.urandom(32)
    encoder = Encoder(compile_schema(MOOD))
    encoder.feed(b'{"mood": "good", "reason": "sun"}')
    encoder.finish(finish_reason=1)
    answer = b"".join(encoder.drain(flush=True))
    admit = cache_pb2.AdmitRequest(request_id="r", cache_key=key, lease_ms=60_000)
    lease = mesh.call("cache", "CacheService/Admit", "a", admit, cache_pb2.AdmitResponse)
    commit = cache_pb2.CommitRequest(
        cache_key=key, fencing_token=lease.fencing_token, chunk=answer, is_complete=True, model="m"
    )
    mesh.call("cache", "CacheService/Commit", "a", commit, cache_pb2.CommitResponse)
    look = cache_pb2.LookupRequest(cache_key=key)
    assert (
        mesh.call("cache", "CacheService/Lookup", "a", look, cache_pb2.LookupResponse).outcome
        == cache_pb2.CACHE_OUTCOME_HIT
    )
    assert (
        mesh.call("cache", "CacheService/Lookup", "b", look, cache_pb2.LookupResponse).outcome
        == cache_pb2.CACHE_OUTCOME_MISS
    )


# --- what breaks


def test_killed_inference_goes_on_when_it_is_started_again_and_the_mesh_recovers(
    mesh: LiveMesh, client: SsopClient
) -> None:
    text = {"type": "string", "minLength": 200, "maxLength": 300}
    schema = {**LONG, "properties": {"first": {"enum": ["a", "b"]}, "text": text}}
    for _ in range(5):
        stream = client.generate("Write a text.", output_schema=schema, policy="no_cache", timeout_s=60)
        first = next(stream)
        pid = mesh.signal("inference", signal.SIGKILL)
        answer = stream.result()
        assert stream.status is not None
        causes = [entry.cause for entry in stream.status.continuations]
        if causes:
            break
        # The answer was whole before this process, which got no core, could kill anybody.
        mesh.wait_restarted("inference", pid)
    assert causes == ["BACKEND_FAILED"]
    assert answer["first"] == first.value
    assert 200 <= len(answer["text"]) <= 300

    def answers() -> bool:
        asked_s = time.monotonic()
        try:
            client.generate("x", output_schema=MOOD, policy="no_cache", timeout_s=10).result()
        except (ssop_sdk.Unavailable, ssop_sdk.DeadlineExceeded):
            assert time.monotonic() - asked_s < stretched(15)
            return False
        return True

    wait_until(answers, 60, "the mesh answers again")
    mesh.wait_restarted("inference", pid)


@pytest.mark.parametrize("child", ["redis-cache", "redis-state"])
def test_frozen_redis_costs_no_answer_and_is_flagged(mesh: LiveMesh, client: SsopClient, child: str) -> None:
    pid = mesh.signal(child, signal.SIGSTOP)
    try:
        stream = client.generate(f"Is {child} there?", output_schema=MOOD)
        stream.result()
        assert stream.status is not None
        if child == "redis-state":
            assert "cache" in stream.status.unavailable
    finally:
        os.kill(pid, signal.SIGCONT)

    def is_cached() -> bool:
        again = client.generate("Back again?", output_schema=MOOD)
        again.result()
        return again.decision is not None and again.decision.cache_reason == CacheReason.CACHE_REASON_HIT

    wait_until(is_cached, 60, "the cache is used again")


@pytest.mark.parametrize("child", ["redis-cache", "redis-state", "cache", "rag"])
def test_killed_dependency_costs_no_answer_and_comes_back(mesh: LiveMesh, client: SsopClient, child: str) -> None:
    pid = mesh.signal(child, signal.SIGKILL)
    client.generate(f"Without {child}.", output_schema=MOOD).result()
    mesh.wait_restarted(child, pid)


# --- clients that go away


def test_client_that_goes_away_frees_the_slot_long_before_the_answer_would_end(
    mesh: LiveMesh, client: SsopClient
) -> None:
    started_s = time.monotonic()
    client.generate("Write a long text.", output_schema=LONG, policy="no_cache").result()
    whole_ms = (time.monotonic() - started_s) * 1000
    events: list[tuple[float, float]] = []
    with mesh.channel("inference") as channel:
        rpc = channel.unary_stream("/ssop.v1.InferenceService/WatchStatus")
        watch = rpc(b"", timeout=60, metadata=mesh.sign("local"))

        def follow() -> None:
            try:
                for message in watch:
                    status = inference_pb2.WatchStatusResponse.FromString(message)
                    busy = sum(m.slots_busy.value for m in status.models)
                    age_s = max(m.slots_busy.age_ms for m in status.models) / 1000
                    events.append((time.monotonic() - age_s, busy))
            except grpc.RpcError:
                pass

        thread = threading.Thread(target=follow)
        thread.start()
        took_ms: list[float] = []
        for _ in range(5):
            stream = client.generate("Write a long text.", output_schema=LONG, policy="no_cache")
            next(stream)
            wait_until(lambda: bool(events) and events[-1][1] == 1, 60, "the slot is busy")
            gone_s = time.monotonic()
            stream.cancel()
            wait_until(lambda: events[-1][1] == 0, 60, "the slot is free")
            took_ms.append((events[-1][0] - gone_s) * 1000)
        watch.cancel()
        thread.join()
    took = sorted(round(ms) for ms in took_ms)
    print(f"slot free after a client went away: {took} ms; a whole answer: {whole_ms:.0f} ms")
    assert statistics.median(took_ms) < whole_ms / 20


def test_2000_cancelled_calls_leave_no_call_slot_or_lease(
    mesh: LiveMesh, client: SsopClient, ports: dict[str, int]
) -> None:
    def start_and_cancel(number: int) -> None:
        stream = client.generate(f"Cancelled call {number}.", output_schema=LONG, timeout_s=60)
        timer = threading.Timer(number % 7 * 0.02, stream.cancel)
        timer.start()
        try:
            stream.result()
        except ssop_sdk.SsopError:
            pass
        finally:
            timer.cancel()

    def is_at_rest() -> bool:
        calls = {name: metric(port, "ssop_calls_in_flight") for name, port in ports.items()}
        # The router's watch of the node's status is the one call that lasts.
        return calls["router"] == 0 and calls["cache"] == 0 and calls["inference"] <= 1 and busy_slots(client) == 0

    state = redis.Redis(unix_socket_path=str(mesh.places.socket("redis-state")))

    def open_leases() -> int:
        keys = [key for key in state.scan_iter(count=1000) if b":lease:" in key]
        return sum(b" open " in (state.get(key) or b"") for key in keys)

    with ThreadPoolExecutor(16) as pool:
        calls = [pool.submit(start_and_cancel, number) for number in range(2000)]
        wait_until(lambda: open_leases() > 0, 60, "generations hold leases")
        for call in calls:
            call.result()
    wait_until(is_at_rest, 60, "nothing is in flight")
    wait_until(lambda: open_leases() == 0, 60, "no lease is left")


def test_sixteen_askers_at_once_all_get_their_answers(client: SsopClient) -> None:
    prompts = [f"Customer {number} says the parcel is late." for number in range(16)]
    results = list(client.generate_many(prompts, batch_size=16, output_schema=MOOD, policy="no_cache"))
    validator = jsonschema_rs.validator_for(MOOD)
    assert all(validator.is_valid(result) for result in results)
