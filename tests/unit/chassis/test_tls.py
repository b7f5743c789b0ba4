"""TLS between services: who is taken, and what happens when the files change."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from helpers.certificates import Files, make_authority, make_certificate
from ssop_chassis.call import Arity, Call
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.grpc_peer import GrpcPeer, connect
from ssop_chassis.grpc_server import start_server
from ssop_chassis.serving import open_process_tls, warn_of_plain_text
from ssop_chassis.settings import MeshSettings, SettingsError, TlsSettings
from ssop_chassis.tls import NO_TLS, Certificates, Tls, is_exposed, open_tls
from unit.chassis.transports import SECRET, SIGNED, echo, one_method

METHOD = "/test.T/M"
pytestmark = pytest.mark.needs("openssl")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Files]:
    folder = tmp_path_factory.mktemp("tls")
    authority, stranger = make_authority(folder), make_authority(folder, "stranger")
    return {
        "ca": authority,
        "one": make_certificate(folder, authority, "one"),
        "two": make_certificate(folder, authority, "two"),
        "foreign": make_certificate(folder, stranger, "foreign"),
        "stranger": stranger,
    }


def copy(files: Files, folder: Path) -> Files:
    own = Files(folder / "own.key", folder / "own.pem")
    own.replace(files)
    return own


def settings(made: dict[str, Files], own: Files, **changes: Any) -> TlsSettings:
    values = {"certificate_file": own.certificate, "key_file": own.key, "ca_file": made["ca"].certificate}
    return TlsSettings(**values | changes)


@asynccontextmanager
async def served(tls: Tls, handler: Any = echo) -> AsyncIterator[str]:
    server = await start_server(
        [one_method(Arity.UNARY, handler)], ["127.0.0.1:0"], authenticate=inner_authenticate(SECRET), tls=tls
    )
    try:
        yield server.addresses[0]
    finally:
        await server.stop(0)


async def call(peer: GrpcPeer, text: bytes = b"x") -> bytes:
    return await peer.unary(METHOD, text, timeout_s=10, metadata=SIGNED)


async def refusal(peer: GrpcPeer) -> str:
    try:
        with pytest.raises(MeshError) as caught:
            await peer.unary(METHOD, b"x", timeout_s=10, metadata=SIGNED)
        return caught.value.reason_name
    finally:
        await peer.close()


async def test_caller_with_a_certificate_of_the_mesh_is_served(made: dict[str, Files]) -> None:
    tls = open_tls(settings(made, made["one"]), "cache")
    async with served(tls) as address:
        peer = connect(address, tls=tls)
        assert await call(peer) == b"x"
        await peer.close()


@pytest.mark.parametrize("caller", ["none", "foreign", "plain"])
async def test_caller_without_a_certificate_of_the_mesh_is_refused(made: dict[str, Files], caller: str) -> None:
    heard = []

    async def listen(call_: Call) -> None:
        heard.append(call_.request)

    async with served(open_tls(settings(made, made["one"]), "cache"), listen) as address:
        table = {
            "none": TlsSettings(ca_file=made["ca"].certificate),
            "foreign": settings(made, made["foreign"]),
            "plain": TlsSettings(),
        }[caller]
        assert await refusal(connect(address, tls=open_tls(table, "router"))) == "BACKEND_FAILED"
    assert heard == []


async def test_service_that_is_not_mutual_takes_callers_without_a_certificate(made: dict[str, Files]) -> None:
    async with served(open_tls(settings(made, made["one"]), "router")) as address:
        peer = connect(address, tls=open_tls(TlsSettings(ca_file=made["ca"].certificate), "gateway"))
        assert await call(peer) == b"x"
        await peer.close()


async def test_service_with_a_foreign_certificate_is_not_called(made: dict[str, Files]) -> None:
    heard = []

    async def listen(call_: Call) -> None:
        heard.append(call_.request)

    foreign = settings(made, made["foreign"], ca_file=made["stranger"].certificate, mutual=[])
    async with served(open_tls(foreign, "cache"), listen) as address:
        assert await refusal(connect(address, tls=open_tls(settings(made, made["one"]), "router")))
    assert heard == []


async def test_service_with_another_name_is_not_called(made: dict[str, Files]) -> None:
    tls = open_tls(settings(made, made["one"]), "cache")
    async with served(tls) as address:
        assert await refusal(connect(address, tls=tls, server_name="elsewhere.test"))
        peer = connect(address, tls=tls, server_name="mesh.test")
        assert await call(peer) == b"x"
        await peer.close()


async def test_named_address_stays_in_plain_text(made: dict[str, Files]) -> None:
    tls = open_tls(settings(made, made["one"], plain=["127.0.0.1:0"]), "cache")
    async with served(tls) as address:
        peer = connect(address, tls=NO_TLS)
        assert await call(peer) == b"x"
        await peer.close()


def test_unix_socket_is_never_over_tls(made: dict[str, Files]) -> None:
    tls = open_tls(settings(made, made["one"]), "cache")
    assert not tls.is_listener_secure("unix:/run/s.sock")
    assert not tls.is_peer_secure("unix:/run/s.sock")


def skip_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ssop_chassis.tls._LOOK_AGAIN_S", 0.0)


async def serial_of(address: str, made: dict[str, Files]) -> bytes:
    """The certificate that a new connection is shown."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=str(made["ca"].certificate))
    context.load_cert_chain(made["one"].certificate, made["one"].key)
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    found = writer.get_extra_info("ssl_object").getpeercert(True)
    writer.close()
    return bytes(found)


async def test_new_connection_gets_the_new_certificate(
    made: dict[str, Files], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_a_look(monkeypatch)
    own = copy(made["one"], tmp_path)
    async with served(open_tls(settings(made, own), "cache")) as address:
        before = await serial_of(address, made)
        own.replace(made["two"])
        assert await serial_of(address, made) != before


async def test_authority_is_changed_while_both_are_believed(
    made: dict[str, Files], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_a_look(monkeypatch)
    own, trusted = copy(made["one"], tmp_path), tmp_path / "trusted.pem"

    def trust(*names: str) -> None:
        fresh = tmp_path / "fresh.pem"
        fresh.write_bytes(b"".join(made[name].certificate.read_bytes() for name in names))
        fresh.replace(trusted)

    trust("ca")
    tls = open_tls(settings(made, own, ca_file=trusted), "cache")
    async with served(tls) as address:
        peer = connect(address, tls=tls)
        steps = (partial(trust, "ca", "stranger"), partial(own.replace, made["foreign"]), partial(trust, "stranger"))
        for step in steps:
            assert await call(peer) == b"x"
            step()
            assert await call(peer) == b"x"
        # The authority before is believed no more.
        assert await refusal(connect(address, tls=open_tls(settings(made, made["one"]), "router")))
        await peer.close()


async def test_files_that_are_gone_leave_the_last_pair(
    made: dict[str, Files], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_a_look(monkeypatch)
    own, heard = copy(made["one"], tmp_path), list[bool]()
    certificates = Certificates(settings(made, own), on_reload=heard.append)
    own.certificate.unlink()
    for _ in range(3):
        assert certificates.current().version == 1
    assert heard == [False]
    own.replace(made["one"])
    assert certificates.current().chain == made["one"].certificate.read_bytes()


async def test_certificate_without_its_key_leaves_the_last_pair(
    made: dict[str, Files], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_a_look(monkeypatch)
    own, heard = copy(made["one"], tmp_path), list[bool]()
    certificates = Certificates(settings(made, own), on_reload=heard.append)
    own.replace_certificate(made["two"])
    assert certificates.current().version == 1
    assert certificates.current().version == 1
    own.replace_key(made["two"])
    assert certificates.current().version == 2
    assert certificates.current().chain == made["two"].certificate.read_bytes()
    assert heard == [False, True]


async def test_call_that_runs_survives_the_change_of_the_callers_certificate(
    made: dict[str, Files], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_a_look(monkeypatch)
    go_on = asyncio.Event()

    async def wait(call_: Call) -> None:
        if call_.request == b"slow":
            await go_on.wait()
        await call_.write(call_.request)

    own = copy(made["one"], tmp_path)
    tls = open_tls(settings(made, own), "cache")
    async with served(tls, wait) as address:
        peer = connect(address, tls=tls)
        slow = asyncio.ensure_future(call(peer, b"slow"))
        assert await call(peer, b"first") == b"first"
        own.replace(made["two"])
        assert await call(peer, b"second") == b"second"
        go_on.set()
        assert await slow == b"slow"
        await peer.close()


def test_looks_at_the_files_once_a_second(made: dict[str, Files], tmp_path: Path) -> None:
    own, now = copy(made["one"], tmp_path), [100.0]
    certificates = Certificates(settings(made, own), clock_s=lambda: now[0])
    own.replace(made["two"])
    now[0] = 100.9
    assert certificates.current().version == 1
    now[0] = 101.0
    assert certificates.current().version == 2


def test_end_of_the_certificate_is_known(made: dict[str, Files]) -> None:
    left_s = Certificates(settings(made, made["one"])).expires_at_s() - time.time()
    assert 80_000 < left_s < 90_000


def test_certificate_that_the_authority_does_not_vouch_for_has_no_end(made: dict[str, Files]) -> None:
    assert Certificates(settings(made, made["foreign"])).expires_at_s() == 0


def test_expiry_is_a_metric(made: dict[str, Files]) -> None:
    registry = CollectorRegistry()
    mesh = MeshSettings(secret_file=Path("unused"), tls=settings(made, made["one"]))
    open_process_tls(mesh, "cache", registry)
    assert registry.get_sample_value("ssop_tls_certificate_expiry_timestamp_seconds") == pytest.approx(
        time.time() + 86_400, abs=5_000
    )


def _missing(made: dict[str, Files], folder: Path) -> TlsSettings:
    return settings(made, Files(folder / "none.key", folder / "none.pem"))


def _mismatched(made: dict[str, Files], _: Path) -> TlsSettings:
    return settings(made, Files(made["one"].key, made["two"].certificate))


def _garbage(made: dict[str, Files], folder: Path) -> TlsSettings:
    (folder / "ca.pem").write_text("no certificate")
    return settings(made, made["one"], ca_file=folder / "ca.pem")


def _readable(made: dict[str, Files], folder: Path) -> TlsSettings:
    own = copy(made["one"], folder)
    own.key.chmod(0o644)
    return settings(made, own)


@pytest.mark.parametrize("spoil", [_missing, _mismatched, _garbage, _readable])
def test_files_that_can_not_be_used_stop_the_start(
    made: dict[str, Files], tmp_path: Path, spoil: Callable[[dict[str, Files], Path], TlsSettings]
) -> None:
    with pytest.raises(SettingsError, match=r"mesh\.tls"):
        open_tls(spoil(made, tmp_path), "cache")


@pytest.mark.parametrize(
    "values", [{"certificate_file": "a"}, {"key_file": "a"}, {"certificate_file": "a", "key_file": "b"}]
)
def test_half_a_table_is_refused(values: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        TlsSettings.model_validate(values)


@pytest.mark.parametrize(
    ("address", "expected"),
    [("unix:/s", False), ("127.0.0.1:1", False), ("[::1]:1", False), ("localhost:1", False), ("0.0.0.0:1", True),
     ("[::]:1", True), ("10.0.0.1:1", True), ("mesh.test:1", True)],
)  # fmt: skip
def test_address_that_others_reach_is_known(address: str, expected: bool) -> None:
    assert is_exposed(address) == expected


@pytest.mark.parametrize(("address", "is_said"), [("0.0.0.0:1", True), ("127.0.0.1:1", False), ("unix:/s", False)])
def test_plain_text_where_others_reach_it_is_a_warning(
    address: str, is_said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_plain_text([address], NO_TLS)
    assert ("unencrypted" in caplog.text) == is_said


def test_tls_where_others_reach_it_is_no_warning(made: dict[str, Files], caplog: pytest.LogCaptureFixture) -> None:
    warn_of_plain_text(["0.0.0.0:1"], open_tls(settings(made, made["one"]), "cache"))
    assert not caplog.text


async def test_peer_that_is_to_finish_waits_for_the_calls_that_run(made: dict[str, Files]) -> None:
    go_on = asyncio.Event()

    async def wait(call_: Call) -> None:
        await go_on.wait()
        await call_.write(call_.request)

    tls = open_tls(settings(made, made["one"]), "cache")
    async with served(tls, wait) as address:
        peer = connect(address, tls=tls)
        running = asyncio.ensure_future(call(peer, b"late"))
        await asyncio.sleep(0)  # the call begins
        finishing = asyncio.ensure_future(peer.finish())
        await asyncio.sleep(0)  # so does this
        assert not finishing.done()
        go_on.set()
        assert await running == b"late"
        await finishing
