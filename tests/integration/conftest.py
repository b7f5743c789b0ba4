"""One mesh for all integration tests that leave it as they found it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.collector import Collector, run_collector
from helpers.live_mesh import READY_TIMEOUT_S, LiveMesh, run_mesh, wait_until
from ssop_cli.embedded import free_port
from ssop_sdk import SsopClient

SERVICES = ("router", "inference", "cache", "rag")
HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test that may have to start a mesh has that mesh's time besides its own, so that who is late can say why."""
    for item in items:
        starts_mesh = "mesh" in getattr(item, "fixturenames", ()) or hasattr(getattr(item, "module", None), "run_mesh")
        if item.path.is_relative_to(HERE) and starts_mesh and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(READY_TIMEOUT_S + float(config.getini("timeout"))))


@pytest.fixture(scope="session")
def ports() -> dict[str, int]:
    """By service: the port of its metrics."""
    return {name: free_port() for name in SERVICES}


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    """Takes the spans of the mesh."""
    with run_collector() as running:
        yield running


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int], collector: Collector) -> Iterator[LiveMesh]:
    """A running mesh; its children may be killed, since the supervisor brings them back."""
    listen = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    changes: dict[str, dict[str, Any]] = {
        "mesh": {"metrics_listen": listen, "otlp_endpoint": collector.endpoint},
        # What was prefetched waits for the longest pause that a busy machine is given.
        "rag": {"prefetch_max_stretch": 0, "prefetch_ttl_ms": 60_000},
        # A machine that is busy takes its time to start a model again.
        "router": {"continue_wait_ms": 60_000},
    }
    with run_mesh(tmp_path_factory.mktemp("mesh"), changes, has_http=True) as running:
        yield running


@pytest.fixture
def client(mesh: LiveMesh) -> Iterator[SsopClient]:
    """A client of tenant `local`, once every child serves."""
    wait_until(mesh.is_ready, 60, "the mesh is ready")
    with SsopClient(mesh.key, mesh.target, timeout_s=60) as made:
        yield made
