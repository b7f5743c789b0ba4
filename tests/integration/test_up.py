"""`ssop up` with everything real: it starts, heals, refuses a second one, outlives its own death, and drains."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from helpers.child_environ import child_environ
from helpers.live_mesh import LiveMesh, models_cache, run_mesh, wait_until
from helpers.machine import stretched
from ssop_cli.lock import lock_holder
from ssop_cli.places import find_places
from ssop_cli.posts import read_schema
from ssop_cli.report import ChildReport, is_alive, read_report
from ssop_sdk import SsopClient, Unavailable

# Commands have three minutes each, and some tests run several.
pytestmark = pytest.mark.timeout(600)
CHILDREN = ("redis-cache", "redis-state", "cache", "rag", "inference", "router")
MOOD = {
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad"]}},
    "required": ["mood"],
    "additionalProperties": False,
}
LONG = {
    "type": "object",
    "properties": {"first": {"enum": ["a"]}, "text": {"type": "string", "minLength": 900, "maxLength": 1000}},
    "required": ["first", "text"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveMesh]:
    """A mesh of this module alone: its supervisor is stopped and killed here."""
    with run_mesh(tmp_path_factory.mktemp("up")) as running:
        yield running


def ssop(folder: Path, *arguments: str, timeout_s: float = 180) -> subprocess.CompletedProcess[str]:
    """Run a command on a state directory."""
    return subprocess.run(
        [sys.executable, "-m", "ssop_cli.main", *arguments, "--state-dir", str(folder)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env=child_environ(),
        stdin=subprocess.DEVNULL,
    )


def ssop_json(folder: Path, *arguments: str) -> Any:
    """The JSON that a command prints."""
    done = ssop(folder, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def are_gone(children: Sequence[ChildReport]) -> bool:
    """Whether none of the processes lives."""
    return not any(is_alive(child) for child in children)


def test_every_child_serves(own: LiveMesh) -> None:
    assert {child.name: child.state for child in own.report.children} == dict.fromkeys(CHILDREN, "ready")


def test_a_second_up_is_refused_and_says_who_runs(own: LiveMesh) -> None:
    done = ssop(own.places.state, "up", "--port", "0")
    assert done.returncode == 3
    assert str(own.process.pid) in done.stderr


def test_status_says_that_one_model_serves_both_tiers(own: LiveMesh) -> None:
    assert ssop_json(own.places.state, "status")["mesh"]["shared_model"] == "smollm2-135m-instruct"
    assert "serves both tiers" in ssop(own.places.state, "status").stdout


def test_ask_gives_an_answer_that_conforms(own: LiveMesh, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps(MOOD))
    answer = ssop_json(own.places.state, "ask", "The service was great.", "--schema", str(tmp_path / "s.json"))
    assert jsonschema_rs.is_valid(MOOD, answer["result"])
    assert answer["decision"]["is_shared_model"] is True


def test_ask_streams_text(own: LiveMesh) -> None:
    done = ssop(own.places.state, "ask", "Say hello.")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_a_refused_schema_names_the_keyword(own: LiveMesh, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps({"$ref": "https://example.com/schema.json"}))
    done = ssop(own.places.state, "schema", "check", str(tmp_path / "s.json"))
    assert done.returncode == 5
    assert "SCHEMA_REFUSED" in done.stderr


def test_schema_check_shows_the_field_table(own: LiveMesh, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps(read_schema(None)))
    found = ssop_json(own.places.state, "schema", "check", str(tmp_path / "s.json"))
    assert [node["key"] for node in found["nodes"][1:]] == list(read_schema(None)["properties"])
    assert found["backends"][0]["mode"] == "full"


def test_every_analysis_conforms(own: LiveMesh, tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    found = ssop_json(own.places.state, "analyze", "--limit", "5", "--out", str(out))
    assert found["summary"]["verdicts"] == {"ok": 5}
    assert found["summary"]["frames_lost"] == 0
    validator = jsonschema_rs.validator_for(read_schema(None))
    results = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [result["id"] for result in results] == [result["id"] for result in found["results"]]
    assert all(validator.is_valid(result["analysis"]) for result in results)


def test_a_second_run_comes_from_the_cache(own: LiveMesh) -> None:
    ssop_json(own.places.state, "analyze", "--limit", "2")
    assert ssop_json(own.places.state, "analyze", "--limit", "2")["summary"]["cache_hits"] == 2


@pytest.mark.parametrize("name", CHILDREN)
def test_a_killed_child_comes_back(own: LiveMesh, name: str) -> None:
    before = own.child(name).restarts
    own.wait_restarted(name, own.signal(name, signal.SIGKILL))
    children = {child["name"]: child for child in ssop_json(own.places.state, "status")["supervisor"]["children"]}
    assert children[name]["restarts"] == before + 1


def test_it_answers_after_all_that(own: LiveMesh) -> None:
    assert ssop_json(own.places.state, "ask", "Say hello.", "--policy", "no_cache")["verdict"] == "ok"


def test_the_only_node_serves_soon_after_it_is_ready_however_often_it_was_killed(own: LiveMesh) -> None:
    def is_served() -> bool:
        try:
            client.generate("Say hello.", output_schema=MOOD, policy="no_cache").result()
        except Unavailable:
            return False
        return True

    with SsopClient(own.key, own.target, timeout_s=30) as client:
        for _ in range(2):
            own.wait_restarted("inference", own.signal("inference", signal.SIGKILL))
            # A back-off would take 24 seconds and more; the machine that runs this may be slow.
            wait_until(is_served, stretched(10), "the node is back in rotation")


def test_down_lets_a_running_answer_finish(own: LiveMesh) -> None:
    has_field = threading.Event()
    answers: list[Any] = []

    def ask() -> None:
        with (
            SsopClient(own.key, own.target, timeout_s=60) as client,
            client.generate("Write.", output_schema=LONG, policy="no_cache") as stream,
        ):
            next(stream)
            has_field.set()
            answers.append(stream.result())

    asking = threading.Thread(target=ask)
    asking.start()
    assert has_field.wait(60)
    children = own.report.children
    done = ssop(own.places.state, "down")
    asking.join(60)
    assert done.returncode == 0, done.stderr
    assert own.process.wait(60) == 0
    assert are_gone(children)
    assert len(answers) == 1
    assert jsonschema_rs.is_valid(LONG, answers[0])


def test_a_killed_supervisor_leaves_no_orphans_and_the_next_up_works(tmp_path: Path) -> None:
    with run_mesh(tmp_path) as mesh:
        children = mesh.report.children
        mesh.process.kill()
        mesh.process.wait()
        wait_until(lambda: are_gone(children), 60, "no child outlives the supervisor")
    places = find_places(tmp_path, os.environ)
    assert lock_holder(places.lock) is None
    done = ssop(tmp_path, "up", "--detach", "--port", "0", "--models-dir", str(models_cache()))
    try:
        assert done.returncode == 0, done.stderr + done.stdout
        assert ssop_json(tmp_path, "ask", "Say hello.")["verdict"] == "ok"
        report = read_report(places.report)
        assert report is not None
    finally:
        down = ssop(tmp_path, "down")
    assert down.returncode == 0
    assert are_gone(report.children)
    assert not places.run.exists()


def test_ctrl_c_stops_everything(tmp_path: Path) -> None:
    with run_mesh(tmp_path) as mesh:
        children = mesh.report.children
        mesh.process.send_signal(signal.SIGINT)
        assert mesh.process.wait(60) == 0
        assert are_gone(children)


def test_unusable_settings_end_the_start_with_the_fault(tmp_path: Path) -> None:
    places = find_places(tmp_path, os.environ)
    config = tmp_path / "bad.toml"
    (tmp_path / "secret").write_text("00" * 32)
    config.write_text(
        f'[mesh]\nsecret_file = "{tmp_path}/secret"\n[router]\nlisten = ["127.0.0.1:0"]\nno_such_key = 1\n'
    )
    done = ssop(tmp_path, "up", "--config", str(config))
    assert done.returncode == 78
    assert "no_such_key" in done.stderr
    assert lock_holder(places.lock) is None


def test_a_busy_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        done = ssop(tmp_path, "up", "--port", str(busy.getsockname()[1]), "--models-dir", str(models_cache()))
    assert done.returncode == 78
    assert "--port" in done.stderr
