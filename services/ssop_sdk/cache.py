"""`client.cache`: the stored answers of the mesh. Both clients have the same methods; needs the scope `admin`."""

from typing import Final

from ssop.v1 import cache_admin_pb2 as pb
from ssop_sdk.index import AsyncCall, Call

_SERVICE: Final = "/ssop.v1.CacheAdminService/"
_FLUSH: Final = f"{_SERVICE}FlushCache"
_STATS: Final = f"{_SERVICE}GetCacheStats"


class CacheAdmin:
    """Drops stored answers and says what the levels hold."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def flush(self, tenant: str = "") -> str:
        """Drop the stored answers of a tenant (empty: the key's own), similar ones included; returns whose."""
        return self._call(_FLUSH, pb.FlushCacheRequest(tenant=tenant), pb.FlushCacheResponse, None).tenant

    def stats(self) -> pb.CacheStats:
        """What the levels hold and have done since the cache service started."""
        return self._call(_STATS, pb.GetCacheStatsRequest(), pb.GetCacheStatsResponse, None).stats


class AsyncCacheAdmin:
    """`CacheAdmin` for asyncio."""

    def __init__(self, call: AsyncCall) -> None:
        self._call = call

    async def flush(self, tenant: str = "") -> str:
        """See CacheAdmin.flush."""
        return (await self._call(_FLUSH, pb.FlushCacheRequest(tenant=tenant), pb.FlushCacheResponse, None)).tenant

    async def stats(self) -> pb.CacheStats:
        """See CacheAdmin.stats."""
        return (await self._call(_STATS, pb.GetCacheStatsRequest(), pb.GetCacheStatsResponse, None)).stats
