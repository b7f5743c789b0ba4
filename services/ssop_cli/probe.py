"""Asking a child whether it serves: grpc.health.v1 of services, PING of Redis, /readyz of the HTTP edge."""

import asyncio
from typing import Final

from grpc_health.v1 import health_pb2

from ssop_chassis.call import Peer
from ssop_chassis.errors import MeshError
from ssop_chassis.grpc_peer import connect
from ssop_chassis.tls import NO_TLS, Tls

PROBE_TIMEOUT_S: Final = 2.0
_CHECK: Final = "/grpc.health.v1.Health/Check"
_REQUEST: Final = health_pb2.HealthCheckRequest().SerializeToString()


class HealthProbe:
    """Asks one service. Health needs no principal."""

    def __init__(self, address: str, tls: Tls = NO_TLS) -> None:
        self._peer: Peer = connect(address, tls=tls)

    async def ask(self) -> bool | None:
        """True: it serves; False: it answers and does not serve; None: no answer."""
        try:
            answer = await self._peer.unary(_CHECK, _REQUEST, timeout_s=PROBE_TIMEOUT_S)
        except MeshError:
            return None
        status = health_pb2.HealthCheckResponse.FromString(answer).status
        return bool(status == health_pb2.HealthCheckResponse.SERVING)

    async def close(self) -> None:
        """Drop the connection."""
        await self._peer.close()


class HttpProbe:
    """Asks the HTTP edge."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def ask(self) -> bool | None:
        """True: it serves; False: it answers and does not serve; None: no answer."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                reader, writer = await self._connect()
                try:
                    writer.write(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                    line = await reader.readline()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return None
        return line.split()[1:2] == [b"200"] if line else None

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._address.startswith("unix:"):
            return await asyncio.open_unix_connection(self._address.removeprefix("unix:").removeprefix("//"))
        host, _, port = self._address.rpartition(":")
        return await asyncio.open_connection(host.strip("[]"), int(port))

    async def close(self) -> None:
        """Nothing is held."""


class RedisProbe:
    """Asks one Redis on a unix socket."""

    def __init__(self, socket: str) -> None:
        self._socket = socket

    async def ask(self) -> bool | None:
        """True: it serves; False: it loads its data; None: no answer."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                reader, writer = await asyncio.open_unix_connection(self._socket)
                try:
                    writer.write(b"PING\r\n")
                    line = await reader.readline()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return None
        return None if not line else line.startswith(b"+PONG")

    async def close(self) -> None:
        """Nothing is held."""
