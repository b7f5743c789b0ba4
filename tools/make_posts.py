"""Build the shipped posts: `python tools/make_posts.py OPINION_DATA_DIR [--out FILE] [--seed N]`.

OPINION_DATA_DIR holds the gzipped JSON-lines sets named in SOURCES; only sets whose licence allows shipping are read.
The same data and seed give the same file. Posts written for the project stand beside this file.
"""

import argparse
import gzip
import html
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WRITTEN = HERE / "posts_written.jsonl"
DEFAULT_OUT = HERE.parent / "services" / "ssop_cli" / "data" / "posts.jsonl"
MIN_CHARS = 40
MAX_CHARS = 220


@dataclass(frozen=True, slots=True)
class Source:
    """A set that may ship, how many of its posts do, and values of a field that must occur in turn."""

    file: str
    name: str
    licence: str
    posts: int
    label: str = ""
    values: tuple[str, ...] = ()


SOURCES = (
    Source(
        "en_event_silver_checked.jsonl.gz",
        "SEntFiN headlines",
        "MIT",
        6,
        "label",
        ("new_launch", "product_failure", "pr_crisis"),
    ),
    Source(
        "en_headline_entity_sentfin.jsonl.gz",
        "SEntFiN headlines",
        "MIT",
        3,
        "label",
        ("negative", "positive", "neutral"),
    ),
    Source("en_finentity.jsonl.gz", "FinEntity", "ODC-BY-1.0", 3),
    Source("en_ner_wnut17.jsonl.gz", "WNUT 2017 Emerging Entities", "CC-BY-4.0", 4),
)


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a JSON-lines file, gzipped or not."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    # Not splitlines(): it also breaks at separators that posts may hold.
    yield from (json.loads(line) for line in text.split("\n") if line.strip())


def clean(text: str) -> str:
    """Undo tokenisation, and put placeholders for handles, addresses, codes and URLs."""
    text = html.unescape(text)
    text = re.sub(r"https?(?:://\S*)?", "http", text)
    text = re.sub(r"@\w+", "@user", text)
    text = re.sub(r"\S+@\S+\.\w+", "<email>", text)
    text = re.sub(r"\s*\[n\w+]|\s*<[A-Z0-9.=^]+>", "", text)
    text = re.sub(r"\s+([.,!?;:)'’])", r"\1", text)
    text = re.sub(r"\b(\w+) (n't|'s|'re|'ve|'m|'ll|'d)\b", r"\1\2", text)
    return re.sub(r"\s+", " ", text.replace("( ", "(")).strip()


def is_fit(row: dict[str, Any], text: str) -> bool:
    """Whether a row makes a post: of middling length, and with an entity where the set tags them."""
    has_entity = "tags" not in row or any(tag in {"B-product", "B-corporation"} for tag in row["tags"])
    return has_entity and MIN_CHARS <= len(text) <= MAX_CHARS


def pick(source: Source, folder: Path, random_: random.Random) -> list[dict[str, str]]:
    """Posts of one set, in turn over the values of its label."""
    rows = [(row, clean(row["text"])) for row in read_rows(folder / source.file)]
    rows = [(row, text) for row, text in rows if is_fit(row, text)]
    random_.shuffle(rows)
    if source.values:
        pools = [[text for row, text in rows if row[source.label] == v] for v in source.values]
        texts = [pools[i % len(pools)][i // len(pools)] for i in range(source.posts)]
    else:
        texts = [text for _, text in rows[: source.posts]]
    return [{"text": t, "lang": "en", "source": source.name, "licence": source.licence} for t in texts]


def build(folder: Path, seed: int) -> list[dict[str, str]]:
    """All posts, mixed, with ids in their order."""
    random_ = random.Random(seed)  # noqa: S311 - the choice of examples needs no secrecy
    posts = [post for source in SOURCES for post in pick(source, folder, random_)]
    posts += [{**row, "source": "written for SSOP Mesh", "licence": "Apache-2.0"} for row in read_rows(WRITTEN)]
    random_.shuffle(posts)
    return [{"id": f"post-{number:03}", **post} for number, post in enumerate(posts, 1)]


def main() -> None:
    """Write the posts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of the opinion sets")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    posts = build(arguments.folder, arguments.seed)
    lines = (json.dumps(post, ensure_ascii=False) + "\n" for post in posts)
    arguments.out.write_text("".join(lines), encoding="utf-8")
    print(f"{len(posts)} posts in {arguments.out}")


if __name__ == "__main__":
    main()
