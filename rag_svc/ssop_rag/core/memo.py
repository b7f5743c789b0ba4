"""Vectors of queries that were embedded before: bounded, by tenant, so that nobody learns what others ask."""

from collections import OrderedDict

from ssop_rag.core.model import Vector


class QueryMemo:
    """At most `size` vectors; the one that was used longest ago goes first. `size` 0: none. Owned by one loop.

    The vectors are those of one embedder; a process has one.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._vectors: OrderedDict[tuple[str, str], Vector] = OrderedDict()

    def __len__(self) -> int:
        return len(self._vectors)

    def get(self, tenant: str, text: str) -> Vector | None:
        """The vector of a normalised query of the tenant's."""
        vector = self._vectors.get((tenant, text))
        if vector is not None:
            self._vectors.move_to_end((tenant, text))
        return vector

    def put(self, tenant: str, text: str, vector: Vector) -> None:
        """Keep it."""
        if self.size == 0:
            return
        self._vectors[tenant, text] = vector
        self._vectors.move_to_end((tenant, text))
        if len(self._vectors) > self.size:
            self._vectors.popitem(last=False)
