"""What `ssop up` does before it starts anything."""

import subprocess
from pathlib import Path

import pytest

from ssop_cli.failure import EXIT_SETTINGS, CommandError
from ssop_cli.places import Places, make_places
from ssop_cli.report import ChildReport, Report, start_ticks, write_report
from ssop_cli.up import child_environ, clear_run, end_orphans, read_settings


@pytest.fixture
def places(tmp_path: Path) -> Places:
    made = Places(tmp_path / "state", tmp_path / "run")
    make_places(made)
    return made


def leave_report(places: Places, pid: int, ticks: int) -> None:
    child = ChildReport("cache", "ready", "unix:/x", pid=pid, start_ticks=ticks)
    write_report(places.report, Report(1, "ready", "127.0.0.1:1", "/x", 0, [], [child]))


def test_a_child_that_outlived_its_supervisor_is_ended(places: Places) -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as orphan:
        leave_report(places, orphan.pid, start_ticks(orphan.pid))
        end_orphans(places)
        assert orphan.wait(5) < 0


def test_a_stranger_with_the_id_of_a_child_is_left_alone(places: Places) -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as stranger:
        leave_report(places, stranger.pid, start_ticks(stranger.pid) - 1)
        end_orphans(places)
        assert stranger.poll() is None
        stranger.kill()


def test_sockets_and_temporary_files_of_an_earlier_mesh_are_removed(places: Places) -> None:
    (places.run / "ssop-engine-x").mkdir()
    (places.run / "cache.sock").touch()
    clear_run(places)
    assert list(places.run.iterdir()) == []


def test_children_get_neither_the_key_nor_what_speaks_to_the_command(places: Places) -> None:
    environ = child_environ(
        {"SSOP_API_KEY": "k", "SSOP_STATE_DIR": "/x", "SSOP_CACHE_MAX_RPS": "5", "PATH": "/bin"}, places
    )
    assert "SSOP_API_KEY" not in environ
    assert "SSOP_STATE_DIR" not in environ
    assert (environ["SSOP_CACHE_MAX_RPS"], environ["PATH"]) == ("5", "/bin")


def test_a_settings_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("[mesh")
    with pytest.raises(CommandError) as failure:
        read_settings(tmp_path / "x.toml")
    assert failure.value.exit_code == EXIT_SETTINGS
