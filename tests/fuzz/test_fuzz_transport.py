"""Feeds damaged connections to the native transport: `pytest tests/fuzz`, for SSOP_TEST_FUZZ_SECONDS (20), or
`python tests/fuzz/test_fuzz_transport.py [--seconds N] [--seed N] [--corpus FILE]`.

What is held: no fault of ours in the log, no call that outlives its connection, whole frames only, bounds on what is
kept and sent, MeshError and nothing else for callers, and the same messages however the bytes were cut. Inputs that
make a connection behave as none before are damaged further. A failure prints the seed and the bytes: they go to
`transport.json`, which the tests of every day replay; `make fuzz-transport` runs this on a build with sanitizers.
"""

import argparse
import asyncio
import base64
import faulthandler
import json
import os
import random
import resource
import tempfile
import time
from pathlib import Path
from typing import Final

import pytest

from helpers.damaged_wire import cut, damage_bytes, make_input
from helpers.memory_wire import check, open_server, without_faults

pytestmark = pytest.mark.needs("native_transport")
CORPUS: Final = Path(__file__).parent / "transport.json"
ROLES: Final = ("server", "server", "client")
_LONGEST_S: Final = 60
_MOST_BYTES: Final = 1_500
"""Of an entry of the corpus; longer inputs are not kept."""


def read_corpus() -> list[tuple[str, bytes]]:
    """Role and bytes of each entry."""
    entries = json.loads(CORPUS.read_text())["entries"]
    return [(entry["role"], base64.b64decode(entry["data"])) for entry in entries]


async def fuzz(
    seconds: float,
    seed: int,
    corpus: list[tuple[str, bytes]],
    *,
    rounds: int | None = None,
    last: Path | None = None,
) -> int:
    """Run for a time, or for a number of rounds; returns how many there were. What behaves anew joins the corpus.

    `last` is written before each round, for one that never ends. Raises AssertionError with the seed and the bytes.
    """
    rng = random.Random(seed)
    server = await open_server()
    known: set[object] = set()
    until, done = time.monotonic() + seconds, 0
    while time.monotonic() < until if rounds is None else done < rounds:
        if corpus and rng.random() < 0.4:
            role, data = rng.choice(corpus)
            data = damage_bytes(data, rng)
        else:
            role = rng.choice(ROLES)
            data = make_input(role, rng)
        pieces = cut(data, rng)
        if last is not None:
            faulthandler.dump_traceback_later(_LONGEST_S, exit=True)
            last.write_text(f"{role} {[*map(len, pieces)]} {base64.b64encode(data).decode()}\n")
        try:
            with without_faults():
                behaviour = (role, await check(role, data, pieces, server))
        except Exception as error:
            text = base64.b64encode(data).decode()
            raise AssertionError(f"seed {seed}, round {done}, {role}, cut {[*map(len, pieces)]}: {text}") from error
        if behaviour not in known:
            known.add(behaviour)
            if len(data) <= _MOST_BYTES:
                corpus.append((role, data))
        done += 1
    await server.stop(0)
    return done


@pytest.mark.timeout(0)
async def test_transport_holds_under_damage() -> None:
    seconds = float(os.environ.get("SSOP_TEST_FUZZ_SECONDS", "20"))
    assert await fuzz(seconds, random.randrange(2**32), read_corpus()) > 100


def main() -> None:
    """Run for a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--corpus", type=Path, default=None, help="write what behaved anew here")
    options = parser.parse_args()
    seed = random.randrange(2**32) if options.seed is None else options.seed
    corpus = read_corpus() if CORPUS.exists() else []
    before = len(corpus)
    with tempfile.NamedTemporaryFile(prefix="fuzz-transport-", delete=False) as last:
        print(f"seed {seed}; a round that does not end in {_LONGEST_S} s is in {last.name}", flush=True)
    rounds = asyncio.run(fuzz(options.seconds, seed, corpus, last=Path(last.name)))
    faulthandler.cancel_dump_traceback_later()
    Path(last.name).unlink()
    if options.corpus is not None:
        entries = [{"role": role, "data": base64.b64encode(data).decode()} for role, data in corpus]
        options.corpus.write_text(json.dumps({"entries": entries}, indent=1) + "\n")
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"seed {seed}: {rounds} rounds, {len(corpus) - before} new behaviours, {largest} MiB at most")


if __name__ == "__main__":
    main()
