"""Processes that tests start run on the transport that was chosen for the tests, and under no other setting."""

import re
from pathlib import Path

import pytest

from helpers.child_environ import child_environ

TESTS = Path(__file__).resolve().parents[2]
OWN_CHOICE = {"bench_mesh.py", "metal.py"}
"""A benchmark says its transport itself; clients of a front have none."""


def test_of_all_settings_the_transport_alone_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSOP_MESH_TRANSPORT", "grpc")
    monkeypatch.setenv("SSOP_ROUTER_LISTEN", "127.0.0.1:1")
    assert {name: value for name, value in child_environ().items() if name.startswith("SSOP_")} == {
        "SSOP_MESH_TRANSPORT": "grpc"
    }


def test_no_process_is_started_without_that_choice() -> None:
    drops = re.compile(r'not \w+\.startswith\("SSOP_"\)')
    found = {path.name for folder in ("helpers", "integration", "drill") for path in (TESTS / folder).glob("*.py")
             if drops.search(path.read_text())}  # fmt: skip
    assert found - OWN_CHOICE == {"child_environ.py"}
