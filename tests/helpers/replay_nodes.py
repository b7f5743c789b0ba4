"""Inference services as processes that run a replayed model, and are started again whenever they die.

`python -m helpers.replay_nodes CONFIG...` forks one node for each configuration, from a process that has imported
everything and begun nothing, so that a restart takes as long as a fork. SIGTERM ends all.

SSOP_TEST_CLAIMS is the folder of the model's kills; SSOP_TEST_WITHOUT names a guard to switch off: `beginning` (what
was begun is not read; the frames of a new document take the place of those missing) or `numbering` (a new document is
sent whole, under later numbers).
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import ssop_inference.delivery
import ssop_inference.main
import ssop_inference.servicer
from helpers.child_environ import child_environ
from helpers.replay_model import ReplayBackend
from ssop.v1 import frame_pb2, mesh_pb2
from ssop_chassis.serving import run_service
from ssop_codec import Schema
from ssop_inference.core.beginning import Beginning, read_beginning
from ssop_inference.core.document import DocumentWriter
from ssop_inference.node import Model, Node
from ssop_inference.settings import InferenceSettings

_PR_SET_PDEATHSIG: Final = 1
GUARDS: Final = ("beginning", "numbering")


class ForgetfulWriter(DocumentWriter):
    """Reads nothing of what was begun, and drops as many frames of a new document."""

    def _begin(self, beginning: Beginning) -> None:
        pass

    def _drop_final(self, chunks: list[bytes]) -> list[bytes]:
        frames = [frame for chunk in chunks for frame in frame_pb2.Chunk.FromString(chunk).frames]
        known = min(len(frames), len(self._final) - self._repeated)
        self._repeated += known
        rest = frames[known:]
        return [frame_pb2.Chunk(frames=rest).SerializeToString()] if rest else []


class RenumberingWriter(DocumentWriter):
    """Sends a new document, its header left out, under numbers that go on."""

    def __init__(self, schema: Schema, *, beginning: Beginning | None = None, **options: Any) -> None:
        self._next_seq = beginning.next_seq if beginning is not None else 0
        super().__init__(schema, **options)

    def _collect(self, usage: mesh_pb2.Usage | None) -> list[bytes]:
        chunks = super()._collect(usage)
        if not self._next_seq:
            return chunks
        frames = [frame for chunk in chunks for frame in frame_pb2.Chunk.FromString(chunk).frames]
        kept = [frame for frame in frames if frame.kind != frame_pb2.FRAME_KIND_HEADER]
        for frame in kept:
            frame.seq = self._next_seq
            self._next_seq += 1
            if frame.HasField("end"):
                frame.end.frames = frame.seq
        return [frame_pb2.Chunk(frames=kept).SerializeToString(deterministic=True)] if kept else []


async def _read_whole(model: Model, plan: Any, request: Any) -> Any:
    """In the place of `servicer._read_rest`: the grammar is that of a whole document."""
    if not request.HasField("continue_from"):
        return None, plan.constraint
    return read_beginning(request.continue_from.chunk, request.continue_from.next_seq), plan.constraint


def _serve(config: str) -> NoReturn:
    claims = Path(os.environ["SSOP_TEST_CLAIMS"])
    guard = os.environ.get("SSOP_TEST_WITHOUT", "")

    def build_node(settings: InferenceSettings) -> Node:
        models = [
            Model(ReplayBackend(model.name, claims, forgets=bool(guard)), model.tiers) for model in settings.models
        ]
        return Node(settings.node, models)

    vars(ssop_inference.main)["build_node"] = build_node
    if guard:
        writer = {"beginning": ForgetfulWriter, "numbering": RenumberingWriter}[guard]
        vars(ssop_inference.delivery)["DocumentWriter"] = writer
        vars(ssop_inference.servicer)["_read_rest"] = _read_whole
    sys.argv = ["inference", "--config", config]
    run_service("inference", InferenceSettings, ssop_inference.main.build)
    raise SystemExit(0)


def _fork(config: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # A node must not outlive the test.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _serve(config)


def main() -> None:
    """Keep the nodes running until SIGTERM; what died of anything but SIGKILL ends all, with its exit code."""
    nodes = {_fork(config): config for config in sys.argv[1:]}

    def stop(*_: object) -> None:
        for pid in nodes:
            os.kill(pid, signal.SIGKILL)
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, stop)
    while True:
        pid, status = os.wait()
        config = nodes.pop(pid)
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            raise SystemExit(f"a node ended with {status}")
        print(config, flush=True)
        nodes[_fork(config)] = config


@contextmanager
def running_replay_nodes(
    folder: Path, tiers: Mapping[str, str], secret_file: Path, *, without: str = ""
) -> Iterator[Sequence[str]]:
    """Run a node for each name, of the tier given, until the block ends; their addresses."""
    claims = folder / "claims"
    claims.mkdir()
    configs = []
    for name, tier in tiers.items():
        config = folder / f"{name}.toml"
        config.write_text(
            f'[mesh]\nsecret_file = "{secret_file}"\ndrain_ms = 500\n[mesh.metrics_listen]\ninference = "127.0.0.1:0"\n'
            f'[inference]\nnode = "{name}"\nlisten = ["unix:{folder}/{name}.sock"]\n'
            f'[[inference.models]]\nname = "replay"\ntiers = ["{tier}"]\n'
        )
        configs.append(str(config))
    environ = child_environ() | {"SSOP_TEST_CLAIMS": str(claims), "SSOP_TEST_WITHOUT": without}
    with (folder / "nodes.log").open("wb") as log, (folder / "deaths.log").open("wb") as deaths:
        process = subprocess.Popen(
            [sys.executable, "-m", "helpers.replay_nodes", *configs], stdout=deaths, stderr=log, env=environ
        )
        try:
            yield [f"unix:{folder}/{name}.sock" for name in tiers]
        finally:
            process.terminate()
            process.wait(20)


if __name__ == "__main__":
    main()
