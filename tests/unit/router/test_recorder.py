"""The decision log."""

import json
from pathlib import Path
from typing import Any

from helpers.classifiers import FixedClassifier
from helpers.eventually import eventually
from helpers.scripted_mesh import ask, failing, run_router
from ssop_router.core.decision import DecisionSettings
from ssop_router.core.record import read_record
from ssop_router.core.replay import Replayer
from ssop_router.settings import RouterSettings


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def settings(**values: Any) -> DecisionSettings:
    return RouterSettings.model_validate({"keys_file": "k", "nodes": ["n"], **values}).decision()


async def test_line_holds_what_a_replay_needs_and_no_text(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    async with run_router(classifier=FixedClassifier(0.9), classifier_timeout_us=10**7, decision_log=str(path)) as mesh:
        await mesh.generate(ask("Translate CANARY", conversation_id="CANARY"))
        await mesh.generate(ask("what is CANARY", conversation_id="CANARY"))
    first, second = lines(path)
    assert "CANARY" not in path.read_text()
    assert first["decision"]["rule"] == "short_instruction"
    assert first["complexity"]["score"] == 0.9
    assert first["result"]["served_by"] == "lite"
    assert first["result"]["output_tokens"] == 3
    assert first["request"]["conversation"] == second["request"]["conversation"] != ""
    assert path.stat().st_mode & 0o777 == 0o600


async def test_text_is_there_for_those_who_ask_for_it(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    async with run_router(decision_log=str(path), decision_log_text=True) as mesh:
        await mesh.generate(ask("翻译这个"))
    assert lines(path)[0]["request"]["text"] == "翻译这个"


async def test_failed_request_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    async with run_router(decision_log=str(path)) as mesh:
        for node in mesh.nodes.values():
            node.script = failing()
        await mesh.generate(ask("hard"))
    assert lines(path)[0]["result"]["outcome"] == "NO_BACKEND"


async def test_replay_under_the_same_policy_decides_the_same(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    model = FixedClassifier(0.9, {"easy": 0.1, "middling": 0.5})
    texts = ["easy", "middling", "hard", "Translate this", "prove it", "翻译一下", "easy", "hard"]
    quick: dict[str, Any] = {"classifier_timeout_us": 10**7, "score": {"threshold": 0.5}}
    async with run_router(classifier=model, decision_log=str(path), **quick) as mesh:
        for number, text in enumerate(texts):
            await mesh.generate(ask(text, conversation_id=f"c{number % 3}", policy="no_cache"))
    records = [read_record(line) for line in lines(path)]
    replayer = Replayer(settings(score={"threshold": 0.5}))
    assert [replayer.choose(record).tier for record in records] == [record.tier for record in records]
    assert replayer.undecidable == 0


async def test_log_is_set_aside_when_it_is_full(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    async with run_router(decision_log=str(path), decision_log_max_bytes=4096) as mesh:
        for number in range(8):
            await mesh.generate(ask(f"hard {number}"))
    aside = tmp_path / "log.jsonl.1"
    assert 0 < path.stat().st_size <= 4096
    assert 0 < aside.stat().st_size <= 4096
    assert lines(path)[-1]["request_id"] != lines(aside)[-1]["request_id"]


async def test_file_that_can_not_be_written_stops_nothing(tmp_path: Path) -> None:
    async with run_router(decision_log=str(tmp_path / "no" / "such" / "folder.jsonl")) as mesh:
        assert (await mesh.generate(ask("hard"))).error is None
        await eventually(
            lambda: (
                mesh.registry.get_sample_value("ssop_router_decisions_not_logged_total", {"reason": "unwritable"}) == 1
            )
        )
