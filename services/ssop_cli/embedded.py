"""The default mesh of one machine: its secret, its one key, and its settings file."""

import json
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from ssop_chassis.api_keys import hash_key, make_key
from ssop_chassis.identity import MIN_SECRET_BYTES, SCOPES, load_secret
from ssop_cli.failure import EXIT_SETTINGS, CommandError
from ssop_cli.places import Places, write_private

DEFAULT_PORT: Final = 7300
HTTP_PORT_OFFSET: Final = 80
"""What the port of the HTTP edge is above the router's, unless it is given."""
DEFAULT_MODEL: Final = "smollm2-135m-instruct"
TENANT: Final = "local"
SILENCE_TIMEOUT_MS: Final = 60_000
STORE_TIMEOUT_MS: Final = 250
"""Longer than the services' own default: here the model takes the same cores as the stores that it waits for."""
_KEY_ID: Final = "local"
_LOWEST_PORT: Final = 16_384
_PORT_TRIES: Final = 64
_GIVEN_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""Where Linux says which ports connections get by themselves."""
_HEAD: Final = """\
# Written by `ssop up` at each start: changes here are lost.
# To run a mesh of your own, copy this file, change the copy, and start it with `ssop up --config COPY`.
"""


def make_identity(places: Places) -> None:
    """On the first start: a secret, and a key for tenant `local` whose plain form only `client.key` holds.

    Raises CommandError when a file is there and can't be used: a new secret would lock every key out.
    """
    if not places.secret.exists():
        write_private(places.secret, secrets.token_hex(MIN_SECRET_BYTES) + "\n")
    try:
        secret = load_secret(places.secret)
    except (OSError, ValueError) as error:
        raise CommandError(
            f"the mesh's secret can't be used: {error}",
            advice=f"restore {places.secret}, or remove the state directory",
            exit_code=EXIT_SETTINGS,
        ) from error
    if not places.client_key.exists() or not places.keys.exists():
        key = make_key(_KEY_ID)
        record = {
            "id": _KEY_ID,
            "tenant": TENANT,
            "scopes": sorted(SCOPES),
            "hmac": hash_key(key, secret).hex(),
        }
        write_private(places.client_key, key + "\n")
        write_private(places.keys, dump_toml({"keys": [record]}))


def key_note(places: Places) -> str:
    """Where the key for this user's commands is; or that the file does not hold the one that was made."""
    try:
        key = places.client_key.read_text(encoding="ascii").strip()
        is_known = hash_key(key, load_secret(places.secret)).hex() in places.keys.read_text(encoding="utf-8")
    except (OSError, ValueError):
        is_known = False
    if is_known:
        return f"an API key for it is in {places.client_key}"
    return (
        f"{places.client_key} does not hold the API key that was made for this mesh: where commands are refused, "
        "remove that file and start the mesh again"
    )


def default_settings(
    places: Places, *, port: int, models_dir: Path, model: str, full_model: str = "", http_port: int = 0
) -> dict[str, Any]:
    """The settings of the default mesh; inner services listen on unix sockets only. `port` is not 0.

    `model` serves the lite tier, and the full one too unless there is a `full_model` for it. Without an `http_port`
    there is no HTTP edge.
    """
    models = [{"name": model, "tiers": ["lite", "full"]}]
    if full_model and full_model != model:
        models = [{"name": model, "tiers": ["lite"]}, {"name": full_model, "tiers": ["full"]}]
    address = {name: f"unix:{places.socket(name)}" for name in ("cache", "rag", "inference")}
    gateway = {"listen": [f"127.0.0.1:{http_port}"], "router_address": f"127.0.0.1:{port}"}
    return {
        "mesh": {"secret_file": str(places.secret)},
        "cache": {
            "listen": [address["cache"]],
            "cache_url": f"unix://{places.socket('redis-cache')}",
            "state_url": f"unix://{places.socket('redis-state')}",
            "redis_timeout_ms": STORE_TIMEOUT_MS,
            "local_directory": str(places.state / "cache"),
        },
        "rag": {"listen": [address["rag"]], "directory": str(places.state / "rag")},
        "inference": {
            "node": "local",
            "listen": [address["inference"]],
            "models_dir": str(models_dir),
            "models": models,
        },
        "router": {
            "listen": [f"127.0.0.1:{port}"],
            "nodes": [{"address": address["inference"]}],
            "cache_address": address["cache"],
            "rag_address": address["rag"],
            "admission_timeout_ms": STORE_TIMEOUT_MS,
            "keys_file": str(places.keys),
            # The one node here is slow by nature, and a queue in front of it is no failure.
            "first_field_timeout_ms": SILENCE_TIMEOUT_MS,
            "stall_timeout_ms": SILENCE_TIMEOUT_MS,
        },
        **({"gateway": gateway} if http_port else {}),
    }


def write_settings(places: Places, document: Mapping[str, Any], kinds: Mapping[str, type[BaseModel]]) -> Path:
    """Write the settings file, with every other setting of its sections as a comment, and return its path."""
    lines = [_HEAD]
    for section, values in document.items():
        lines += [f"[{section}]", *_entries(values), *_comments(kinds[section], values), ""]
    write_private(places.settings, "\n".join(lines))
    return places.settings


def _comments(kind: type[BaseModel], given: Mapping[str, Any]) -> Iterator[str]:
    """The fields of a section that are not given, with what they mean and their default."""
    for name, field in kind.model_fields.items():
        if name in given or field.is_required():
            continue
        default = to_jsonable_python(field.get_default(call_default_factory=True))
        yield f"# {field.description or name}"
        yield f"# {name} =" if default is None else f"# {_key(name)} = {_value(default)}"


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now.

    It is below those that the kernel gives to connections by itself, so that none of them takes it before it is used.
    """
    first = _first_given_port()
    for _ in range(_PORT_TRIES if first > _LOWEST_PORT else 0):
        with socket.socket() as probe, suppress(OSError):
            port = _LOWEST_PORT + secrets.randbelow(first - _LOWEST_PORT)
            probe.bind(("127.0.0.1", port))
            return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        given: int = probe.getsockname()[1]
        return given


def _first_given_port() -> int:
    """The least port that the kernel gives to connections by itself; 0 where it does not say."""
    try:
        return int(_GIVEN_PORTS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def http_port(asked: int | None, router_port: int, *, is_any: bool) -> int:
    """The port of the HTTP edge: the one asked for, or one beside the router's. 0, or `is_any`: any free one."""
    if asked is None and not is_any:
        asked = router_port + HTTP_PORT_OFFSET
    return asked if asked and asked < 65_536 else free_port()


def check_port(port: int, option: str = "--port") -> None:
    """Raise CommandError, naming the option, when somebody listens on the port already."""
    with socket.socket() as probe:
        # As gRPC does, so that a port in TIME_WAIT is not taken for a busy one.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise CommandError(
                f"port {port} of 127.0.0.1 can't be used: {error.strerror}",
                advice=f"give another one with {option}; 0 takes any free one",
                exit_code=EXIT_SETTINGS,
                reason="PORT_IN_USE",
            ) from error


def dump_toml(document: Mapping[str, Any]) -> str:
    """TOML of tables of scalars, lists, tables and lists of tables; enough for what is written here."""
    lines: list[str] = []
    for name, value in document.items():
        if isinstance(value, Mapping):
            lines += [f"[{name}]", *_entries(value), ""]
        elif _is_tables(value):
            for table in value:
                lines += [f"[[{name}]]", *_entries(table), ""]
        else:
            lines += [f"{name} = {_value(value)}"]
    return "\n".join(lines)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _entries(table: Mapping[str, Any]) -> Sequence[str]:
    return [f"{_key(key)} = {_value(value)}" for key, value in table.items()]


def _key(key: str) -> str:
    is_bare = key.isascii() and key.replace("-", "_").replace("_", "a").isalnum()
    return key if is_bare else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        # TOML has no null: a key without a value is left out.
        items = [(key, item) for key, item in value.items() if item is not None]
        return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in items) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    # Strings of JSON are basic strings of TOML, once DEL, which JSON leaves as it is, is escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
