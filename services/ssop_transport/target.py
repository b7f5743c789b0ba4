"""Addresses as users write them, and the endpoints that they stand for."""

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

RESOLVE_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Name:
    """One address: a path of a unix socket, or a host and a port."""

    text: str
    path: str = ""
    host: str = ""
    port: int = 0

    @property
    def is_literal(self) -> bool:
        """There is nothing to look up."""
        if self.path:
            return True
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one server is. `host` is an IP address."""

    name: Name
    host: str = ""

    @property
    def text(self) -> str:
        """For errors."""
        if self.name.path or self.host == self.name.host:
            return self.name.text
        return f"{self.name.text} ({self.host})"


def parse(address: str) -> tuple[Name, ...]:
    """The names of `unix:PATH`, `HOST:PORT`, or several of these with commas between. `dns:`, `ipv4:` and `ipv6:` may
    stand before them, as gRPC writes it. Raises ValueError."""
    if not address.startswith("unix:"):
        for scheme in ("dns:", "ipv4:", "ipv6:"):
            if address.startswith(scheme):
                address = address.removeprefix(scheme).removeprefix("///")
                break
    names = tuple(map(_parse_one, address.split(",")))
    return tuple(dict.fromkeys(names))


def _parse_one(text: str) -> Name:
    text = text.strip()
    if text.startswith("unix:"):
        return Name(text, path=text.removeprefix("unix:").removeprefix("//"))
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"{text}: an address is HOST:PORT or unix:PATH")
    return Name(text, host=host.strip("[]"), port=int(port))


async def resolve(names: Sequence[Name]) -> list[Endpoint]:
    """The endpoints, each once, in the order of the names. Raises OSError when no name has one."""
    found: dict[Endpoint, None] = {}
    failed: OSError | None = None
    for name in names:
        if name.is_literal:
            found[Endpoint(name, name.host)] = None
            continue
        try:
            for host in await _look_up(name):
                found[Endpoint(name, host)] = None
        except OSError as error:
            failed = error
    if not found:
        raise failed or OSError("there is no address")
    return list(found)


async def _look_up(name: Name) -> list[str]:
    try:
        async with asyncio.timeout(RESOLVE_TIMEOUT_S):
            infos = await _infos(name.host, name.port, type=socket.SOCK_STREAM)
    except (TimeoutError, UnicodeError) as error:
        raise OSError(f"{name.host} can't be looked up: {error or type(error).__name__}") from error
    return [str(info[4][0]) for info in infos]


async def _infos(host: str, port: int, **options: Any) -> list[Any]:
    return await asyncio.get_running_loop().getaddrinfo(host, port, **options)
