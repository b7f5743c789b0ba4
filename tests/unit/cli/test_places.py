"""Where a mesh keeps its things."""

import os
import stat
from pathlib import Path

import pytest

from ssop_cli.failure import CommandError
from ssop_cli.places import find_places, find_state_dir, make_private, write_private


@pytest.mark.parametrize(
    ("given", "environ", "expected"),
    [
        (Path("/a"), {"SSOP_STATE_DIR": "/b", "XDG_STATE_HOME": "/c"}, "/a"),
        (None, {"SSOP_STATE_DIR": "/b", "XDG_STATE_HOME": "/c"}, "/b"),
        (None, {"XDG_STATE_HOME": "/c"}, "/c/ssop"),
        (None, {}, str(Path.home() / ".local/state/ssop")),
    ],
)
def test_the_state_directory_is_found(given: Path | None, environ: dict[str, str], expected: str) -> None:
    assert str(find_state_dir(given, environ)) == expected


def test_sockets_fit_however_long_the_state_directory_is() -> None:
    places = find_places(Path("/" + "x" * 300), {})
    assert len(os.fsencode(places.socket("redis-cache"))) <= 107


def test_two_state_directories_have_two_places_for_sockets() -> None:
    assert find_places(Path("/a"), {}).run != find_places(Path("/b"), {}).run


def test_a_directory_is_made_private(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir(mode=0o755)
    make_private(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_link_is_not_taken_for_a_directory_of_ours(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(CommandError, match="not a directory"):
        make_private(tmp_path / "link")


def test_a_private_file_is_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_private(path, "1")
    write_private(path, "2")
    assert path.read_text() == "2"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
