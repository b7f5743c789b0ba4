"""What the native server listens on."""

import asyncio
import errno
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ssop_transport.listening import open_address, open_listeners, peer_name

LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


def families() -> list[socket.AddressFamily]:
    """Those of this machine."""
    found = []
    for family, host in LOOPBACK.items():
        with socket.socket(family) as one:
            try:
                one.bind((host, 0))
            except OSError:
                continue
            found.append(family)
    return found


@pytest.fixture
def opened() -> Iterator[Callable[[str, int], list[socket.socket]]]:
    with ExitStack() as stack:

        def open_them(host: str, port: int) -> list[socket.socket]:
            return [stack.enter_context(one) for one in open_listeners(host, port)]

        yield open_them


def is_reached(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as one:
        return one.connect_ex((host, port)) == 0


@pytest.fixture
def two_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with two addresses."""

    def find(host: str, port: int, **_: Any) -> list[Any]:
        assert host == "two.test"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ("127.0.0.1", "127.0.0.2")]

    monkeypatch.setattr(socket, "getaddrinfo", find)


@pytest.mark.parametrize("host", ["::", "0.0.0.0", ""])
def test_wildcard_is_every_family_of_the_machine(opened: Callable[..., list[socket.socket]], host: str) -> None:
    (one,) = opened(host, 0)
    port = one.getsockname()[1]
    hosts = [LOOPBACK[family] for family in families()]
    assert hosts
    assert [host for host in hosts if not is_reached(host, port)] == []


@pytest.mark.parametrize("code", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_wildcard_of_a_machine_without_ipv6_is_ipv4(
    opened: Callable[..., list[socket.socket]], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    make = socket.socket

    def only_ipv4(family: int, *more: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(code, "no such family")
        return make(family, *more)

    monkeypatch.setattr(socket, "socket", only_ipv4)
    (one,) = opened("::", 0)
    assert one.family is socket.AF_INET


@pytest.mark.usefixtures("two_addresses")
def test_all_addresses_of_a_name_have_one_port(opened: Callable[..., list[socket.socket]]) -> None:
    found = [one.getsockname() for one in opened("two.test", 0)]
    assert [host for host, _ in found] == ["127.0.0.1", "127.0.0.2"]
    assert len({port for _, port in found}) == 1


@pytest.mark.usefixtures("two_addresses")
def test_name_with_one_address_taken_is_refused_and_holds_none(opened: Callable[..., list[socket.socket]]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.2", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.2 at port {port}: .* in use"):
            open_listeners("two.test", port)
        assert not is_reached("127.0.0.1", port)


@pytest.mark.usefixtures("two_addresses")
def test_address_that_the_machine_lacks_is_left_out(
    opened: Callable[..., list[socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    bind = socket.socket.bind

    def refuse(self: socket.socket, address: tuple[str, int]) -> None:
        if address[0] == "127.0.0.2":
            raise OSError(errno.EADDRNOTAVAIL, "not here")
        bind(self, address)

    monkeypatch.setattr(socket.socket, "bind", refuse)
    assert [one.getsockname()[0] for one in opened("two.test", 0)] == ["127.0.0.1"]


@pytest.mark.parametrize("host", ["127.0.0.1", "::"])
async def test_what_is_written_on_an_accepted_connection_leaves_at_once(
    opened: Callable[..., list[socket.socket]], host: str
) -> None:
    accepted: asyncio.Queue[int] = asyncio.Queue()

    def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found = writer.get_extra_info("socket")
        accepted.put_nowait(found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    (one,) = opened(host, 0)
    async with await asyncio.start_server(take, sock=one):
        _, writer = await asyncio.open_connection("127.0.0.1", one.getsockname()[1])
        async with asyncio.timeout(60):
            assert await accepted.get() == 1
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1", "a b:1", "300.0.0.1:1"]
)
def test_address_that_is_none_is_named(address: str) -> None:
    with pytest.raises(OSError, match="can't listen on"):
        open_address(address)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        (("127.0.0.1", 5), "ipv4:127.0.0.1:5"),
        (("::1", 5, 0, 0), "ipv6:%5B::1%5D:5"),
        (("::ffff:10.0.0.1", 5, 0, 0), "ipv4:10.0.0.1:5"),
        (("fe80::1%eth0", 5, 0, 2), "ipv6:%5Bfe80::1%25eth0%5D:5"),
        ("", "unix:"),
        (None, "unix:"),
    ],
)
def test_peers_are_named_as_grpc_names_them(address: object, name: str) -> None:
    assert peer_name(address) == name
