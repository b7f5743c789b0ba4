"""The commands about API keys; they need a key with the scope `admin`."""

import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from ssop_cli.duration import parse_duration_ms
from ssop_cli.terminal import AsJson, StateDir, Target, Timeout, err, guard, mesh_client, out, print_json

if TYPE_CHECKING:
    from ssop.v1.keys_pb2 import KeyInfo

keys_app = typer.Typer(help="API keys. They hold on every router within seconds.", no_args_is_help=True)
KeyId = Annotated[str, typer.Argument(help="Id of the key: the second part of the plain key.")]


@keys_app.command("create")
def keys_create(  # noqa: PLR0917 - each is an option, given by name
    tenant: Annotated[str, typer.Option("--tenant", help="Whom the key speaks for.")],
    scopes: Annotated[
        str, typer.Option("--scopes", help="Of lite, full, rag, ssop, admin; joined by commas.")
    ] = "lite,full,rag,ssop",
    key_id: Annotated[str, typer.Option("--id", help="Its id, of a-z and 0-9; else one is made.")] = "",
    expires: Annotated[str, typer.Option("--expires", help="How long it is good: 90d, 12h. \\[for ever]")] = "",
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Timeout = 10.0,
    as_json: AsJson = False,
) -> None:
    """Make a key. Its plain text is shown once, on standard output, and stored nowhere."""
    with guard(as_json), mesh_client(state_dir, target, timeout) as client:
        names = [name.strip() for name in scopes.split(",") if name.strip()]
        # To the mesh 0 is for ever, which nobody means by 0d.
        lifetime_ms = parse_duration_ms(expires, least_ms=1)
        made = client.keys.create(tenant, names, key_id=key_id, lifetime_ms=lifetime_ms)
        _show_plain(made.key, made.plain_key, as_json)


@keys_app.command("list")
def keys_list(
    tenant: Annotated[str, typer.Option("--tenant", help="Only keys of this tenant.")] = "",
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Timeout = 10.0,
    as_json: AsJson = False,
) -> None:
    """List keys; never their secrets."""
    with guard(as_json), mesh_client(state_dir, target, timeout) as client:
        from ssop_cli.keys import key_json, keys_table  # noqa: PLC0415

        keys = client.keys.show(tenant)
        now_ms = _now_ms()
        if as_json:
            print_json({"keys": [key_json(key, now_ms) for key in keys]})
        else:
            out.print(keys_table(keys, now_ms))


@keys_app.command("rotate")
def keys_rotate(  # noqa: PLR0917 - each is an option, given by name
    key_id: KeyId,
    overlap: Annotated[str, typer.Option("--overlap", help="How long the old secret stays good; 0s: not.")] = "24h",
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Timeout = 10.0,
    as_json: AsJson = False,
) -> None:
    """Give a key a new secret. The old one is good until the overlap ends; with 0s every old one ends at once."""
    with guard(as_json), mesh_client(state_dir, target, timeout) as client:
        made = client.keys.rotate(key_id, overlap_ms=parse_duration_ms(overlap))
        _show_plain(made.key, made.plain_key, as_json)


@keys_app.command("revoke")
def keys_revoke(
    key_id: KeyId,
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Timeout = 10.0,
    as_json: AsJson = False,
) -> None:
    """End a key, its old secret included."""
    with guard(as_json), mesh_client(state_dir, target, timeout) as client:
        from ssop_cli.keys import key_json  # noqa: PLC0415

        key = client.keys.revoke(key_id)
        if as_json:
            print_json(key_json(key, _now_ms()))
        else:
            out.print(f"{key.key_id} of tenant {key.tenant} is revoked; every router refuses it within seconds")


def _show_plain(key: "KeyInfo", plain_key: str, as_json: bool) -> None:
    from ssop_cli.keys import key_json, show_time  # noqa: PLC0415

    if as_json:
        print_json(key_json(key, _now_ms()) | {"plain_key": plain_key})
        return
    until = f", until {show_time(key.expires_at_ms)}" if key.expires_at_ms else ""
    err.print(Text(f"key {key.key_id} of tenant {key.tenant}, scopes {', '.join(key.scopes)}{until}; shown only now:"))
    print(plain_key)


def _now_ms() -> int:
    return round(time.time() * 1000)
