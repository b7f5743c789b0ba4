"""A peer that is told nothing, not even who calls, before it has proved that it belongs to the mesh."""

import asyncio
import logging
import secrets
from collections.abc import Sequence
from typing import Final

from google.protobuf.message import DecodeError
from google.rpc import code_pb2

from ssop.v1 import registry_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.announcement import CHALLENGE_BYTES, is_proof
from ssop_chassis.call import Metadata, OnMessage, Peer
from ssop_chassis.errors import MeshError

PROVE: Final = "/ssop.v1.MembershipService/ProveMembership"
_PROOF_TIMEOUT_S: Final = 2.0
_log = logging.getLogger(__name__)
# After these the connection may be another one, and whoever answers at its other end, too.
_MAY_BE_LOST: Final = frozenset({code_pb2.UNAVAILABLE, code_pb2.UNKNOWN, code_pb2.INTERNAL, code_pb2.CANCELLED})


class ProvingPeer:
    """A Peer around another one. `secrets_` are those that a proof may be made with.

    The proof holds until a call fails in a way in which lost connections do; a stream of status runs all the time, and
    fails with its connection.
    """

    def __init__(self, peer: Peer, secrets_: Sequence[bytes]) -> None:
        self.inner = peer
        self._secrets = secrets_
        self._is_proven = False
        self._is_refused = False
        self._proving = asyncio.Lock()

    @property
    def address(self) -> str:
        """See Peer.address."""
        return self.inner.address

    async def unary(self, method: str, request: bytes, *, timeout_s: float, metadata: Metadata | None = None) -> bytes:
        """See Peer.unary."""
        await self._ensure(timeout_s)
        try:
            return await self.inner.unary(method, request, timeout_s=timeout_s, metadata=metadata)
        except MeshError as error:
            self._judge(error)
            raise

    async def stream(
        self,
        method: str,
        request: bytes,
        on_message: OnMessage,
        *,
        timeout_s: float,
        metadata: Metadata | None = None,
    ) -> Metadata:
        """See Peer.stream."""
        await self._ensure(timeout_s)
        try:
            return await self.inner.stream(method, request, on_message, timeout_s=timeout_s, metadata=metadata)
        except MeshError as error:
            self._judge(error)
            raise

    async def close(self) -> None:
        """See Peer.close."""
        await self.inner.close()

    def _judge(self, error: MeshError) -> None:
        if error.code in _MAY_BE_LOST:
            self._is_proven = False

    async def _ensure(self, timeout_s: float) -> None:
        """Raises BACKEND_FAILED where it can't prove itself, so that another node is asked."""
        if self._is_proven:
            return
        async with self._proving:
            if self._is_proven:
                return
            challenge = secrets.token_bytes(CHALLENGE_BYTES)
            request = registry_pb2.ProveMembershipRequest(challenge=challenge).SerializeToString()
            answer = await self.inner.unary(PROVE, request, timeout_s=min(timeout_s, _PROOF_TIMEOUT_S))
            try:
                proof = registry_pb2.ProveMembershipResponse.FromString(answer).proof
            except DecodeError:
                proof = b""
            if not is_proof(proof, self._secrets, challenge):
                if not self._is_refused:
                    self._is_refused = True
                    _log.error("a node is not of this mesh; it is sent nothing", extra={"address": self.address})
                raise MeshError(
                    ErrorReason.ERROR_REASON_BACKEND_FAILED, "whoever is at the node's address is not of this mesh"
                )
            self._is_proven, self._is_refused = True, False
