"""The drill's own mesh: two nodes, wires between the services, a store that can be filled, a file that can vanish."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from ssop.v1 import inference_pb2, router_pb2
from ssop_chassis.api_keys import hash_key, make_key
from ssop_chassis.identity import SCOPES, load_secret
from ssop_cli import detached, up
from ssop_cli.drill.disk import Disk, open_disk
from ssop_cli.drill.injection import wait_until
from ssop_cli.drill.wire import Wire, run_wires
from ssop_cli.embedded import DEFAULT_MODEL, default_settings, dump_toml, free_port, make_identity
from ssop_cli.failure import CommandError
from ssop_cli.mesh import find_access
from ssop_cli.models import fetch_with_progress
from ssop_cli.places import Places, find_places, make_places, write_private
from ssop_router.classifier import SHIPPED
from ssop_sdk import SsopClient, SsopError

MARGIN_BYTES: Final = 2_147_483_648
"""Memory that must be free for a second node."""
STALL_MS: Final = 3_000
BACKOFF_MS: Final = 2_000
SLOW_START_MS: Final = 2_000
_NODES_TIMEOUT_S: Final = 90.0
_LEASH: Final = Path(up.__file__).with_name("leash.py")
_STOP_S: Final = 20.0
_CALL_TIMEOUT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Rig:
    """What faults of the drill's own mesh need.

    Documents lie on `disk`, keys, quotas and leases on `state_disk`. `key` is one of a tenant `drill`, whose documents
    no load asks for.
    """

    places: Places
    wires: dict[str, Wire]
    disk: Disk
    state_disk: Disk
    classifier: Path
    key: str
    nodes: int

    @property
    def index(self) -> Path:
        """The folder of the retrieval service's store."""
        return self.disk.folder / "rag"

    def client(self) -> SsopClient:
        """A client of the tenant `drill`. Close it."""
        return SsopClient(self.key, find_access(self.places, None, {}).target, timeout_s=_CALL_TIMEOUT_S)

    def await_nodes(self) -> None:
        """Return when the router knows all nodes to be ready, and has none out. Raises CommandError."""
        access = find_access(self.places, None, {})
        with SsopClient(access.api_key, access.target) as client:

            def are_well() -> bool:
                try:
                    nodes = client.mesh_status().nodes
                except SsopError:
                    return False
                return sum(_is_well(node) for node in nodes) == self.nodes

            if not wait_until(are_well, _NODES_TIMEOUT_S):
                raise CommandError(f"not all nodes were well within {_NODES_TIMEOUT_S:.0f} s", reason="MESH_NOT_WELL")

    def log_size(self, child: str) -> int:
        """How long a child's log is now."""
        path = self.places.log(child)
        return path.stat().st_size if path.exists() else 0

    def log_lines(self, child: str, from_byte: int = 0) -> list[dict[str, Any]]:
        """The JSON lines of a child's log."""
        with self.places.log(child).open("rb") as file:
            file.seek(from_byte)
            return [json.loads(line) for line in file.read().decode(errors="replace").splitlines() if line[:1] == "{"]

    def metrics_address(self, child: str) -> str:
        """Where a child says its metrics; empty where it never said."""
        lines = [line for line in self.log_lines(child) if line.get("message") == "serving"]
        return str(lines[-1].get("metrics", "")) if lines else ""


@contextlib.contextmanager
def own_mesh(models_dir: Path, model: str, console: Console, seed: int = 0) -> Iterator[Rig]:
    """A mesh in a temporary directory, on a free port, until the block ends. Raises CommandError."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ssop-drill-")))
        stack.enter_context(_ended_by_signals())
        places = find_places(folder, os.environ)
        make_places(places)
        make_identity(places)
        name = model or DEFAULT_MODEL
        fetch_with_progress(name, models_dir, console)
        disk = stack.enter_context(open_disk(folder / "disk"))
        state_disk = stack.enter_context(open_disk(folder / "redis-state"))
        (folder / "w").mkdir()
        second = folder / "w" / "2.sock"
        nodes = 2 if _free_bytes() >= MARGIN_BYTES else 1
        ends = {name: places.socket(name) for name in ("inference", "cache", "rag")}
        if nodes > 1:
            ends["inference-2"] = second
        wires = stack.enter_context(run_wires(folder / "w", ends, seed))
        classifier = folder / "complexity.onnx"
        shutil.copyfile(SHIPPED, classifier)
        document = default_settings(places, port=free_port(), models_dir=models_dir, model=name)
        _adapt(document, wires, disk, classifier)
        config = folder / "drill.toml"
        config.write_text(dump_toml(document))
        rig = Rig(places, wires, disk, state_disk, classifier, _add_key(places), nodes)
        stack.callback(detached.run_down, places, lambda _: None)
        if nodes > 1:
            stack.enter_context(_second_node(document, second, places))
        detached.run_detached(places, ["--state-dir", str(folder), "--config", str(config)], console)
        rig.await_nodes()
        yield rig


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM ends this program as Ctrl-C does, so that its mesh does not outlive it."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _adapt(document: dict[str, Any], wires: dict[str, Wire], disk: Disk, classifier: Path) -> None:
    """Change the settings of the default mesh to those of the drill's."""
    near = {name: f"unix:{wire.near}" for name, wire in wires.items()}
    document["mesh"]["metrics_listen"] = {"router": "127.0.0.1:0", "rag": "127.0.0.1:0"}
    document["rag"]["directory"] = str(disk.folder / "rag")
    document["router"] |= {
        "nodes": [{"address": address} for name, address in near.items() if name.startswith("inference")],
        "cache_address": near["cache"],
        "rag_address": near["rag"],
        "classifier_file": str(classifier),
        "stall_timeout_ms": STALL_MS,
        # So that each fault meets a mesh that is whole: with the default a node that failed twice waits 30 s.
        "health": {"backoff_min_ms": BACKOFF_MS, "backoff_max_ms": BACKOFF_MS, "slow_start_ms": SLOW_START_MS},
    }
    if "inference-2" in wires:
        # Another node can try meanwhile, so that one that hangs is not waited for as long as the only one would be.
        del document["router"]["first_field_timeout_ms"]
        # Two engines with all cores each would spin against each other.
        document["inference"]["threads"] = 1


def _add_key(places: Places) -> str:
    key = make_key("drill")
    record = {
        "id": "drill",
        "tenant": "drill",
        "scopes": sorted(SCOPES - {"admin"}),
        "hmac": hash_key(key, load_secret(places.secret)).hex(),
    }
    write_private(places.keys, places.keys.read_text() + dump_toml({"keys": [record]}))
    return key


@contextlib.contextmanager
def _second_node(document: dict[str, Any], socket: Path, places: Places) -> Iterator[None]:
    """A node beside the mesh; dies with this program."""
    section = {**document["inference"], "node": "second", "listen": [f"unix:{socket}"]}
    config = places.state / "second.toml"
    config.write_text(dump_toml({"mesh": {"secret_file": str(places.secret)}, "inference": section}))
    command = [sys.executable, "-m", "ssop_inference.main", "--config", str(config)]
    with places.log("inference-2").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - this program's own parts
            [sys.executable, "-I", "-S", str(_LEASH), str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Not the mesh's own folder of sockets, which is emptied when that starts.
            env={**up.child_environ(os.environ, places), "TMPDIR": str(socket.parent)},
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_well(node: router_pb2.NodeView) -> bool:
    is_ready = any(model.state == inference_pb2.MODEL_STATE_READY for model in node.status.models)
    return is_ready and not node.is_ejected


def _free_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
