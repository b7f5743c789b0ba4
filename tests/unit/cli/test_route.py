"""`ssop route`: what is shown, and how it fails."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from helpers.decision_log import line
from ssop_cli.app import app

RUNNER = CliRunner()


def write_log(path: Path, *lines: Any) -> Path:
    path.write_text("\n".join(entry if isinstance(entry, str) else json.dumps(entry) for entry in lines))
    return path


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Any]:
    (tmp_path / "p.toml").write_text('classifier_file = ""\nrules = []\n[score]\nthreshold = 0.7\n')

    def call(*lines: Any, options: tuple[str, ...] = ("--json",), policy: str = "p.toml") -> Any:
        log = write_log(tmp_path / "log.jsonl", *lines)
        return RUNNER.invoke(app, ["route", "replay", str(log), "--policy", str(tmp_path / policy), *options])

    return call


def test_replay_as_json(run: Callable[..., Any]) -> None:
    result = run(line(0.6), line(0.9), line(0.2, tier="lite"))
    found = json.loads(result.stdout)
    assert (found["before"]["full_share"], found["after"]["full_share"]) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert found["after"]["cost"] < found["before"]["cost"]
    assert len(found["sweep"]) == 21


def test_replay_as_a_table(run: Callable[..., Any]) -> None:
    result = run(line(0.6), line(0.9), line(0.2, tier="lite"), options=())
    assert result.exit_code == 0
    assert "1 to lite" in result.stdout
    assert "█" in result.stdout


def test_bad_lines_are_left_out_and_named(run: Callable[..., Any]) -> None:
    result = run(line(0.6), "{", '"text"', json.dumps({"v": 9}), "[" * 100_000)
    found = json.loads(result.stdout)
    assert found["before"]["requests"] == 1
    assert found["skipped_lines"] == 4
    assert found["faults"][0].startswith("line 2 ")


def test_empty_log(run: Callable[..., Any]) -> None:
    result = run("")
    assert result.exit_code == 1
    assert "decision_log" in json.loads(result.stdout)["error"]["advice"]


def test_policy_with_an_unknown_key(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("nonsense = 1")
    result = run(line(), policy="bad.toml")
    assert result.exit_code == 78
    assert "unknown key nonsense" in json.loads(result.stdout)["error"]["message"]


def test_policy_of_a_whole_settings_file(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "ssop.toml").write_text(
        '[mesh]\nsecret_file = "x"\n[router]\nkeys_file = "k"\nnodes = ["n"]\nclassifier_file = ""\nrules = []\n'
        "[router.score]\nthreshold = 0.1\n"
    )
    assert json.loads(run(line(0.6), policy="ssop.toml").stdout)["after"]["tiers"] == {"full": 1}


def test_missing_log(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("")
    result = RUNNER.invoke(
        app, ["route", "replay", str(tmp_path / "none"), "--policy", str(tmp_path / "p.toml"), "--json"]
    )
    assert result.exit_code == 2


def test_scoring_anew_needs_a_classifier(run: Callable[..., Any]) -> None:
    assert run(line(0.6), options=("--json", "--rescore")).exit_code == 78


@pytest.mark.parametrize("name", ["plot.svg", "plot.png"])
def test_plot(run: Callable[..., Any], tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib", reason="the extra [plot]")
    result = run(line(0.6), line(0.2, tier="lite"), options=("--plot", str(tmp_path / name)))
    assert result.exit_code == 0, result.output
    assert (tmp_path / name).stat().st_size > 1000


def test_plot_of_another_kind_is_refused(run: Callable[..., Any]) -> None:
    assert run(line(0.6), options=("--json", "--plot", "x.exe")).exit_code == 2


def test_local_explanation_needs_no_mesh() -> None:
    result = RUNNER.invoke(app, ["route", "explain", "--local", "Translate this", "--json"])
    found = json.loads(result.stdout)
    assert (found["decision"]["tier"], found["decision"]["rule"]) == ("lite", "short_instruction")


def test_local_explanation_takes_a_policy_file(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('classifier_file = ""\ndefault_tier = "lite"\nrules = []\n')
    arguments = ["route", "explain", "--local", "--config", str(tmp_path / "p.toml"), "prove it", "--json"]
    found = json.loads(RUNNER.invoke(app, arguments).stdout)
    assert (found["decision"]["tier"], found["decision"]["tier_reason"]) == ("lite", "default")


def test_local_explanation_of_nonsense() -> None:
    result = RUNNER.invoke(app, ["route", "explain", "--local", "x", "--policy", "lite,full", "--json"])
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["reason"] == "POLICY_INVALID"
