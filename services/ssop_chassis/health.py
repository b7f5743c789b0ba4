"""grpc.health.v1 over `Call`. Not serving until told so; a drain ends open watches, so that it is not held up."""

import asyncio
from collections.abc import Iterable
from typing import Final

from grpc_health.v1 import health_pb2

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Call, Service, bind
from ssop_chassis.errors import MeshError

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
MAX_WATCHES: Final = 64
"""A watch needs no key and may last, so watches must not fill what a server takes of calls."""
_RETRY_AFTER_MS: Final = 1_000


class Health:
    """The health of a server; "" is the whole of it, and the named services share its state."""

    def __init__(self, services: Iterable[str]) -> None:
        self._names = {"", *services}
        self._is_serving = False
        self._is_closed = False
        self._watches = 0
        self._changed = asyncio.Event()

    def set_serving(self, is_serving: bool) -> None:
        """Say whether calls should come; watchers are told."""
        self._is_serving = is_serving
        self._wake()

    def close(self) -> None:
        """Not serving any more; open watches are told and end."""
        self._is_closed = True
        self.set_serving(False)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _status(self, name: str) -> int:
        if name not in self._names:
            return int(_SERVICE_UNKNOWN)
        return int(_SERVING if self._is_serving else _NOT_SERVING)

    async def check(self, call: Call) -> None:
        """Answer once; NOT_FOUND for a service that is not here, as the protocol demands."""
        name = health_pb2.HealthCheckRequest.FromString(call.request).service
        if name not in self._names:
            raise MeshError(ErrorReason.ERROR_REASON_REQUEST_UNKNOWN, "no such service")
        await call.write(health_pb2.HealthCheckResponse(status=self._status(name)).SerializeToString())

    async def watch(self, call: Call) -> None:
        """Answer now and after every change, until the client goes or the server drains. Raises OVERLOADED."""
        name = health_pb2.HealthCheckRequest.FromString(call.request).service
        if self._watches >= MAX_WATCHES:
            raise MeshError(
                ErrorReason.ERROR_REASON_OVERLOADED, "too many watch the health", retry_after_ms=_RETRY_AFTER_MS
            )
        self._watches += 1
        try:
            await self._watch(call, name)
        finally:
            self._watches -= 1

    async def _watch(self, call: Call, name: str) -> None:
        sent: int | None = None
        while True:
            changed = self._changed
            status = self._status(name)
            if status != sent:
                sent = status
                await call.write(health_pb2.HealthCheckResponse(status=status).SerializeToString())
            if self._is_closed:
                return
            await changed.wait()

    async def list(self, call: Call) -> None:
        """The state of every service."""
        statuses = {name: health_pb2.HealthCheckResponse(status=self._status(name)) for name in self._names}
        await call.write(health_pb2.HealthListResponse(statuses=statuses).SerializeToString())

    def service(self) -> Service:
        """The service to serve; needs no principal."""
        return bind(health_pb2.DESCRIPTOR.services_by_name["Health"], self, needs_principal=False)
