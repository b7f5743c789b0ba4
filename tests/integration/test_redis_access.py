"""What opens Redis: users and passwords from files, and TLS."""

import subprocess
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


@pytest.mark.needs("openssl")
@pytest.mark.needs("redis_7_0")
async def test_rediss_url_is_opened_with_the_authority_of_the_settings(tmp_path: Path) -> None:
    key, certificate = make_certificate(tmp_path)
    files = ("--tls-cert-file", str(certificate), "--tls-key-file", str(key), "--tls-ca-cert-file", str(certificate))
    secure_port = free_port()
    options = ("--tls-port", str(secure_port), "--tls-auth-clients", "no", *files)
    server = TcpServer(tmp_path, BINARIES["redis_7_0"](), "state", *options)
    server.start()
    try:
        wait_until(server.is_serving, "the server")
        told = {"state_url": f"rediss://{HOST}:{secure_port}", "redis_ca_file": certificate}
        with RedisServer("cache") as cache:
            async with running_cache(None, cache, **told) as under_test:
                assert (await under_test.client().admit("a", KEY)).outcome == LEASE
    finally:
        server.end()
