"""Reads a policy from a TOML file: a settings file of the mesh, or its `[router]` table alone."""

import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ssop_chassis.settings import SettingsError
from ssop_router.policy_settings import PolicySettings
from ssop_router.settings import RouterSettings


def read_policy(path: Path) -> PolicySettings:
    """The policy of a file; a router's other keys may stand there, and are not looked at. Raises SettingsError."""
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(f"{path} can't be read: {error}") from error
    table = document.get("router", document)
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: router is no table")
    return make_policy(table, str(path))


def make_policy(table: dict[str, Any], source: str) -> PolicySettings:
    """A policy of keys and values. Raises SettingsError, which lists every fault on a line of its own."""
    unknown = sorted(set(table) - set(RouterSettings.model_fields))
    if unknown:
        raise SettingsError("\n".join(f"{source}: unknown key {name}" for name in unknown))
    wanted = {name: value for name, value in table.items() if name in PolicySettings.model_fields}
    try:
        return PolicySettings.model_validate(wanted)
    except ValidationError as error:
        faults = [
            f"{source}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors(include_url=False)
        ]
        raise SettingsError("\n".join(faults)) from error
