"""The command line as users call it, where no mesh is needed."""

import errno
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text
from typer.main import get_command
from typer.testing import CliRunner

from ssop_cli.app import app

runner = CliRunner()


@pytest.fixture(autouse=True)
def _no_mesh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SSOP_TARGET", "SSOP_API_KEY", "SSOP_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SSOP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["status"], 4, "ssop up"),
        (["ask", "hello"], 4, "ssop up"),
        (["analyze"], 4, "ssop up"),
        (["analyze", "/no/such/file"], 2, "can't be read"),
        (["ask", "  "], 2, "empty"),
        (["ask", "x", "--schema", "/no/such/file"], 2, "can't be read"),
        (["ask", "x", "--target", "127.0.0.1:1"], 5, "SSOP_API_KEY"),
        (["keys", "list"], 4, "ssop up"),
        (["keys", "create", "--tenant", "a", "--expires", "soon", "--target", "127.0.0.1:1"], 5, "SSOP_API_KEY"),
        (["index", "list"], 4, "ssop up"),
        (["index", "add", "README.md"], 4, "ssop up"),
        (["index", "add"], 2, "Missing argument"),
        (["index", "add", "x", "--format", "docx"], 2, "docx"),
        (["index", "delete"], 2, "not both"),
        (["index", "delete", "x", "--all"], 2, "not both"),
        (["index", "snapshot", "save", "x", "--target", "127.0.0.1:1"], 5, "SSOP_API_KEY"),
        (["ask", "x", "--cite", "--schema", "/x"], 2, "exclude"),
        (["up", "--config", "/no/such/file"], 78, "can't be used"),
        (["up", "--config", "/x", "--port", "1"], 2, "exclude"),
        (["up", "--port", "70000"], 2, "65535"),
        (["models", "fetch", "nothing"], 1, "there is no model"),
        (["models", "add", "a b c", "/x.gguf"], 2, "no name"),
        (["models", "add", "x", "/no/such.gguf"], 1, "can't be added"),
        (["drill", "--state-dir", "/x"], 2, "--yes"),
        (["drill", "--state-dir", "/x", "--yes"], 4, "ssop up"),
        (["drill", "--fault", "earthquake"], 2, "kill-router"),
        (["drill", "--state-dir", "/x", "--yes", "--fault", "disk-full"], 2, "a mesh of the drill's own"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(arguments: list[str], code: int, words: str) -> None:
    result = runner.invoke(app, arguments)
    assert result.exit_code == code
    assert words in result.output
    assert "Traceback" not in result.output


def test_an_error_is_json_where_json_was_asked_for() -> None:
    result = runner.invoke(app, ["status", "--json"])
    assert json.loads(result.stdout)["error"]["reason"] == "NO_MESH"
    assert "ssop up" in result.stderr


def test_down_without_a_mesh_is_no_error() -> None:
    assert json.loads(runner.invoke(app, ["down", "--json"]).stdout) == {"was_running": False}


def test_a_fault_of_the_program_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("ssop_cli.terminal.find_state_dir", fail)
    result = runner.invoke(app, ["keys", "list"])
    assert result.exit_code == 1
    assert "a fault of this program: ZeroDivisionError" in result.output


def test_compiled_part_that_is_too_old_is_said_to_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ImportError("cannot import name 'x' from 'ssop_codec._y'", path="/x/_y.cpython-311.so")

    monkeypatch.setattr("ssop_cli.terminal.find_state_dir", fail)
    assert "make ext" in runner.invoke(app, ["keys", "list"]).output


def test_full_disk_is_no_fault_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/state/secret")

    monkeypatch.setattr("ssop_cli.terminal.find_state_dir", fail)
    result = runner.invoke(app, ["status", "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"]["message"] == "/state/secret: No space left on device"
    assert "make room" in result.stderr


@pytest.mark.parametrize(
    ("held", "fault"), [(None, "is not there"), (b" \n", "is empty"), (b"\xff\xfe", "holds no key")]
)
def test_key_file_that_holds_none_is_named_with_what_is_wrong(held: bytes | None, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "state" / "client.key"
    path.parent.mkdir()
    if held is not None:
        path.write_bytes(held)
    result = runner.invoke(app, ["ask", "x", "--target", "127.0.0.1:1"])
    assert result.exit_code == 5
    assert f"{path} {fault}" in result.output


def test_state_directory_that_is_a_file_runs_no_mesh(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    result = runner.invoke(app, ["status"])
    assert result.exit_code == 4
    assert "no mesh runs" in result.output


def test_start_in_the_background_that_fails_says_why_once(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[")
    result = runner.invoke(app, ["up", "--detach", "--config", str(tmp_path / "bad.toml")])
    assert result.exit_code == 78
    assert result.output.count("bad.toml can't be used") == 1


def test_an_interrupt_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ssop_cli.terminal.find_state_dir", interrupt)
    assert runner.invoke(app, ["keys", "list"]).exit_code == 130


@pytest.mark.parametrize("command", [[], ["up"], ["ask"], ["analyze"], ["schema", "check"], ["models", "add"]])
def test_help_is_there(command: list[str]) -> None:
    assert runner.invoke(app, [*command, "--help"]).exit_code == 0


def test_the_doctor_says_what_is_here_and_what_is_not(tmp_path: Path) -> None:
    result = runner.invoke(app, ["doctor", "--json", "--models-dir", str(tmp_path)])
    checks = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    assert checks["python"]["state"] == "ok"
    assert checks["model"]["state"] == "lacks"
    assert {"codec", "redis", "port", "disk", "memory", "gpu", "nginx", "systemd", "transport"} <= checks.keys()
    assert all(check["detail"] for check in checks.values())


def helps(command: Any, path: str) -> Iterator[tuple[str, str]]:
    """(place, text) of all that `--help` of a command and of those below it says."""
    yield path, command.help or ""
    for parameter in command.params:
        yield f"{path} {parameter.name}", getattr(parameter, "help", "") or ""
    for name, below in getattr(command, "commands", {}).items():
        yield from helps(below, f"{path} {name}")


def test_help_says_what_is_written_in_brackets() -> None:
    # Brackets that are not escaped are taken for markup, and vanish.
    said = list(helps(get_command(app), "ssop"))
    swallowed = [place for place, text in said if Text.from_markup(text).plain != text.replace("\\[", "[")]
    assert len(said) > 300
    assert not swallowed


def test_a_file_that_is_not_there_is_told_in_words() -> None:
    result = runner.invoke(app, ["ask", "x", "--schema", "/no/such/file"])
    assert "ssop: /no/such/file can't be read: No such file or directory" in result.output


def test_columns_of_the_doctor_are_apart(tmp_path: Path) -> None:
    lines = runner.invoke(app, ["doctor", "--models-dir", str(tmp_path)]).stdout.splitlines()
    assert all(re.match(r"\S+ {2,}(ok|lacks|bad) +\S", line) for line in lines)
