"""`ssop keys`: what the keys file holds, without the keys."""

import tomllib
from pathlib import Path
from typing import Any

from ssop_cli.failure import EXIT_SETTINGS, CommandError


def list_keys(path: Path) -> list[dict[str, Any]]:
    """Id, tenant, scopes and end of each key. Raises CommandError."""
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8")).get("keys", [])
        return [
            {
                "id": entry["id"],
                "tenant": entry["tenant"],
                "scopes": list(entry["scopes"]),
                "expires_at_ms": int(entry.get("expires_at_ms", 0)),
            }
            for entry in entries
        ]
    except FileNotFoundError as error:
        raise CommandError(
            f"there is no keys file at {path}", advice="'ssop up' makes one", exit_code=EXIT_SETTINGS
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{path} can't be used: {error}", exit_code=EXIT_SETTINGS) from error
