"""A mesh whose services speak TLS with each other, each showing a certificate."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from helpers.certificates import Files, make_authority, make_certificate
from helpers.live_mesh import LiveMesh, run_mesh, wait_until
from ssop_cli.embedded import free_port
from ssop_sdk import RetryPolicy, SsopClient

pytestmark = pytest.mark.needs("openssl")
INNER = ("cache", "rag", "inference")


@dataclass
class SecureMesh:
    """The mesh, its files, and a second pair for its services."""

    mesh: LiveMesh
    authority: Files
    own: Files
    next: Files
    ports: dict[str, int]

    def inner_call(self, service: str, credentials: grpc.ChannelCredentials | None) -> grpc.StatusCode:
        """What a signed call to an inner service ends with."""
        address = f"127.0.0.1:{self.ports[service]}"
        channel = grpc.insecure_channel(address) if credentials is None else grpc.secure_channel(address, credentials)
        with channel:
            rpc: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
            try:
                rpc(b"", timeout=10, metadata=self.mesh.sign("acme"))
            except grpc.RpcError as error:
                code: grpc.StatusCode = error.code()
                return code
            return grpc.StatusCode.OK


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureMesh]:
    folder = tmp_path_factory.mktemp("secure")
    authority = make_authority(folder)
    own, following = make_certificate(folder, authority, "own"), make_certificate(folder, authority, "next")
    ports = {name: free_port() for name in INNER}
    address = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    changes: dict[str, dict[str, Any]] = {
        "mesh": {
            "tls": {
                "certificate_file": str(own.certificate),
                "key_file": str(own.key),
                "ca_file": str(authority.certificate),
            }
        },
        **{name: {"listen": [address[name]]} for name in INNER},
        "router": {
            # Found by its lease, so that this is over TLS too.
            "nodes": [],
            "discovery": {"has_leases": True, "poll_ms": 100, "timeout_ms": 2_000},
            "cache_address": address["cache"],
            "rag_address": address["rag"],
        },
    }
    (folder / "recording.jsonl").write_text('{"tokens": [[20, "Hello"], [20, " you"]], "input_tokens": 2}\n')
    model = {"name": "r", "backend": "replay", "path": str(folder / "recording.jsonl"), "tiers": ["lite", "full"]}
    changes["inference"] |= {"models": [model], "announce": True, "cache_address": address["cache"]}
    with run_mesh(folder, changes, has_http=True) as mesh:
        with SsopClient(mesh.key, mesh.target, timeout_s=60) as client:
            wait_until(lambda: any(node.HasField("status") for node in client.mesh_status().nodes), 60, "a node joins")
        yield SecureMesh(mesh, authority, own, following, ports)


def test_client_is_told_how_to_reach_the_mesh_and_is_served(secure: SecureMesh) -> None:
    assert secure.mesh.target.startswith("ssops://")
    with SsopClient(secure.mesh.key, secure.mesh.target, timeout_s=60) as client:
        assert client.generate("Hello", policy="no_cache").result() == "Hello you"
        status = client.mesh_status()
    assert [(node.status.node, list(node.sources)) for node in status.nodes] == [("local", ["lease"])]
    assert {dependency.name: dependency.is_available for dependency in status.dependencies} == {
        "cache": True,
        "rag": True,
    }


@pytest.mark.parametrize("service", INNER)
@pytest.mark.parametrize("shown", ["nothing", "plain text"])
def test_caller_without_a_certificate_is_refused(secure: SecureMesh, service: str, shown: str) -> None:
    trusting = grpc.ssl_channel_credentials(secure.authority.certificate.read_bytes())
    code = secure.inner_call(service, trusting if shown == "nothing" else None)
    assert code in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}


@pytest.mark.parametrize("service", INNER)
def test_caller_with_a_certificate_of_the_mesh_is_taken(secure: SecureMesh, service: str) -> None:
    own = (secure.own.key.read_bytes(), secure.own.certificate.read_bytes())
    credentials = grpc.ssl_channel_credentials(secure.authority.certificate.read_bytes(), *own)
    assert secure.inner_call(service, credentials) is grpc.StatusCode.OK


@dataclass
class Load:
    """Requests one after another, each over a connection of its own."""

    mesh: LiveMesh
    served: int = 0
    failures: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stop.is_set():
            try:
                retry = RetryPolicy(max_retries=0)
                with SsopClient(self.mesh.key, self.mesh.target, timeout_s=60, retry=retry) as client:
                    client.generate("Hello", policy="no_cache").result()
                self.served += 1
            except Exception as error:  # noqa: BLE001 - whatever it is, the request has failed
                self.failures.append(repr(error))


@contextmanager
def under_load(mesh: LiveMesh) -> Iterator[list[Load]]:
    loads = [Load(mesh) for _ in range(3)]
    threads = [threading.Thread(target=load.run) for load in loads]
    for thread in threads:
        thread.start()
    try:
        yield loads
    finally:
        for load in loads:
            load.stop.set()
        for thread in threads:
            thread.join(90)


def rereads(mesh: LiveMesh) -> int:
    """Processes that have read the changed files, each counted as often as it did."""
    return sum(mesh.log(name).count("certificates were read again") for name in (*INNER, "router", "gateway"))


def serves(loads: list[Load], more: int) -> None:
    target = [load.served + more for load in loads]
    wait_until(
        lambda: all(load.served >= goal or load.failures for load, goal in zip(loads, target, strict=True)),
        120,
        "requests go on",
    )


def test_rotation_under_load_fails_no_request(secure: SecureMesh) -> None:
    with under_load(secure.mesh) as loads:
        serves(loads, 3)
        # A renewal writes two files, and between them they do not fit.
        secure.own.replace_certificate(secure.next)
        serves(loads, 5)
        secure.own.replace_key(secure.next)
        wait_until(lambda: rereads(secure.mesh) >= 4, 120, "the services have read the new files")
        serves(loads, 10)
    assert [failure for load in loads for failure in load.failures] == []


def test_gateway_reaches_the_router_over_tls(secure: SecureMesh) -> None:
    assert "unencrypted" not in secure.mesh.log("router")
    assert secure.mesh.child("gateway").state == "ready"


def test_handshakes_that_fail_fill_no_log(secure: SecureMesh) -> None:
    secure.inner_call("cache", None)
    with SsopClient(secure.mesh.key, secure.mesh.target, timeout_s=60) as client:
        client.mesh_status()
    lines = secure.mesh.log("cache").splitlines()
    assert [line for line in lines if not line.startswith("{")] == []
