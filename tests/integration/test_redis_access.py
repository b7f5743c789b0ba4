"""What opens Redis: users and passwords from files, and TLS."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.cache_service import LEASE, running_cache
from helpers.redis_groups import HOST, ClusterGroup, TcpServer, wait_until
from helpers.redis_server import BINARIES, RedisServer
from ssop_cli.embedded import free_port

KEY = b"\1" * 32
RULES = ("on", ">s3cret", "~*", "&*", "+@all")


async def test_cluster_is_opened_as_a_user_whose_password_is_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cret\n")
    with ClusterGroup(masters=1, has_replicas=False) as group, RedisServer("cache") as cache:
        (server,) = group.servers
        server.ask("ACL", "SETUSER", "mesh", *RULES)
        opened = {"state_username": "mesh", "state_password_file": tmp_path / "password"}
        async with running_cache(None, cache, **group.settings, **opened) as under_test:
            assert (await under_test.client().admit("a", KEY)).outcome == LEASE
            clients = server.ask("CLIENT", "LIST")
    assert b"user=mesh" in clients


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A key, and a certificate for the loopback that it signed itself."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-subj", "/CN=redis", "-addext", f"subjectAltName=IP:{HOST}", "-days", "1"]
    subprocess.run([*words, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return key, certificate


@dataclass(frozen=True)
class Secure:
    """A certificate, the port that takes TLS with it, and the options of a server that does."""

    certificate: Path
    port: int
    options: tuple[str, ...]


@pytest.fixture
def secure(tmp_path: Path) -> Secure:
    key, certificate = make_certificate(tmp_path)
    port = free_port()
    files = ("--tls-cert-file", str(certificate), "--tls-key-file", str(key), "--tls-ca-cert-file", str(certificate))
    return Secure(certificate, port, ("--tls-port", str(port), "--tls-auth-clients", "no", *files))


async def is_opened(**told: object) -> None:
    with RedisServer("cache") as cache:
        async with running_cache(None, cache, **told) as under_test:
            assert (await under_test.client().admit("a", KEY)).outcome == LEASE


@pytest.mark.needs("openssl")
@pytest.mark.needs("redis_7_0")
async def test_rediss_url_is_opened_with_the_authority_of_the_settings(tmp_path: Path, secure: Secure) -> None:
    server = TcpServer(tmp_path, BINARIES["redis_7_0"](), "state", *secure.options)
    server.start()
    try:
        wait_until(server.is_serving, "the server")
        await is_opened(state_url=f"rediss://{HOST}:{secure.port}", redis_ca_file=secure.certificate)
    finally:
        server.end()


@pytest.mark.needs("openssl")
@pytest.mark.needs("redis_7_0")
async def test_cluster_is_opened_over_tls(secure: Secure) -> None:
    options = (*secure.options, "--tls-cluster", "yes")
    with ClusterGroup("redis_7_0", masters=1, has_replicas=False, options=options):
        told = {"state_mode": "cluster", "state_nodes": [f"{HOST}:{secure.port}"], "redis_tls": True}
        await is_opened(**told, redis_ca_file=secure.certificate)


@pytest.mark.needs("openssl")
@pytest.mark.needs("redis_7_0")
async def test_sentinel_and_its_master_are_opened_over_tls(tmp_path: Path, secure: Secure) -> None:
    binary = BINARIES["redis_7_0"]()
    sentinel = TcpServer(tmp_path, binary, "cache")
    server = TcpServer(tmp_path, binary, "state", *secure.options, "--tls-replication", "yes")
    port = free_port()
    lines = [f"port {sentinel.port}", f"tls-port {port}", f"dir {sentinel.folder}", "tls-replication yes"]
    lines += [f"{name[2:]} {value}" for name, value in batched(secure.options[2:])]
    lines += [f"sentinel monitor mesh {HOST} {secure.port} 1"]
    (sentinel.folder / "sentinel.conf").write_text("\n".join(lines))
    server.start()
    try:
        wait_until(server.is_serving, "the server")
        command = [str(binary), str(sentinel.folder / "sentinel.conf"), "--sentinel"]
        sentinel.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_until(sentinel.is_serving, "the sentinel")
        told = {"state_mode": "sentinel", "state_nodes": [f"{HOST}:{port}"], "state_master": "mesh", "redis_tls": True}
        await is_opened(**told, redis_ca_file=secure.certificate)
    finally:
        server.end()
        sentinel.end()


def batched(words: tuple[str, ...]) -> list[tuple[str, str]]:
    """Names with their values."""
    return list(zip(words[::2], words[1::2], strict=True))
