"""The SDK over TLS, with certificates that the openssl program makes for the test."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from helpers.answers import PERSON, PERSON_SCHEMA, delivery, document_chunks
from helpers.scripted_router import ScriptedRouter, as_script
from ssop_sdk import AsyncSsopClient, ConfigurationError, RetryPolicy, SsopClient, Tls, Unavailable

KEY = "sk-test"

pytestmark = pytest.mark.needs("openssl")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key, chain = folder / "key.pem", folder / "chain.pem"
    subprocess.run(
        (
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 "
            f"-keyout {key} -out {chain} -subj /CN=mesh.test -addext subjectAltName=DNS:mesh.test"
        ).split(),
        check=True,
        capture_output=True,
    )
    return key, chain


@pytest.fixture
async def target(certificate: tuple[Path, Path]) -> AsyncIterator[str]:
    key, chain = certificate
    router = ScriptedRouter(as_script(delivery(document_chunks(PERSON))))
    router.add_to(router.server)
    credentials = grpc.ssl_server_credentials([(key.read_bytes(), chain.read_bytes())])
    port = router.server.add_secure_port("127.0.0.1:0", credentials)
    await router.server.start()
    try:
        yield f"https://127.0.0.1:{port}"
    finally:
        await router.server.stop(None)


async def test_async_client_over_tls(target: str, certificate: tuple[Path, Path]) -> None:
    tls = Tls(root_certificates=certificate[1], server_name="mesh.test")
    async with AsyncSsopClient(KEY, target, tls=tls, output_schema=PERSON_SCHEMA) as client:
        assert await client.generate("x").result() == PERSON


async def test_sync_client_over_tls(target: str, certificate: tuple[Path, Path]) -> None:
    tls = Tls(root_certificates=certificate[1].read_bytes(), server_name="mesh.test")
    with SsopClient(KEY, target, tls=tls, output_schema=PERSON_SCHEMA) as client:
        assert await asyncio.to_thread(client.generate("x").result) == PERSON


async def test_certificate_of_an_unknown_authority_is_refused(target: str) -> None:
    async with AsyncSsopClient(KEY, target, timeout_s=30, retry=RetryPolicy(max_retries=0)) as client:
        with pytest.raises(Unavailable):
            await client.generate("x").result()


async def test_certificate_of_another_name_is_refused(target: str, certificate: tuple[Path, Path]) -> None:
    tls = Tls(root_certificates=certificate[1], server_name="other.test")
    retry = RetryPolicy(max_retries=0)
    async with AsyncSsopClient(KEY, target, tls=tls, timeout_s=30, retry=retry) as client:
        with pytest.raises(Unavailable):
            await client.generate("x").result()


def test_missing_certificate_file_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"absent\.pem"):
        SsopClient(KEY, "https://mesh.test", tls=Tls(root_certificates="/absent.pem"))
