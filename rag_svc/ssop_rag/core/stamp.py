"""What a cached answer depends on besides its text: the version of each collection, and how it was searched."""

import hashlib
from dataclasses import dataclass

from ssop_rag.core.model import Versions
from ssop_rag.core.ranking import RankerChoice
from ssop_rag.core.record import CODEC_VERSION
from ssop_rag.core.terms import ANALYZER

_DIGEST_BYTES = 4


@dataclass(frozen=True, slots=True)
class Stamps:
    """Stamps of collections: another embedder, ranker, analyzer, reranker or codec gives another stamp."""

    embedder: str
    rankers: RankerChoice
    reranker: str = ""

    def of(self, collection: str, version: int) -> str:
        """The stamp of a collection at a version."""
        parts = (self.embedder, self.rankers.of(collection).value, ANALYZER, self.reranker, CODEC_VERSION)
        digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=_DIGEST_BYTES).hexdigest()
        return f"{version}.{digest}"

    def join(self, versions: Versions) -> str:
        """Stamps of several collections, in order of their names."""
        return ",".join(f"{name}:{self.of(name, version)}" for name, version in versions)
