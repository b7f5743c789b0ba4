"""An index of documents whose texts and vectors are known, as a crash leaves it."""

import shutil
from collections import Counter
from pathlib import Path

import numpy as np

from ssop_rag.core.model import Document, Query
from ssop_rag.embedded import EmbeddedIndex

DIM = 64
DOCUMENTS = 60
IN_LOG = 10
"""Documents that only the log holds."""
RNG = np.random.default_rng(7)
VECTORS = RNG.standard_normal((DOCUMENTS, DIM)).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)


def open_index(directory: Path, damage: Counter[str] | None = None) -> EmbeddedIndex:
    told: Counter[str] = Counter() if damage is None else damage
    return EmbeddedIndex(
        directory, "e/1", DIM, lambda *_: None, on_damage=lambda what, count: told.update({what: count})
    )


def text_of(number: int, passage: int) -> str:
    return f"fact {number} part {passage} " + "x" * 300


def document(number: int) -> Document:
    texts = [text_of(number, passage) for passage in range(3)]
    return Document(f"d{number}", "", {}, 0, texts, np.stack([VECTORS[number]] * 3))


def fill(directory: Path) -> None:
    """Documents in a file, and some more that only the log holds, as a crash leaves them."""
    live = directory.with_name("live")
    index = open_index(live)
    for first in range(0, DOCUMENTS - IN_LOG, 10):
        index.upsert("acme", "facts", [document(number) for number in range(first, first + 10)], 1)
    index.close()
    index = open_index(live)
    for number in range(DOCUMENTS - IN_LOG, DOCUMENTS):
        index.upsert("acme", "facts", [document(number)], 1)
    shutil.copytree(live, directory)
    index.close()


def found(index: EmbeddedIndex) -> set[int]:
    """Documents that are found by their own vector, each with its own texts."""
    numbers = set()
    for number, vector in enumerate(VECTORS):
        for passage in index.search("acme", (), Query("", vector), 3, 1).passages:
            hit = passage.hit
            assert passage.text == text_of(int(hit.document_id[1:]), hit.passage)
            if hit.document_id == f"d{number}":
                numbers.add(number)
    return numbers
