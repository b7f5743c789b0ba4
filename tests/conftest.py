"""Rules for all tests: components that may be absent, and unit tests without a network."""

import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from helpers.components import COMPONENTS, is_required

ROOT = Path(__file__).parent
_ALONE = frozenset({"integration", "polyglot", "drill"})
# A busy machine is slow at making examples; that says nothing about the code.
settings.register_profile("mesh", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mesh")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where tests run on several workers: a file stays on one, and so do all that start processes of the mesh.

    Those measure, kill and wait; what runs beside them are the clients in other languages, which mostly compile.
    """
    for item in items:
        suite = item.path.relative_to(ROOT).parts[0]
        group = suite if suite in _ALONE else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, or fail, a test whose component this machine lacks."""
    for marker in item.iter_markers("needs"):
        (name,) = marker.args
        absence = COMPONENTS[name]()
        if absence is None:
            continue
        if is_required(name):
            pytest.fail(f"needs {name}: {absence} (SSOP_REQUIRE demands it)", pytrace=False)
        pytest.skip(f"needs {name}: {absence}")


@pytest.fixture(autouse=True)
def _no_network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unit and property tests open no connection but to unix sockets and loopback."""
    if not {"unit", "property"} & set(request.path.relative_to(ROOT).parts):
        return
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        if self.family != socket.AF_UNIX and not (isinstance(address, tuple) and address[0] in {"127.0.0.1", "::1"}):
            raise AssertionError("a unit test opened a network connection")
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", guarded)
