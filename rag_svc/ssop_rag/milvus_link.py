"""Calls of a Milvus server: each with its deadline, its errors as one. Blocking; safe for threads.

Reads are strongly consistent, so that what was acknowledged is found.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ssop_chassis.settings import SettingsError

T = TypeVar("T")
Rows = list[Mapping[str, Any]]
_CONSISTENCY: Final = "Strong"
_PAGE: Final = 1_000
_BM25: Final = {"bm25_k1": 1.2, "bm25_b": 0.75}


@dataclass(frozen=True, slots=True)
class Ask:
    """A search: the field that is compared, with what, the filter, how many rows, and which of their fields."""

    field: str
    data: Any
    where: str
    count: int
    fields: Sequence[str]


class MilvusError(OSError):
    """Milvus could not be reached, or refused a call. The text says which call, and nothing of what was in it."""


class MilvusLink:
    """A server, or a file of milvus-lite. It is connected to at the first call, and again after a failure."""

    def __init__(self, uri: str, token: str, timeout_s: float, index_type: str) -> None:
        try:
            import pymilvus  # noqa: PLC0415 - an optional extra
        except ImportError as error:
            raise SettingsError("store 'milvus' needs pymilvus: pip install 'ssop-mesh[milvus]'") from error
        self._library: Any = pymilvus
        # Its own log repeats each error with the expression of the filter.
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
        self._uri = uri
        self._token = token
        self._timeout_s = timeout_s
        self._index_type = index_type
        self.is_exact: Final = index_type == "FLAT"
        """Whether a search by vector compares all vectors."""
        self._client: Any = None
        self._lock = threading.Lock()
        self._made: set[str] = set()

    def close(self) -> None:
        """End the connection."""
        with self._lock:
            if self._client is not None:
                self._client.close()
            self._client = None

    def has(self, name: str) -> bool:
        """Whether a Milvus collection is there."""
        if name not in self._made and self._call(
            "has_collection", lambda client: client.has_collection(name, timeout=self._timeout_s)
        ):
            self._made.add(name)
        return name in self._made

    def make_passages(self, name: str, dim: int) -> None:
        """Make the Milvus collection of a tenant, if it is not there."""
        kinds = self._library.DataType
        fields: list[tuple[str, Any, dict[str, Any]]] = [
            ("collection", kinds.VARCHAR, {"max_length": 64}),
            ("document_key", kinds.VARCHAR, {"max_length": 32}),
            ("passage", kinds.INT64, {}),
            ("expires_at_ms", kinds.INT64, {}),
            ("version", kinds.INT64, {}),
            ("head", kinds.VARCHAR, {"max_length": 65_535}),
            ("text", kinds.VARCHAR, {"max_length": 65_535}),
            (
                "terms",
                kinds.VARCHAR,
                {"max_length": 65_535, "enable_analyzer": True, "analyzer_params": {"tokenizer": "standard"}},
            ),
            ("sparse", kinds.SPARSE_FLOAT_VECTOR, {}),
            ("vector", kinds.FLOAT_VECTOR, {"dim": dim}),
        ]
        bm25 = self._library.Function(
            name="bm25",
            function_type=self._library.FunctionType.BM25,
            input_field_names=["terms"],
            output_field_names=["sparse"],
        )
        self._make(name, fields, [bm25], {"vector": self._index_type, "sparse": "SPARSE_INVERTED_INDEX"})

    def make_versions(self, name: str) -> None:
        """Make the Milvus collection of versions, if it is not there. Milvus demands a vector field."""
        kinds = self._library.DataType
        fields = [
            ("tenant_key", kinds.VARCHAR, {"max_length": 32}),
            ("tenant", kinds.VARCHAR, {"max_length": 65_535}),
            ("collection", kinds.VARCHAR, {"max_length": 64}),
            ("embedder", kinds.VARCHAR, {"max_length": 1_024}),
            ("version", kinds.INT64, {}),
            ("next_expiry_ms", kinds.INT64, {}),
            ("vector", kinds.FLOAT_VECTOR, {"dim": 2}),
        ]
        self._make(name, fields, [], {"vector": "FLAT"})

    def _make(
        self,
        name: str,
        fields: Sequence[tuple[str, Any, dict[str, Any]]],
        functions: Sequence[Any],
        indexes: dict[str, str],
    ) -> None:
        if self.has(name):
            return

        def make(client: Any) -> None:
            schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
            schema.add_field("key", self._library.DataType.VARCHAR, is_primary=True, max_length=32)
            for field, kind, options in fields:
                schema.add_field(field, kind, **options)
            for function in functions:
                schema.add_function(function)
            params = client.prepare_index_params()
            for field, index_type in indexes.items():
                is_sparse = field == "sparse"
                params.add_index(
                    field,
                    index_type=index_type,
                    metric_type="BM25" if is_sparse else "COSINE",
                    params=_BM25 if is_sparse else {},
                )
            client.create_collection(
                name, schema=schema, index_params=params, consistency_level=_CONSISTENCY, timeout=self._timeout_s
            )

        self._call("create_collection", make)
        self._made.add(name)

    def upsert(self, name: str, rows: Sequence[dict[str, Any]]) -> None:
        """Write rows, replacing those of the same key."""
        self._call("upsert", lambda client: client.upsert(name, list(rows), timeout=self._timeout_s))

    def delete(self, name: str, where: str) -> None:
        """Delete the rows of a filter."""
        self._call("delete", lambda client: client.delete(name, filter=where, timeout=self._timeout_s))

    def query(self, name: str, where: str, fields: Sequence[str]) -> Rows:
        """The rows of a filter; at most 16,384."""
        return self._call(
            "query",
            lambda client: list(
                client.query(
                    name,
                    filter=where,
                    output_fields=list(fields),
                    timeout=self._timeout_s,
                    consistency_level=_CONSISTENCY,
                )
            ),
        )

    def count(self, name: str, where: str) -> int:
        """How many rows a filter has."""
        return int(self.query(name, where, ["count(*)"])[0]["count(*)"])

    def pages(self, name: str, where: str, fields: Sequence[str]) -> Iterator[Rows]:
        """All rows of a filter, a thousand at a time."""
        pages = self._call(
            "query_iterator",
            lambda client: client.query_iterator(
                name,
                batch_size=_PAGE,
                filter=where,
                output_fields=list(fields),
                timeout=self._timeout_s,
                consistency_level=_CONSISTENCY,
            ),
        )
        try:
            while page := self._call("query_iterator", lambda _: pages.next()):
                yield page
        finally:
            pages.close()

    def search(self, name: str, ask: Ask) -> Rows:
        """The best rows, best first, each with its `distance`."""

        def search(client: Any) -> Rows:
            (found,) = client.search(
                name,
                data=[ask.data],
                anns_field=ask.field,
                filter=ask.where,
                limit=ask.count,
                output_fields=list(ask.fields),
                timeout=self._timeout_s,
                consistency_level=_CONSISTENCY,
            )
            return [{**hit["entity"], "distance": hit["distance"]} for hit in found]

        return self._call("search", search)

    def _call(self, what: str, function: Callable[[Any], T]) -> T:
        try:
            return function(self._connect())
        except MilvusError:
            raise
        except Exception as error:  # pymilvus raises its own, gRPC's and plain errors, which have no common base
            self._made.clear()
            raise MilvusError(
                f"Milvus failed at {what}: {type(error).__name__} {getattr(error, 'code', '')}"
            ) from error

    def _connect(self) -> Any:
        with self._lock:
            if self._client is None:
                try:
                    self._client = self._library.MilvusClient(self._uri, token=self._token, timeout=self._timeout_s)
                except Exception as error:  # as in `_call`
                    raise MilvusError(f"Milvus can't be reached at {self._uri}: {type(error).__name__}") from error
            return self._client
