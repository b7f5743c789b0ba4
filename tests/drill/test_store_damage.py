"""Bytes of a document store are flipped, cut off and swapped at random places: nothing but true texts comes of it."""

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from helpers.stored_facts import DOCUMENTS, document, fill, found, open_index

CASES = int(os.environ.get("SSOP_TEST_DAMAGES") or 100)
KEPT_BY_THE_LIBRARY = {"LOCK", "IDENTITY", "rocksdict-config.json"}
"""What no damage of data touches; the last one says how to open the folder at all."""


def harm(folder: Path, rng: random.Random) -> str:
    """Harm one to three files; what was done."""
    done = []
    files = [path for path in sorted(folder.iterdir()) if path.name not in KEPT_BY_THE_LIBRARY and path.stat().st_size]
    for path in rng.sample(files, min(len(files), rng.randint(1, 3))):
        data = bytearray(path.read_bytes())
        way = rng.choice(["flip", "flips", "cut", "zeros"])
        for _ in range(20 if way == "flips" else 1):
            place = rng.randrange(len(data))
            if way == "cut":
                del data[place:]
                break
            size = rng.randint(1, 200) if way == "zeros" else 1
            data[place : place + size] = (
                bytes(size) if way == "zeros" else bytes([data[place] ^ (1 << rng.randrange(8))])
            )
        path.write_bytes(bytes(data))
        done.append(f"{way} {path.name}")
    return ", ".join(done)


@pytest.mark.timeout(900)
def test_damaged_stores_hold_nothing_that_was_never_put_there(tmp_path: Path) -> None:
    kept, silent = [], []
    for seed in range(CASES):
        folder = tmp_path / str(seed) / "index"
        folder.parent.mkdir()
        fill(folder)
        done = harm(folder, random.Random(seed))
        damage: Counter[str] = Counter()
        index = open_index(folder, damage)
        # Each text that is found is compared with what was put there.
        numbers = found(index)
        if len(numbers) < DOCUMENTS and not damage:
            silent.append(f"seed {seed}: {done}: {len(numbers)} documents")
        index.upsert("acme", "facts", [document(number) for number in range(DOCUMENTS)], 1)
        assert found(index) == set(range(DOCUMENTS)), (seed, done)
        index.close()
        kept.append(len(numbers))
    print(f"{CASES} stores: {sum(kept) / len(kept):.1f} of {DOCUMENTS} documents kept on average, {min(kept)} at least")
    print("\n".join(silent))
    # The end of a log that is cut off looks as a write that was never acknowledged does.
    assert all("cut" in line and ".log" in line for line in silent)
