"""CacheAdminService: operators drop stored answers, and see what the levels hold."""

import dataclasses
from collections.abc import Callable
from typing import Final

from ssop.v1.cache_admin_pb2 import (
    FlushCacheRequest,
    FlushCacheResponse,
    GetCacheStatsRequest,
    GetCacheStatsResponse,
)
from ssop.v1.cache_pb2 import FlushRequest, ReadStatsRequest, ReadStatsResponse
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.api_keys import TENANT
from ssop_chassis.call import Call
from ssop_chassis.errors import MeshError, invalid_request
from ssop_chassis.identity import Principal
from ssop_router.dependency import Dependency, InnerMetadata, Unavailable
from ssop_router.settings import RouterSettings

FLUSH: Final = "/ssop.v1.CacheService/Flush"
READ_STATS: Final = "/ssop.v1.CacheService/ReadStats"


class CacheAdmin:
    """See `cache_admin.proto`. `cache` is None where the mesh has no cache service."""

    def __init__(
        self, cache: Dependency | None, *, sign: Callable[[Principal], InnerMetadata], settings: RouterSettings
    ) -> None:
        self._cache = cache
        self._sign = sign
        self._timeout_s = settings.settle_timeout_ms / 1000

    async def flush_cache(self, call: Call) -> None:
        """See CacheAdminService.FlushCache."""
        principal = call.principal
        principal.require("admin")
        request = FlushCacheRequest.FromString(call.request)
        if request.tenant and request.tenant != principal.tenant:
            if not TENANT.fullmatch(request.tenant):
                raise invalid_request(("tenant", "must be 1 to 64 characters of [A-Za-z0-9._-]"))
            principal = dataclasses.replace(principal, tenant=request.tenant)
        await self._ask(FLUSH, FlushRequest().SerializeToString(), principal)
        await call.write(FlushCacheResponse(tenant=principal.tenant).SerializeToString())

    async def get_cache_stats(self, call: Call) -> None:
        """See CacheAdminService.GetCacheStats."""
        call.principal.require("admin")
        GetCacheStatsRequest.FromString(call.request)
        reply = await self._ask(READ_STATS, ReadStatsRequest().SerializeToString(), call.principal)
        stats = ReadStatsResponse.FromString(reply).stats
        await call.write(GetCacheStatsResponse(stats=stats).SerializeToString())

    async def _ask(self, method: str, request: bytes, principal: Principal) -> bytes:
        if self._cache is None:
            raise MeshError(
                ErrorReason.ERROR_REASON_UNSUPPORTED,
                "the mesh has no cache service, and stores no answers",
                metadata={"feature": "cache"},
            )
        try:
            return await self._cache.unary(method, request, timeout_s=self._timeout_s, metadata=self._sign(principal))
        except Unavailable as error:
            raise MeshError(
                ErrorReason.ERROR_REASON_STORE_UNAVAILABLE,
                "the cache does not answer; what was asked may have been done in part",
                retry_after_ms=1000,
            ) from error
