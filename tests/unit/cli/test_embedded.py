"""The default mesh: identity and settings."""

import stat
import tomllib
from pathlib import Path

import pytest

from ssop_chassis.api_keys import load_keys
from ssop_chassis.identity import SCOPES, Secrets, load_secret
from ssop_chassis.key_ring import KeyRing
from ssop_chassis.settings import load_settings
from ssop_cli import embedded
from ssop_cli.embedded import default_settings, dump_toml, free_port, make_identity, write_settings
from ssop_cli.failure import CommandError
from ssop_cli.places import Places, make_places
from ssop_cli.up import SECTIONS
from ssop_router.settings import RouterSettings


@pytest.fixture
def places(tmp_path: Path) -> Places:
    made = Places(tmp_path / "state", tmp_path / "run")
    make_places(made)
    return made


def keys_of(places: Places) -> KeyRing:
    return KeyRing(load_keys(places.keys), Secrets(load_secret(places.secret)))


def test_the_client_key_opens_the_mesh(places: Places) -> None:
    make_identity(places)
    key = places.client_key.read_text().strip()
    principal = keys_of(places).authenticate(f"Bearer {key}", now_ms=0)
    assert (principal.tenant, principal.scopes) == ("local", SCOPES)


def test_the_plain_key_is_in_one_file_only(places: Places) -> None:
    make_identity(places)
    key = places.client_key.read_text().strip()
    holders = [path for path in places.state.rglob("*") if path.is_file() and key in path.read_text()]
    assert holders == [places.client_key]


def test_what_is_secret_is_for_the_user_alone(places: Places) -> None:
    make_identity(places)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (places.client_key, places.secret, places.keys)}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(places.state.stat().st_mode) == 0o700


def test_a_second_start_keeps_secret_and_key(places: Places) -> None:
    make_identity(places)
    before = (places.secret.read_text(), places.client_key.read_text(), places.keys.read_text())
    make_identity(places)
    assert (places.secret.read_text(), places.client_key.read_text(), places.keys.read_text()) == before


def test_a_broken_secret_is_not_replaced(places: Places) -> None:
    places.secret.write_text("abcd\n")
    with pytest.raises(CommandError, match="secret"):
        make_identity(places)
    assert places.secret.read_text() == "abcd\n"


def test_every_service_takes_the_settings(places: Places) -> None:
    document = default_settings(places, port=7301, models_dir=places.state / "models", model="m")
    path = places.state / "ssop.toml"
    path.write_text(dump_toml(document))
    assert set(document) <= {"mesh", *SECTIONS}
    for name, kind in SECTIONS.items():
        if name in document:
            load_settings(kind, name, path=path, environ={})
    router = load_settings(RouterSettings, "router", path=path, environ={})
    assert [node.address for node in router.nodes] == [f"unix:{places.socket('inference')}"]


def test_inner_services_listen_on_sockets_only(places: Places) -> None:
    document = default_settings(places, port=7301, models_dir=places.state / "models", model="m")
    inner = [document[name]["listen"] for name in ("cache", "rag", "inference")]
    assert all(address.startswith("unix:") for addresses in inner for address in addresses)
    assert document["router"]["listen"] == ["127.0.0.1:7301"]


def test_a_second_model_takes_the_full_tier(places: Places) -> None:
    document = default_settings(places, port=1, models_dir=places.state, model="small", full_model="large")
    assert document["inference"]["models"] == [
        {"name": "small", "tiers": ["lite"]},
        {"name": "large", "tiers": ["full"]},
    ]


def test_the_written_file_is_the_document_with_every_default_as_comment(places: Places) -> None:
    document = default_settings(places, port=7301, models_dir=places.state / "models", model="m")
    text = write_settings(places, document, SECTIONS).read_text()
    assert tomllib.loads(text) == document
    assert "# rag_prefetch_ratio = 0.3" in text


def test_the_comments_are_settings_themselves(places: Places) -> None:
    document = default_settings(places, port=7301, models_dir=places.state / "models", model="m")
    lines = write_settings(places, document, SECTIONS).read_text().splitlines()
    path = places.state / "all.toml"
    path.write_text("\n".join(line.removeprefix("# ") if " = " in line else line for line in lines))
    for name, kind in SECTIONS.items():
        if name in document:
            assert load_settings(kind, name, path=path, environ={}) == load_settings(
                kind, name, path=places.settings, environ={}
            )


def test_a_free_port_is_none_that_a_connection_may_get_meanwhile() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = {free_port() for _ in range(20)}
    assert len(ports) > 1
    assert all(16_384 <= port < first for port in ports) or first <= 16_384


@pytest.mark.parametrize("said", ["", "none", "1024 65535"])
def test_where_the_kernel_says_nothing_or_gives_all_a_free_port_is_any(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "range").write_text(said)
    monkeypatch.setattr(embedded, "_GIVEN_PORTS", tmp_path / "range")
    assert 0 < free_port() < 65_536


def test_key_that_was_made_is_named(places: Places) -> None:
    embedded.make_identity(places)
    assert embedded.key_note(places) == f"an API key for it is in {places.client_key}"


@pytest.mark.parametrize("held", [b"", b"\xff\xfe", b"ssop_local_other"])
def test_key_file_that_was_damaged_is_said(held: bytes, places: Places) -> None:
    embedded.make_identity(places)
    places.client_key.write_bytes(held)
    assert "remove that file" in embedded.key_note(places)


def test_key_file_that_was_removed_is_made_anew(places: Places) -> None:
    embedded.make_identity(places)
    places.client_key.unlink()
    embedded.make_identity(places)
    assert "an API key" in embedded.key_note(places)
