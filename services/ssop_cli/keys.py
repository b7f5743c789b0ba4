"""API keys, as they look in a terminal."""

import time
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from ssop.v1.keys_pb2 import KeyInfo


def state_of(key: KeyInfo, now_ms: int) -> str:
    """`active`, `rotating` (the secret before is good too), `expired` or `revoked`."""
    if key.revoked_at_ms:
        return "revoked"
    if key.expires_at_ms and key.expires_at_ms <= now_ms:
        return "expired"
    return "rotating" if key.old_secret_expires_at_ms > now_ms else "active"


def key_json(key: KeyInfo, now_ms: int) -> dict[str, Any]:
    """A key as JSON."""
    return {
        "id": key.key_id,
        "tenant": key.tenant,
        "scopes": list(key.scopes),
        "state": state_of(key, now_ms),
        "created_at_ms": key.created_at_ms,
        "expires_at_ms": key.expires_at_ms,
        "rotated_at_ms": key.rotated_at_ms,
        "old_secret_expires_at_ms": key.old_secret_expires_at_ms,
        "revoked_at_ms": key.revoked_at_ms,
        "hashed_at_ms": key.hashed_at_ms,
        "is_in_file": key.is_in_file,
    }


def keys_table(keys: Sequence[KeyInfo], now_ms: int) -> Table:
    """Keys, a line each."""
    table = Table("id", "tenant", "scopes", "state", "expires", "kept in", box=None, header_style="bold")
    for key in keys:
        table.add_row(
            key.key_id,
            key.tenant,
            ", ".join(key.scopes),
            state_of(key, now_ms),
            show_time(key.expires_at_ms) or "never",
            "the keys file" if key.is_in_file else "the mesh",
        )
    return table


def show_time(time_ms: int) -> str:
    """A time on this machine's clock; empty for 0."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(time_ms / 1000)) if time_ms else ""
