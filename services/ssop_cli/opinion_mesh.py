"""The opinion application on the embedded mesh: its folder, its one tenant, and its section of the settings."""

import json
import secrets
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ssop_cli.embedded import TENANT, dump_toml
from ssop_cli.places import Places, make_private, write_private

KEY_ID: Final = "local"
SOURCE: Final = "local"
_SECRET_BYTES: Final = 32


def opinion_folder(places: Places) -> Path:
    """Where records and tenants are kept."""
    return places.state / "opinion"


def settings_file(places: Places) -> Path:
    """The settings of runs on a mesh whose own settings have no section [opinion]."""
    return opinion_folder(places) / "ssop.toml"


def office_settings(places: Places) -> Path:
    """Where the application of a state directory is configured: in the mesh's settings, or in those of its runs."""
    try:
        has_section = "opinion" in tomllib.loads(places.settings.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        has_section = False
    return places.settings if has_section or not settings_file(places).exists() else settings_file(places)


def write_run_settings(places: Places, section: Mapping[str, Any]) -> None:
    """Keep the settings of a run, for the commands that read its records."""
    write_private(settings_file(places), dump_toml({"mesh": {"secret_file": str(places.secret)}, "opinion": section}))


def webhook_secret(places: Places) -> Path:
    """The secret that signs webhooks of the local tenant."""
    return opinion_folder(places) / "tenants" / "webhook.secret"


def make_tenant(places: Places, extra: Mapping[str, Any] | None = None) -> Path:
    """The folder of tenants, with tenant `local`, whose file is made where it is not there; `extra` goes into it."""
    folder = opinion_folder(places) / "tenants"
    for path in (opinion_folder(places), folder):
        make_private(path)
    secret = webhook_secret(places)
    if not secret.exists():
        write_private(secret, secrets.token_hex(_SECRET_BYTES) + "\n")
    tenant = folder / f"{TENANT}.json"
    if not tenant.exists() and not tenant.with_suffix(".toml").exists():
        key = {"id": KEY_ID, "secret_file": secret.name, "source": SOURCE}
        document = {"api_key_file": str(places.client_key), "webhook_keys": [key], **(extra or {})}
        write_private(tenant, json.dumps(document, indent=2) + "\n")
    return folder


def opinion_section(places: Places, *, router: str, listen: str = "127.0.0.1:0", **values: Any) -> dict[str, Any]:
    """The section [opinion] for the mesh of a state directory."""
    return {
        "listen": [listen],
        "router_address": router,
        "state_directory": str(opinion_folder(places)),
        "tenants_directory": str(opinion_folder(places) / "tenants"),
        "stream_url": f"unix://{places.socket('redis-state')}",
        **values,
    }
