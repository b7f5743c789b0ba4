"""Sockets to listen on, for addresses as gRPC reads them."""

import errno
import socket
from contextlib import ExitStack
from typing import Any, Final

BACKLOG: Final = 1_024
_ABSENT: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT})
_WILDCARDS: Final = frozenset({"", "::", "0.0.0.0"})  # noqa: S104 - they are asked for
_TRIES: Final = 16
"""How many ports are tried for one that is free on all addresses of a name."""
_MAX_PORT: Final = 65_535
Place = tuple[int, tuple[Any, ...]]
"""A family, and an address without its port: the host, and for IPv6 its flow and scope."""


def open_address(address: str) -> list[socket.socket]:
    """Bound sockets for `HOST:PORT`, see open_listeners. Raises OSError."""
    host, _, port = address.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > _MAX_PORT:
        raise OSError(f"can't listen on {address}: no port")
    return open_listeners(host.strip("[]"), int(port))


def open_listeners(host: str, port: int) -> list[socket.socket]:
    """Bound sockets for a host and a port, all with the same port, also where it is 0.

    A wildcard, `0.0.0.0` or `::`, is every address of the machine, of either family. A name is all of its addresses,
    but for those of a family that the machine lacks. Raises OSError where one is taken, or none is there.
    """
    if host in _WILDCARDS:
        try:
            return [_listen(socket.AF_INET6, ("::", port), is_dual=True)]
        except OSError as error:
            if error.errno not in _ABSENT:
                raise
            return [_listen(socket.AF_INET, ("0.0.0.0", port))]  # noqa: S104
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise OSError(f"can't listen on {host}: {error.strerror}") from error
    places: list[Place] = [(family, (address[0], *address[2:])) for family, _, _, _, address in found]
    for _ in range(_TRIES - 1):
        try:
            return _open_all(places, port)
        except OSError as error:
            if port or error.errno != errno.EADDRINUSE:
                raise
    return _open_all(places, port)


def _open_all(places: list[Place], port: int) -> list[socket.socket]:
    opened: list[socket.socket] = []
    absent: OSError | None = None
    with ExitStack() as undo:
        for family, (host, *rest) in places:
            try:
                one = _listen(family, (host, port, *rest))
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
                absent = error
                continue
            undo.callback(one.close)
            opened.append(one)
            port = one.getsockname()[1]
        if not opened:
            raise absent or OSError(errno.EADDRNOTAVAIL, "no address to listen on")
        undo.pop_all()
    return opened


def _listen(family: int, address: tuple[Any, ...], *, is_dual: bool = False) -> socket.socket:
    with ExitStack() as undo:
        made = undo.enter_context(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not is_dual))
        try:
            made.bind(address)
            made.listen(BACKLOG)
        except OSError as error:
            raise OSError(
                error.errno, f"can't listen on {address[0]} at port {address[1]}: {error.strerror}"
            ) from error
        undo.pop_all()
    return made


def peer_name(address: object) -> str:
    """A peer as gRPC names it: `ipv4:HOST:PORT`, `ipv6:%5BHOST%5D:PORT`, or `unix:`."""
    if not isinstance(address, tuple):
        return "unix:"
    host, port = address[0], address[1]
    if ":" not in host:
        return f"ipv4:{host}:{port}"
    mapped = host.lower().removeprefix("::ffff:")
    if "." in mapped and ":" not in mapped:
        return f"ipv4:{mapped}:{port}"
    return f"ipv6:%5B{host.replace('%', '%25')}%5D:{port}"
