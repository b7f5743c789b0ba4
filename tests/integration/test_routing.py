"""Routing on a real mesh whose signals die: requests are served, and metrics say what was missing."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helpers.live_mesh import LiveMesh, run_mesh, wait_until
from helpers.machine import stretched
from ssop_cli.embedded import dump_toml, free_port
from ssop_cli.places import find_places
from ssop_sdk import SsopClient, SsopError

STALE_MS = 1_500
SCHEMA = {
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad"]}},
    "required": ["mood"],
    "additionalProperties": False,
}


@dataclass
class TwoNodes:
    """A mesh whose router has a second node, a process of its own."""

    mesh: LiveMesh
    second: "subprocess.Popen[bytes]"
    address: str
    port: int
    log: Path

    def metric(self, name: str, *labels: str) -> float:
        """The sum of a router's metric over the series that hold all these labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as response:
            lines = response.read().decode().splitlines()
        return sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith((f"{name} ", f"{name}{{")) and all(label in line for label in labels)
        )


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    folder = tmp_path_factory.mktemp("routing")
    places = find_places(folder, os.environ)
    address = f"unix:{folder}/second.sock"
    port = free_port()
    log = folder / "decisions.jsonl"
    changes: dict[str, dict[str, Any]] = {
        "mesh": {"metrics_listen": {"router": f"127.0.0.1:{port}"}},
        "router": {
            "nodes": [f"unix:{places.socket('inference')}", address],
            "classifier_file": str(folder / "gone.onnx"),
            "status_stale_ms": STALE_MS,
            "first_field_timeout_ms": 3_000,
            "decision_log": str(log),
        },
    }
    with ExitStack() as stack:
        mesh = stack.enter_context(run_mesh(folder, changes))
        document = tomllib.loads((folder / "test.toml").read_text())
        document["inference"]["listen"] = [address]
        document["mesh"].pop("metrics_listen")
        (folder / "second.toml").write_text(dump_toml(document))
        command = [sys.executable, "-m", "ssop_inference.main", "--config", str(folder / "second.toml")]
        output = stack.enter_context((folder / "second.log").open("wb"))
        second = subprocess.Popen(command, stdout=output, stderr=output)

        def stop() -> None:
            second.send_signal(signal.SIGCONT)
            second.terminate()
            second.wait(60)

        stack.callback(stop)
        running = TwoNodes(mesh, second, address, port, log)
        with SsopClient(mesh.key, mesh.target, timeout_s=60) as client:
            wait_until(lambda: ready_nodes(client) == 2, 120, "both nodes are ready")
        yield running


def ready_nodes(client: SsopClient) -> int:
    return sum(bool(node.status.models) for node in client.mesh_status().nodes)


@pytest.fixture
def client(nodes: TwoNodes) -> Iterator[SsopClient]:
    with SsopClient(nodes.mesh.key, nodes.mesh.target, timeout_s=60) as made:
        yield made


def ask(client: SsopClient, text: str) -> None:
    assert client.generate(text, output_schema=SCHEMA, policy="no_cache").result()["mood"] in {"good", "bad"}


def test_missing_classifier_is_flagged_and_stops_nothing(nodes: TwoNodes, client: SsopClient) -> None:
    before = nodes.metric("ssop_router_abstentions_total", 'reason="missing"')

    def is_all_else_known() -> bool:
        with client.generate("how is the sea today?", output_schema=SCHEMA, policy="no_cache") as stream:
            stream.result()
            assert stream.decision is not None
            assert stream.decision.abstention == "missing"
            return list(stream.decision.weak_signals) == ["complexity:missing"]

    # The status of nodes that the machine keeps from saying it in time is named too.
    wait_until(is_all_else_known, 60, "the classifier is all that is missing")
    # Once for each decision: a request that the SDK had to repeat has two.
    assert nodes.metric("ssop_router_abstentions_total", 'reason="missing"') > before
    assert nodes.metric("ssop_router_classifier_loaded") == 0
    assert "routing without a classifier" in nodes.mesh.log("router")


def test_explanation_from_the_command_line(nodes: TwoNodes) -> None:
    environ = {**os.environ, "SSOP_STATE_DIR": str(nodes.mesh.places.state)}
    command = [sys.executable, "-m", "ssop_cli.main", "route", "explain", "Translate this", "--json"]

    def fit_nodes() -> bool:
        done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert (found["decision"]["tier"], found["decision"]["rule"]) == ("lite", "short_instruction")
        fit = [node for node in found["nodes"] if node["tier"] == "lite" and not node["filter"]]
        assert all(node["status_age_ms"] is not None for node in fit)
        return len(fit) == 2

    # A node that the machine keeps from saying its status in time is left out for a moment.
    wait_until(fit_nodes, 60, "both nodes are explained as fit")


def test_stopped_node_is_passed_by(nodes: TwoNodes, client: SsopClient) -> None:
    os.kill(nodes.second.pid, signal.SIGSTOP)
    try:
        started_s = time.monotonic()
        for number in range(3):
            # The first of them may still go to the stopped node, and fails over.
            ask(client, f"what is {number}?")
        assert time.monotonic() - started_s < stretched(30)

        def age_s() -> float:
            return nodes.metric("ssop_router_node_status_age_seconds", nodes.address)

        wait_until(lambda: age_s() > STALE_MS / 1000, 60, "the stopped node's status is old")
        started_s = time.monotonic()
        ask(client, "and what is it now?")
        assert time.monotonic() - started_s < stretched(5)
    finally:
        os.kill(nodes.second.pid, signal.SIGCONT)
    wait_until(lambda: age_s() < STALE_MS / 1000, 60, "the node says its status again")


def test_decision_log_replays(nodes: TwoNodes, client: SsopClient, tmp_path: Path) -> None:
    ask(client, "Translate this: CANARY")
    ask(client, "Explain why, step by step: CANARY")
    wait_until(lambda: nodes.log.exists() and "short_instruction" in nodes.log.read_text(), 60, "the log is written")
    wait_until(lambda: "multi_hop" in nodes.log.read_text(), 60, "all of it")
    assert "CANARY" not in nodes.log.read_text()
    policy = tmp_path / "p.toml"
    policy.write_text('classifier_file = ""\ndefault_tier = "lite"\nrules = []\n')
    command = [sys.executable, "-m", "ssop_cli.main", "route", "replay", str(nodes.log), "--policy", str(policy)]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["skipped_lines"] == 0
    assert found["after"]["tiers"] == {"lite": found["before"]["requests"]}
    assert found["after"]["cost"] < found["before"]["cost"]


def test_both_nodes_stopped_ends_in_a_typed_error_within_its_deadline(nodes: TwoNodes) -> None:
    first = nodes.mesh.child("inference").pid
    for pid in (first, nodes.second.pid):
        os.kill(pid, signal.SIGSTOP)
    try:
        started_s = time.monotonic()
        with SsopClient(nodes.mesh.key, nodes.mesh.target, timeout_s=8) as client, pytest.raises(SsopError):
            ask(client, "is anybody there?")
        assert time.monotonic() - started_s < stretched(12)
    finally:
        for pid in (first, nodes.second.pid):
            os.kill(pid, signal.SIGCONT)
    with SsopClient(nodes.mesh.key, nodes.mesh.target, timeout_s=60) as client:
        wait_until(lambda: ready_nodes(client) == 2, 60, "both nodes are back")
        ask(client, "is anybody there now?")
