"""Which processes a settings file asks for, in the order of their start. Pure: the file comes as a mapping."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlencode

from pydantic import ValidationError

from ssop_cache.redis_process import redis_command
from ssop_chassis.settings import TlsSettings
from ssop_chassis.tls import Tls
from ssop_cli.failure import EXIT_SETTINGS, CommandError
from ssop_cli.places import Places

Role = Literal["cache", "state"]
_MEMORY_MIB: Final[Mapping[Role, int]] = {"cache": 64, "state": 512}
"""Bounds, not what they take: a state of 512 MiB holds five minutes of some 6,000 requests a second."""
_DEFAULT_LISTEN: Final = {
    "cache": "127.0.0.1:7340",
    "rag": "127.0.0.1:7330",
    "inference": "127.0.0.1:7310",
    "router": "127.0.0.1:7300",
    "gateway": "127.0.0.1:7380",
    "opinion": "127.0.0.1:7390",
}
_HTTP: Final = frozenset({"gateway", "opinion"})
_STATE_WITH_POSTS_MIB: Final = 704
"""The posts that wait are in the state, and their bound is 64 MiB."""


@dataclass(frozen=True, slots=True)
class ChildPlan:
    """A process to run. `address` is where it is asked for its health; `after` names what must have been ready."""

    name: str
    command: Sequence[str]
    address: str
    folder: Path
    after: tuple[str, ...] = ()
    is_redis: bool = False
    is_http: bool = False
    tls: TlsSettings = field(default_factory=TlsSettings)

    @property
    def is_unix(self) -> bool:
        """It listens on a unix socket."""
        return self.address.startswith("unix:")

    @property
    def socket(self) -> str:
        """Path of its unix socket."""
        return self.address.removeprefix("unix:").removeprefix("//")


def plan_children(document: Mapping[str, Any], settings: Path, places: Places, redis_binary: Path) -> list[ChildPlan]:
    """The children for a settings document, each after what it depends on.

    A service runs if the file has its section. A Redis runs if the section `cache` names it by `unix://`; one that is
    named by host runs elsewhere already. Raises CommandError when there is no router.
    """
    if "router" not in document:
        raise CommandError(f"{settings} has no section [router]", advice="a mesh needs one", exit_code=EXIT_SETTINGS)
    plans: list[ChildPlan] = []
    if "cache" in document:
        roles: tuple[Role, ...] = ("cache", "state")
        for role in roles:
            url = str(document["cache"].get(f"{role}_url", ""))
            if url.startswith("unix://"):
                memory_mib = _MEMORY_MIB[role]
                if role == "state" and "opinion" in document:
                    memory_mib = _STATE_WITH_POSTS_MIB
                plans.append(_plan_redis(role, url, places, redis_binary, memory_mib))
    redis = tuple(plan.name for plan in plans)
    plans += [
        _plan_service(name, document, settings, places, redis if name == "cache" else ())
        for name in ("cache", "rag", "inference")
        if name in document
    ]
    others = tuple(plan.name for plan in plans)
    plans.append(_plan_service("router", document, settings, places, others))
    plans += [
        _plan_service(name, document, settings, places, (*others, "router"))
        for name in ("gateway", "opinion")
        if name in document
    ]
    return plans


def _plan_redis(role: Role, url: str, places: Places, binary: Path, memory_mib: int) -> ChildPlan:
    name = f"redis-{role}"
    socket = Path(url.removeprefix("unix://").partition("?")[0])
    folder = places.state / name
    try:
        command = redis_command(binary, role, folder, socket, memory_mib)
    except ValueError as error:
        raise CommandError(str(error), exit_code=EXIT_SETTINGS) from error
    return ChildPlan(name, command, f"unix:{socket}", folder, is_redis=True)


def _plan_service(
    name: str, document: Mapping[str, Any], settings: Path, places: Places, after: tuple[str, ...]
) -> ChildPlan:
    command = [sys.executable, "-m", f"ssop_{name}.main", "--config", str(settings)]
    listen = document[name].get("listen") or [_DEFAULT_LISTEN[name]]
    return ChildPlan(
        name, command, str(listen[0]), places.state, after, is_http=name in _HTTP, tls=_read_tls(document, settings)
    )


def _read_tls(document: Mapping[str, Any], settings: Path) -> TlsSettings:
    try:
        return TlsSettings.model_validate(document.get("mesh", {}).get("tls", {}))
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]["msg"]
        raise CommandError(f"{settings}: [mesh.tls] {fault}", exit_code=EXIT_SETTINGS) from error


def router_target(plans: Sequence[ChildPlan]) -> str:
    """Where clients find the router: its address, with a host that they can connect to; with what TLS needs."""
    plan = next(plan for plan in plans if plan.name == "router")
    address, tls = reachable(plan.address), plan.tls
    if not Tls(tls, "router", None).is_listener_secure(plan.address):
        return address
    is_mutual = "router" in tls.mutual
    options = {
        "ca": tls.ca_file,
        "cert": tls.certificate_file if is_mutual else None,
        "key": tls.key_file if is_mutual else None,
        "name": tls.server_name,
    }
    query = urlencode({name: str(value) for name, value in options.items() if value}, safe="/")
    return f"ssops://{address}" + (f"?{query}" if query else "")


def gateway_url(plans: Sequence[ChildPlan]) -> str:
    """Where the HTTP edge is found; empty without one, or where it listens on a socket only."""
    address = next((plan.address for plan in plans if plan.name == "gateway" and not plan.is_unix), "")
    return f"http://{reachable(address)}" if address else ""


def reachable(address: str) -> str:
    """An address that is listened on, with a host that can be connected to."""
    host, _, port = address.rpartition(":")
    if address.startswith("unix:") or host not in {"0.0.0.0", "[::]"}:  # noqa: S104 - compared, not bound
        return address
    return f"{'127.0.0.1' if host == '0.0.0.0' else '[::1]'}:{port}"  # noqa: S104


def shared_model(document: Mapping[str, Any]) -> str:
    """Name of the model that serves both tiers alone, or empty."""
    models = document.get("inference", {}).get("models", [])
    nodes = document.get("router", {}).get("nodes", [])
    is_alone = len(nodes) == 1 and len(models) == 1
    if is_alone and {"lite", "full"} <= set(models[0].get("tiers", ())):
        return str(models[0].get("name", ""))
    return ""
