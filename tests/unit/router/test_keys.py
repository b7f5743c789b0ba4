"""Keys from a file that changes."""

from pathlib import Path

import pytest

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import hash_key, make_key
from ssop_router.keys import KeysFile

SECRET = bytes(range(32))


def entry(key_id: str, key: str) -> str:
    return f'[[keys]]\nid = "{key_id}"\ntenant = "acme"\nscopes = ["lite"]\nhmac = "{hash_key(key, SECRET)}"\n'


class Failures:
    count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def failures() -> Failures:
    return Failures()


def open_keys(path: Path, failures: Failures) -> KeysFile:
    return KeysFile(path, SECRET, now_ms=lambda: 0, on_failure=failures)


def is_known(keys: KeysFile, key: str) -> bool:
    try:
        keys.authenticate({"authorization": f"Bearer {key}"})
    except MeshError as error:
        return error.reason != ErrorReason.ERROR_REASON_KEY_INVALID
    return True


def test_revoked_key_ends_with_the_next_look(tmp_path: Path, failures: Failures) -> None:
    path, one, two = tmp_path / "keys.toml", make_key("a"), make_key("b")
    path.write_text(entry("a", one) + entry("b", two))
    keys = open_keys(path, failures)
    assert is_known(keys, one)
    path.write_text(entry("b", two))
    keys.refresh()
    assert not is_known(keys, one)
    assert is_known(keys, two)


def test_file_that_is_broken_leaves_the_last_keys_and_is_counted(tmp_path: Path, failures: Failures) -> None:
    path, key = tmp_path / "keys.toml", make_key("a")
    path.write_text(entry("a", key))
    keys = open_keys(path, failures)
    path.write_text("[[keys]]\nid = 3\n")
    keys.refresh()
    assert is_known(keys, key)
    assert failures.count == 1


def test_file_that_is_gone_leaves_the_last_keys(tmp_path: Path, failures: Failures) -> None:
    path, key = tmp_path / "keys.toml", make_key("a")
    path.write_text(entry("a", key))
    keys = open_keys(path, failures)
    path.unlink()
    keys.refresh()
    assert is_known(keys, key)
    assert failures.count == 1


def test_broken_file_that_is_mended_is_read(tmp_path: Path, failures: Failures) -> None:
    path, one, two = tmp_path / "keys.toml", make_key("a"), make_key("b")
    path.write_text(entry("a", one))
    keys = open_keys(path, failures)
    path.write_text("nonsense")
    keys.refresh()
    path.write_text(entry("b", two))
    keys.refresh()
    assert is_known(keys, two)


def test_missing_key_is_said(tmp_path: Path, failures: Failures) -> None:
    path = tmp_path / "keys.toml"
    path.write_text("")
    with pytest.raises(MeshError) as caught:
        open_keys(path, failures).authenticate({})
    assert caught.value.reason == ErrorReason.ERROR_REASON_KEY_MISSING
