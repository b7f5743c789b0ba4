"""The settings file and its overrides."""

from pathlib import Path

import pytest
from pydantic import Field

from ssop_chassis.settings import Settings, SettingsError, load_settings, show


class Sample(Settings):
    listen: str = "127.0.0.1:1"
    max_rps: int = Field(0, ge=0)
    nodes: tuple[str, ...] = ()
    models: dict[str, str] = Field(default_factory=dict)


def load(tmp_path: Path, text: str, **environ: str) -> Sample:
    path = tmp_path / "ssop.toml"
    path.write_text(text)
    return load_settings(Sample, "router", path=path, environ=environ)


def test_file_sets_values(tmp_path: Path) -> None:
    assert load(tmp_path, '[router]\nmax_rps = 5\n[router.models]\ngrok-3 = "full"').models == {"grok-3": "full"}


def test_environment_wins_over_the_file(tmp_path: Path) -> None:
    assert load(tmp_path, "[router]\nmax_rps = 5", SSOP_ROUTER_MAX_RPS="7").max_rps == 7


def test_lists_in_the_environment_are_json(tmp_path: Path) -> None:
    assert load(tmp_path, "", SSOP_ROUTER_NODES='["a", "b"]').nodes == ("a", "b")


def test_other_sections_and_foreign_variables_are_left_alone(tmp_path: Path) -> None:
    assert load(tmp_path, "[cache]\nx = 1", SSOP_CACHE_X="1", PATH="/bin") == Sample()


def test_message_lists_every_fault(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, "[ruter]\nx = 1\n[router]\nmax_rps = -1\nmax_rsp = 2", SSOP_NOSUCH_KEY="1")
    message = str(caught.value)
    assert all(text in message for text in ("[ruter]", "max_rps", "max_rsp", "SSOP_NOSUCH_KEY"))


@pytest.mark.parametrize("number", [2**53 + 1, 2**63, 10**40])
def test_number_that_compiled_code_cannot_keep_is_a_fault(tmp_path: Path, number: int) -> None:
    with pytest.raises(SettingsError, match=r"^\[router\] max_rps: .* must be at most 9007199254740992$"):
        load(tmp_path, f"[router]\nmax_rps = {number}")


@pytest.mark.parametrize(
    "content",
    [
        b"not toml",
        b"[router]\nlisten = '\xff'",
        b"[router]\nmax_rps = " + b"9" * 5_000,
        b"[router]\nnodes = " + b"[" * 9_999,
    ],
    ids=["words", "bytes", "digits", "depth"],
)
def test_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ssop.toml"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"ssop\.toml"):
        load_settings(Sample, "router", path=path, environ={})


def test_settings_cannot_be_changed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(tmp_path, "").max_rps = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:s3cret@db:6379/0", "redis://***@db:6379/0"),
        ("http://user:s3c@ret@proxy:3128", "http://***@proxy:3128"),
        ("http://host:8000/v1?mail=a@b", "http://host:8000/v1?mail=a@b"),
        ("unix:/run/a@b", "unix:/run/a@b"),
    ],
)
def test_log_of_settings_has_no_credentials_of_a_url(url: str, shown: str) -> None:
    settings = Sample(listen=url, nodes=(url,), models={"a": url})
    assert show(settings) == {"listen": shown, "max_rps": 0, "nodes": [shown], "models": {"a": shown}}


def test_credential_is_a_file_of_the_service_managers_folder(tmp_path: Path) -> None:
    text = '[router]\nlisten = "credential:mesh-secret"'
    assert load(tmp_path, text, CREDENTIALS_DIRECTORY="/run/credentials/x").listen == "/run/credentials/x/mesh-secret"


def test_credential_is_found_inside_tables_and_lists(tmp_path: Path) -> None:
    text = '[router]\nnodes = ["credential:a"]\n[router.models]\nm = "credential:b"'
    loaded = load(tmp_path, text, CREDENTIALS_DIRECTORY="/c")
    assert (loaded.nodes, loaded.models) == (("/c/a",), {"m": "/c/b"})


def test_credential_without_a_service_manager_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="CREDENTIALS_DIRECTORY"):
        load(tmp_path, '[router]\nlisten = "credential:mesh-secret"')


@pytest.mark.parametrize("value", ["credential:../shadow", "credential:", "credential:a/b"])
def test_what_is_no_credential_name_stays_as_it_is(tmp_path: Path, value: str) -> None:
    assert load(tmp_path, f'[router]\nlisten = "{value}"', CREDENTIALS_DIRECTORY="/c").listen == value
