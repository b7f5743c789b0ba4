"""Questions that people really asked: of all pairs of them, those that the guards take for the same do ask the same."""

import gzip
import json
import re
from collections import defaultdict

import pytest

from helpers.components import suites_dir
from ssop_cache.core.guards import read_facts

SETS = {
    "rag/en_xquad2wiki_queries": 3,
    "rag/zh_cmrc_xquad_queries": 0,
    "rag/en_cranfield_queries": 0,
    "routing/eval_gsm8k": 0,
}
"""How many groups of two are taken for the same in each."""
_MANNERS = re.compile(r"\bthe\b|请问|[\W_]+")


def texts(name: str) -> list[str]:
    folder = suites_dir()
    assert folder is not None
    with gzip.open(folder / f"{name}.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    field = next(field for field in ("text", "query", "question", "prompt") if field in rows[0])
    return list(dict.fromkeys(row[field] for row in rows))


@pytest.mark.needs("suites")
@pytest.mark.parametrize("name", SETS)
def test_real_questions_that_count_as_the_same_are(name: str) -> None:
    groups = defaultdict(set)
    for text in texts(name):
        if (facts := read_facts(text, b"secret")) is not None:
            for order in facts.orders:
                groups[order].add(text)
    same = [group for group in groups.values() if len(group) > 1]
    assert len(same) == SETS[name]
    for group in same:
        assert len({_MANNERS.sub("", text.lower()) for text in group}) == 1, group
