"""Addresses as they are written."""

from typing import Any

import pytest

pytestmark = pytest.mark.needs("native_transport")
target = pytest.importorskip("ssop_transport.target")


@pytest.mark.parametrize(
    ("address", "hosts"),
    [
        ("127.0.0.1:7300", [("127.0.0.1", 7300)]),
        ("[::1]:7300", [("::1", 7300)]),
        ("mesh.test:1, 10.0.0.2:2", [("mesh.test", 1), ("10.0.0.2", 2)]),
        ("dns:///mesh.test:7300", [("mesh.test", 7300)]),
        ("ipv4:10.0.0.1:1,10.0.0.2:2", [("10.0.0.1", 1), ("10.0.0.2", 2)]),
        ("ipv6:[::1]:1", [("::1", 1)]),
        ("a:1,a:1", [("a", 1)]),
    ],
)
def test_hosts_are_read(address: str, hosts: list[tuple[str, int]]) -> None:
    assert [(name.host, name.port) for name in target.parse(address)] == hosts


@pytest.mark.parametrize("address", ["unix:/run/a.sock", "unix:///run/a.sock"])
def test_paths_are_read(address: str) -> None:
    assert [name.path for name in target.parse(address)] == ["/run/a.sock"]


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:0", "host:65536", "host:x", "a:1,", "a:1,,b:2"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        target.parse(address)


async def test_name_without_an_address_is_an_os_error() -> None:
    with pytest.raises(OSError, match=r"\S"):
        await target.resolve(target.parse("no-such-host.invalid:1"))


async def test_name_that_can_not_be_looked_up_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def infos(host: str, port: int, **_: Any) -> list[Any]:
        if host == "gone.test":
            raise OSError("no such name")
        return [(2, 1, 6, "", ("10.0.0.2", port))]

    monkeypatch.setattr(target, "_infos", infos)
    found = await target.resolve(target.parse("gone.test:1,mesh.test:2"))
    assert [endpoint.host for endpoint in found] == ["10.0.0.2"]


async def test_addresses_are_found_without_a_look_up() -> None:
    found = await target.resolve(target.parse("127.0.0.1:1,unix:/a,[::1]:2"))
    assert [endpoint.host for endpoint in found] == ["127.0.0.1", "", "::1"]
