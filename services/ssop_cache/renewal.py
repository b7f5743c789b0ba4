"""Signs of life of the generations that run on one router for one tenant."""

from typing import Final

from ssop.v1.cache_pb2 import LeaseState, RenewRequest, RenewResponse
from ssop_cache.checks import check_key, check_lease, check_request_id
from ssop_cache.core import scripts
from ssop_cache.core.keys import TenantKeys
from ssop_cache.store import RedisStore
from ssop_chassis.errors import invalid_request

MAX_RENEWED: Final = 256
"""Leases and reservations that one call renews."""
_FOLLOWED: Final = 2


async def renew(state: RedisStore, keys: TenantKeys, request: RenewRequest) -> RenewResponse:
    """See CacheService.Renew. Raises REQUEST_INVALID, and as RedisStore."""
    if not 0 < len(request.request_ids) + len(request.leases) <= MAX_RENEWED:
        raise invalid_request(("leases", f"and request_ids must be from 1 to {MAX_RENEWED}"))
    for request_id in request.request_ids:
        check_request_id(request_id)
    for lease in request.leases:
        check_key(lease.cache_key)
    if request.request_ids:
        check_lease(request.reservation_ms, path="reservation_ms")
    if request.leases:
        check_lease(request.lease_ms)
    renewal = scripts.renew(
        keys,
        request.request_ids,
        [(lease.cache_key, lease.fencing_token) for lease in request.leases],
        reservation_ms=request.reservation_ms,
        lease_ms=request.lease_ms,
    )
    _, _, *held = await state.run(renewal)
    return RenewResponse(leases=[LeaseState(is_lost=not one, has_followers=one == _FOLLOWED) for one in held])
