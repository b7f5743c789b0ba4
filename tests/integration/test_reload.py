"""`ssop reload` on a running mesh."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.live_mesh import LiveMesh, wait_until
from ssop_sdk import SsopClient

INSTRUCTION = "Translate this to French: good morning."
RELOADED = "the settings were reloaded"


@pytest.fixture
def config(mesh: LiveMesh) -> Iterator[Path]:
    """The settings of the mesh, put back afterwards."""
    path = Path(mesh.report.config)
    before = path.read_text()
    yield path
    path.write_text(before)
    _reload(mesh)


def _reload(mesh: LiveMesh) -> "subprocess.CompletedProcess[str]":
    """What the command does; where it tells the router, that has read its settings when this returns."""
    before = mesh.log("router").count(RELOADED)
    command = [sys.executable, "-m", "ssop_cli.main", "reload", "--json", "--state-dir", str(mesh.places.state)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=60, check=False)
    if done.returncode == 0:
        wait_until(lambda: mesh.log("router").count(RELOADED) > before, 60, "the router has read its settings")
    return done


def test_rules_change_while_the_router_runs(mesh: LiveMesh, client: SsopClient, config: Path) -> None:
    pid = mesh.child("router").pid
    assert client.explain(INSTRUCTION).decision.rule == "short_instruction"
    config.write_text(config.read_text().replace("[router]\n", "[router]\nrules = []\n"))
    assert "router" in json.loads(_reload(mesh).stdout)["told"]
    wait_until(lambda: not client.explain(INSTRUCTION).decision.rule, 60, "the rule is gone")
    assert mesh.child("router").pid == pid


def test_a_bad_file_is_refused_and_nothing_is_told(mesh: LiveMesh, config: Path) -> None:
    before = mesh.log("router").count("reloaded")
    config.write_text(config.read_text().replace("[router]\n", "[router]\nrulez = []\n"))
    done = _reload(mesh)
    assert done.returncode == 78
    assert "rulez" in done.stderr
    assert mesh.log("router").count("reloaded") == before
