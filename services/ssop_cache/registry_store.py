"""RegistryService: leases of nodes that announce themselves, in the state instance."""

import re
from typing import Final

from ssop.v1 import registry_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_cache.core.registry import announce_node, list_nodes, read_leases, withdraw_node
from ssop_cache.core.scripts import number
from ssop_cache.key_store import require_router
from ssop_cache.store import RedisStore
from ssop_chassis.call import Call
from ssop_chassis.errors import MeshError, invalid_request

MAX_ADDRESS_BYTES: Final = 256
MAX_ANNOUNCEMENT_BYTES: Final = 1_024
LEASE_MS: Final = range(500, 600_001)
_INSTANCE: Final = re.compile(r"[0-9a-f]{32}")


class RegistryServicer:
    """Keeps and hands on; whom an announcement speaks for is the routers' business."""

    def __init__(self, state: RedisStore) -> None:
        self._state = state

    async def announce_node(self, call: Call) -> None:
        """See RegistryService.AnnounceNode."""
        require_router(call)
        request = registry_pb2.AnnounceNodeRequest.FromString(call.request)
        _check(request.address, request.instance)
        if request.lease_ms not in LEASE_MS:
            raise invalid_request(("lease_ms", f"must be from {LEASE_MS.start} to {LEASE_MS.stop - 1}"))
        if not 0 < len(request.announcement) <= MAX_ANNOUNCEMENT_BYTES:
            raise invalid_request(("announcement", f"must have 1 to {MAX_ANNOUNCEMENT_BYTES} bytes"))
        lease = announce_node(request.address, request.instance, request.lease_ms, request.announcement)
        (is_taken,) = await self._state.run(lease)
        if not number(is_taken):
            raise MeshError(ErrorReason.ERROR_REASON_QUOTA_EXHAUSTED, "too many nodes have announced themselves")
        await call.write(registry_pb2.AnnounceNodeResponse().SerializeToString())

    async def withdraw_node(self, call: Call) -> None:
        """See RegistryService.WithdrawNode."""
        require_router(call)
        request = registry_pb2.WithdrawNodeRequest.FromString(call.request)
        _check(request.address, request.instance)
        (was_there,) = await self._state.run(withdraw_node(request.address, request.instance))
        await call.write(registry_pb2.WithdrawNodeResponse(was_there=bool(number(was_there))).SerializeToString())

    async def list_nodes(self, call: Call) -> None:
        """See RegistryService.ListNodes."""
        require_router(call)
        leases = read_leases(await self._state.run(list_nodes()))
        response = registry_pb2.ListNodesResponse(
            leases=[registry_pb2.NodeLease(announcement=lease.announcement, age_ms=lease.age_ms) for lease in leases]
        )
        await call.write(response.SerializeToString())


def _check(address: str, instance: str) -> None:
    if not 0 < len(address.encode()) <= MAX_ADDRESS_BYTES:
        raise invalid_request(("address", f"must have 1 to {MAX_ADDRESS_BYTES} bytes"))
    if not _INSTANCE.fullmatch(instance):
        raise invalid_request(("instance", "must be 32 hexadecimal digits"))
