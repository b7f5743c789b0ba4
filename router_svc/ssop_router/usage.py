"""UsageService: what tenants used, and what that costs at the router's prices."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Final

from ssop.v1.cache_pb2 import ReadUsageRequest, ReadUsageResponse
from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.usage_pb2 import GetUsageRequest, GetUsageResponse
from ssop_chassis.api_keys import TENANT
from ssop_chassis.call import Call
from ssop_chassis.errors import MeshError, invalid_request
from ssop_chassis.identity import Principal
from ssop_router.core.policy import TIER_OF_WORD
from ssop_router.dependency import Dependency, InnerMetadata, Unavailable
from ssop_router.policy_settings import PriceTable, TierWord

MAX_DAYS: Final = 62
_METHOD: Final = "/ssop.v1.CacheService/ReadUsage"
_PER: Final = 1_000_000


class UsageServicer:
    """See `usage.proto`. `cache` is None where the mesh has no cache service. Prices are those of a million tokens."""

    def __init__(
        self,
        cache: Dependency | None,
        prices: Mapping[TierWord, PriceTable],
        *,
        sign: Callable[[Principal], InnerMetadata],
        timeout_s: float,
    ) -> None:
        self._cache = cache
        self._price_of = {TIER_OF_WORD[word]: price for word, price in prices.items()}
        self._sign = sign
        self._timeout_s = timeout_s

    async def get_usage(self, call: Call) -> None:
        """See UsageService.GetUsage."""
        request = GetUsageRequest.FromString(call.request)
        if request.days > MAX_DAYS:
            raise invalid_request(("days", f"must be at most {MAX_DAYS}"))
        principal = call.principal
        if request.tenant and request.tenant != principal.tenant:
            principal.require("admin")
            if not TENANT.fullmatch(request.tenant):
                raise invalid_request(("tenant", "must be 1 to 64 characters of [A-Za-z0-9._-]"))
            principal = dataclasses.replace(principal, tenant=request.tenant)
        found = await self._read(principal, request.days or 1)
        for day in found.days:
            for usage in day.tiers:
                price = self._price_of.get(usage.tier)
                if price is not None:
                    usage.cost = (usage.input_tokens * price.input + usage.output_tokens * price.output) / _PER
        response = GetUsageResponse(tenant=principal.tenant, days=found.days)
        await call.write(response.SerializeToString())

    async def _read(self, principal: Principal, days: int) -> ReadUsageResponse:
        if self._cache is None:
            raise MeshError(
                ErrorReason.ERROR_REASON_UNSUPPORTED,
                "the mesh has no cache service, and counts no usage",
                metadata={"feature": "usage"},
            )
        try:
            reply = await self._cache.unary(
                _METHOD,
                ReadUsageRequest(days=days).SerializeToString(),
                timeout_s=self._timeout_s,
                metadata=self._sign(principal),
            )
        except Unavailable as error:
            raise MeshError(
                ErrorReason.ERROR_REASON_STORE_UNAVAILABLE, "the store of usage does not answer", retry_after_ms=1000
            ) from error
        return ReadUsageResponse.FromString(reply)
