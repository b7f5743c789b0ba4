"""Snapshots of tenants' collections as files: one folder for each tenant, one file for each snapshot."""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_rag.core.model import CollectionStats, Document
from ssop_rag.core.snapshot_file import (
    SnapshotError,
    SnapshotWriter,
    Summary,
    check_snapshot,
    read_documents,
    read_summary,
)
from ssop_rag.pool import Priority, WorkPool
from ssop_rag.store import VectorStore

R = ErrorReason
T = TypeVar("T")
_SUFFIX: Final = ".snapshot"
_PARTIAL: Final = ".partial"

Snapshot = tuple[str, int, Summary]
"""Name, bytes on the disk, and what it says about itself."""


class Snapshots:
    """Makes, lists and restores snapshots, one at a time. `pool` has one thread; names are checked by the caller.

    The folder of a tenant is named by a hash, so that no tenant's name is a path; each record names its tenant and is
    checked when it is read. A file is complete when it has its name.
    """

    def __init__(
        self, folder: Path, store: VectorStore, pool: WorkPool, *, embedder: str, dim: int, max_per_tenant: int
    ) -> None:
        self._folder = folder
        self._store = store
        self._pool = pool
        self._embedder = embedder
        self._dim = dim
        self._max_per_tenant = max_per_tenant
        self._changing = asyncio.Lock()

    async def create(self, tenant: str, name: str, collections: Sequence[str], *, now_ms: int) -> Snapshot:
        """Keep collections (none named: all) under a name. Raises what VectorStore.dump does, QUOTA_EXHAUSTED, and
        STORE_UNAVAILABLE when the disk does not take it."""
        path = self._path(tenant, name)
        partial = path.with_suffix(_PARTIAL)
        async with self._changing:
            file = await self._run(lambda: self._open_partial(path, partial))
            try:
                writer = SnapshotWriter(file, tenant=tenant, embedder=self._embedder)
                stats = await self._store.dump(tenant, collections, writer.put, now_ms=now_ms)
                summary = Summary(now_ms, stats)
                await self._run(lambda: _complete(file, partial, path, writer, summary))
                return name, path.stat().st_size, summary
            except OSError as error:
                raise _unavailable("the snapshot can't be written") from error
            finally:
                # A dump whose caller has gone away still runs: without its file it ends.
                file.close()
                partial.unlink(missing_ok=True)

    async def find(self, tenant: str) -> list[Snapshot]:
        """A tenant's snapshots, by name; those that can't be read are left out."""
        return await self._run(lambda: list(self._find(tenant)))

    async def restore(
        self, tenant: str, name: str, admit: Callable[[Summary], Awaitable[None]], *, now_ms: int
    ) -> list[CollectionStats]:
        """Put the collections of a snapshot back, one by one; what they are then.

        `admit` raises where they may not be put back. Raises COLLECTION_UNKNOWN, UNSUPPORTED and STORE_UNAVAILABLE.
        """
        path = self._path(tenant, name)
        changed = []
        async with self._changing, contextlib.AsyncExitStack() as stack:
            file = await self._run(lambda: stack.enter_context(_open(path, name)))
            await self._run(lambda: check_snapshot(file))
            summary = await self._run(lambda: read_summary(file))
            await admit(summary)
            whole = groupby(
                read_documents(file, tenant=tenant, embedder=self._embedder, dim=self._dim), key=lambda item: item[0]
            )
            left = {stats.name for stats in summary.collections}

            def take() -> tuple[str, list[Document]] | None:
                for collection, items in whole:
                    live = (document for _, document in items)
                    return collection, [one for one in live if not 0 < one.expires_at_ms <= now_ms]
                return None

            while (group := await self._run(take)) is not None:
                collection, documents = group
                change = await self._store.replace(tenant, collection, documents, now_ms=now_ms)
                left.discard(collection)
                changed.append(
                    CollectionStats(collection, change.documents, change.passages, change.version, self._embedder)
                )
            for collection in sorted(left):
                change = await self._store.replace(tenant, collection, [], now_ms=now_ms)
                changed.append(CollectionStats(collection, 0, 0, change.version, self._embedder))
        return sorted(changed, key=lambda stats: stats.name)

    async def delete(self, tenant: str, name: str) -> bool:
        """Delete a snapshot; whether there was one."""
        path = self._path(tenant, name)

        def delete() -> bool:
            existed = path.exists()
            path.unlink(missing_ok=True)
            return existed

        return await self._run(delete)

    async def _run(self, function: Callable[[], T]) -> T:
        try:
            return await self._pool.run(Priority.INDEX, function)
        except SnapshotError as error:
            raise _explain(error) from error
        except OSError as error:
            raise _unavailable("the snapshots can't be used") from error

    def _path(self, tenant: str, name: str) -> Path:
        folder = hashlib.sha256(tenant.encode()).hexdigest()[:32]
        return self._folder / folder / (name + _SUFFIX)

    def _open_partial(self, path: Path, partial: Path) -> BinaryIO:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        others = [one for one in path.parent.glob("*" + _SUFFIX) if one != path]
        if len(others) >= self._max_per_tenant:
            raise MeshError(
                R.ERROR_REASON_QUOTA_EXHAUSTED,
                f"the tenant has {len(others)} snapshots, and no more are kept: delete one",
                quotas=[("snapshots", f"at most {self._max_per_tenant}")],
            )
        return os.fdopen(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "w+b")

    def _find(self, tenant: str) -> Iterator[Snapshot]:
        for path in sorted(self._path(tenant, "").parent.glob("*" + _SUFFIX)):
            try:
                with path.open("rb") as file:
                    yield path.name.removesuffix(_SUFFIX), path.stat().st_size, read_summary(file)
            except (OSError, SnapshotError):
                continue


def _complete(file: BinaryIO, partial: Path, path: Path, writer: SnapshotWriter, summary: Summary) -> None:
    """Finish a file and give it its name; durable when it returns."""
    writer.finish(summary)
    file.flush()
    os.fsync(file.fileno())
    partial.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _open(path: Path, name: str) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise MeshError(
            R.ERROR_REASON_COLLECTION_UNKNOWN, f"no snapshot '{name}'", metadata={"snapshot": name}
        ) from error


def _explain(error: SnapshotError) -> MeshError:
    if error.fault == "embedder":
        return MeshError(
            R.ERROR_REASON_UNSUPPORTED,
            f"the snapshot's vectors are those of '{error.embedder}', which this service does not run: "
            "add the documents again",
            metadata={"feature": "snapshot of another embedder"},
        )
    return _unavailable(str(error))


def _unavailable(text: str) -> MeshError:
    return MeshError(R.ERROR_REASON_STORE_UNAVAILABLE, text)
