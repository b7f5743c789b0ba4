"""Two tenants that index the same names with other content never see each other's, whatever is asked.

`SSOP_TEST_CROSSINGS=100000` asks as often; a tenth of that is enough for every day.
"""

import os
import random
from pathlib import Path

import numpy as np

from ssop_rag.core.model import Document, Query, UnknownCollectionError
from ssop_rag.core.ranking import Ranker, RankerChoice, unit_rows
from ssop_rag.embedded import EmbeddedIndex

QUERIES = int(os.environ.get("SSOP_TEST_CROSSINGS", "10000"))
DIM = 8
WORDS = ["red", "blue", "cat", "dog", "天气", "退款", "secret", "T", "C", "D", "P"]
TENANTS = ["acme", "acme\0faq"]
NAMES = ["faq", "notes", "T", "a" * 64]
IDS = ["1", "../1", "\0", "acme", "faq\x00\x00\x00\x011", '" or 1==1', "%", "租户", "\x00\x00\x00\x04acme", "d" * 512]
HOSTILE = [*NAMES, *IDS, *TENANTS, "", "acme/faq", "*", "\x00\x00\x00\x03faq"]
NOW = 1


def test_no_query_crosses_from_one_tenant_to_another(tmp_path: Path) -> None:
    rng = random.Random(7)
    rankers = RankerChoice(Ranker.HYBRID, {"notes": Ranker.BM25, "T": Ranker.VECTOR})
    index = EmbeddedIndex(tmp_path, "e/1", DIM, lambda *_: None, rankers)
    vectors = unit_rows(np.random.default_rng(7).standard_normal((64, DIM)))

    def write(tenant: str, name: str, document_id: str) -> None:
        texts = [f"owner{TENANTS.index(tenant)} {' '.join(rng.choices(WORDS, k=4))}" for _ in range(rng.randint(1, 3))]
        rows = vectors[[rng.randrange(len(vectors)) for _ in texts]]
        index.upsert(tenant, name, [Document(document_id, "", {"owner": tenant}, 0, texts, rows)], NOW)

    for tenant in TENANTS:
        for name in NAMES:
            for document_id in IDS:
                write(tenant, name, document_id)
    seen = 0
    for number in range(QUERIES):
        tenant = rng.choice(TENANTS)
        own = f"owner{TENANTS.index(tenant)} "
        names = tuple(sorted({rng.choice(HOSTILE) for _ in range(rng.randint(0, 2))}))
        query = Query(" ".join(rng.choices([*WORDS, "owner0", "owner1", *HOSTILE], k=3)), rng.choice(vectors))
        try:
            found = index.search(tenant, names, query, rng.randint(1, 32), NOW).passages
        except UnknownCollectionError:
            continue
        assert all(passage.text.startswith(own) for passage in found)
        assert not names or all(passage.hit.collection in names for passage in found)
        seen += len(found)
        if number % 100 == 0:
            name, document_id = rng.choice(NAMES), rng.choice(HOSTILE)
            held = index.held(tenant, name, [document_id], NOW)
            assert all(document.attributes == {"owner": tenant} for document in held.values())
            index.delete(tenant, name, [document_id], NOW)
            write(tenant, name, rng.choice(IDS))
    assert seen > QUERIES
    index.close()
