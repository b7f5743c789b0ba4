"""Strangers at a listener with TLS: handshakes that fail, lead to no HTTP/2 or never end; certificates that change."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from helpers.certificates import Files, make_authority, make_certificate
from helpers.eventually import eventually
from helpers.memory_wire import frames_of
from helpers.raw_http2 import GOAWAY, PREFACE, SETTINGS, frame
from ssop_chassis.call import Arity
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.settings import TlsSettings
from ssop_chassis.tls import Tls, open_tls
from ssop_chassis.transport import connector, server_starter
from unit.chassis.transports import SECRET, echo, one_method

pytestmark = [pytest.mark.needs("native_transport"), pytest.mark.needs("openssl")]
METHOD = "/test.T/M"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Files, Files]:
    folder = tmp_path_factory.mktemp("tls")
    authority = make_authority(folder)
    return authority, make_certificate(folder, authority, "one")


def opened(authority: Files, own: Files, *, is_mutual: bool = False) -> Tls:
    settings = TlsSettings(
        certificate_file=own.certificate, key_file=own.key, ca_file=authority.certificate, mutual=["cache"]
    )
    return open_tls(settings, "cache" if is_mutual else "router")


@asynccontextmanager
async def serving(tls: Tls) -> AsyncIterator[tuple[Any, int]]:
    """A server that is well at the end and has forgotten all strangers; and its port."""
    server: Any = await server_starter("native", "test")(
        [one_method(Arity.UNARY, echo, needs_principal=False)],
        ["127.0.0.1:0"],
        authenticate=inner_authenticate(SECRET),
        tls=tls,
    )
    peer = connector("native")(server.addresses[0], tls=tls)
    try:
        yield server, int(server.addresses[0].rpartition(":")[2])
        assert await peer.unary(METHOD, b"well", timeout_s=60) == b"well"
        await peer.close()
        await eventually(lambda: not server._connections)
    finally:
        await peer.close()
        await server.stop(0)


def client_context(authority: Files, own: Files, *protocols: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.certificate)
    context.load_cert_chain(own.certificate, own.key)
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


async def read_all(port: int, data: bytes, **options: Any) -> bytes:
    """What a server says until it hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
    writer.write(data)
    found = b""
    with suppress(OSError):
        found = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return found


@pytest.mark.parametrize("data", [PREFACE, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello"], ids=repr)
async def test_handshake_that_fails_leaves_nothing_behind(made: tuple[Files, Files], data: bytes) -> None:
    async with serving(opened(*made)) as (server, port):
        for _ in range(3):
            await read_all(port, data)
        assert not server._connections


async def test_handshake_without_a_certificate_leaves_nothing_behind(made: tuple[Files, Files]) -> None:
    context = ssl.create_default_context(cafile=made[0].certificate)
    context.set_alpn_protocols(["h2"])
    async with serving(opened(*made, is_mutual=True)) as (server, port):
        await read_all(port, PREFACE + frame(SETTINGS, 0, 0), ssl=context, server_hostname="localhost")
        await eventually(lambda: not server._connections)


async def test_handshake_that_never_ends_is_given_up(
    made: tuple[Files, Files], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ssop_transport.secure.HANDSHAKE_S", 0.1)
    async with serving(opened(*made)) as (_, port):
        assert await read_all(port, b"\x16") == b""


@pytest.mark.parametrize("protocols", [(), ("http/1.1",)])
async def test_client_that_does_not_ask_for_http2_is_hung_up_on(
    made: tuple[Files, Files], protocols: tuple[str, ...]
) -> None:
    context = client_context(*made, *protocols)
    async with serving(opened(*made)) as (_, port):
        data = PREFACE + frame(SETTINGS, 0, 0)
        assert await read_all(port, data, ssl=context, server_hostname="localhost") == b""


async def test_handshake_that_ends_while_the_server_does_is_told_to_go_elsewhere(made: tuple[Files, Files]) -> None:
    async with serving(opened(*made)) as (server, _):
        server._is_stopped = True
        port = int(server.addresses[0].rpartition(":")[2])
        context = client_context(*made, "h2")
        found = frames_of(await read_all(port, b"", ssl=context, server_hostname="localhost"))
        server._is_stopped = False
    # No stream was looked at, and none failed.
    assert [payload for kind, _, _, payload in found if kind == GOAWAY] == [bytes(8)]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_client_with_a_certificate_gets_no_ticket_to_come_back_without_it(
    made: tuple[Files, Files], version: ssl.TLSVersion
) -> None:
    context = client_context(*made, "h2")
    context.maximum_version = version
    async with serving(opened(*made, is_mutual=True)) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
        writer.write(PREFACE + frame(SETTINGS, 0, 0))
        assert await asyncio.wait_for(reader.readexactly(9), 60)
        assert not writer.get_extra_info("ssl_object").session.has_ticket
        writer.close()


async def test_files_that_do_not_fit_leave_the_last_certificate_in_place(
    made: tuple[Files, Files], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = Files(tmp_path / "own.key", tmp_path / "own.pem")
    own.replace(made[1])
    tls = opened(made[0], own)
    async with serving(tls) as (_, port):
        # They were fit when the chassis looked, and are replaced again before a handshake reads them.
        assert tls.certificates is not None
        found = tls.certificates.current()
        tls.certificates._pair = type(found)(found.version + 1, found.key, found.chain, found.authorities)
        own.certificate.write_bytes(b"half")
        context = client_context(*made, "h2")
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
        writer.write(PREFACE + frame(SETTINGS, 0, 0))
        assert await asyncio.wait_for(reader.readexactly(9), 60)
        writer.close()
        own.certificate.write_bytes(made[1].certificate.read_bytes())
    assert "certificates that can't be used" in caplog.text
