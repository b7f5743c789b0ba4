"""`client.keys`: the API keys of the mesh. Both clients have the same methods; needs the scope `admin`."""

from collections.abc import Iterable, Sequence
from typing import Final

from ssop.v1 import keys_pb2 as pb
from ssop_sdk.index import AsyncCall, Call

_SERVICE: Final = "/ssop.v1.KeyService/"
_CREATE: Final = f"{_SERVICE}CreateKey"
_LIST: Final = f"{_SERVICE}ListKeys"
_ROTATE: Final = f"{_SERVICE}RotateKey"
_REVOKE: Final = f"{_SERVICE}RevokeKey"


class KeyAdmin:
    """Makes and ends keys. `plain_key` of what `create` and `rotate` return exists nowhere else.

    ```python
    key = client.keys.create("acme", ["lite", "ssop"], lifetime_ms=90 * 86_400_000)
    hand_over(key.plain_key)
    ```
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    def create(
        self, tenant: str, scopes: Iterable[str], *, key_id: str = "", lifetime_ms: int = 0
    ) -> pb.CreateKeyResponse:
        """Make a key; without a lifetime it is good until it is revoked. Raises KeyExists."""
        request = pb.CreateKeyRequest(key_id=key_id, tenant=tenant, scopes=list(scopes), lifetime_ms=lifetime_ms)
        return self._call(_CREATE, request, pb.CreateKeyResponse, None)

    def show(self, tenant: str = "") -> Sequence[pb.KeyInfo]:
        """All keys, or a tenant's, by id; never their secrets."""
        return self._call(_LIST, pb.ListKeysRequest(tenant=tenant), pb.ListKeysResponse, None).keys

    def rotate(self, key_id: str, *, overlap_ms: int = 0) -> pb.RotateKeyResponse:
        """Give a key a new secret; the old one is good for the overlap. Raises KeyUnknown."""
        request = pb.RotateKeyRequest(key_id=key_id, overlap_ms=overlap_ms)
        return self._call(_ROTATE, request, pb.RotateKeyResponse, None)

    def revoke(self, key_id: str) -> pb.KeyInfo:
        """End a key, within seconds on every router. Raises KeyUnknown."""
        return self._call(_REVOKE, pb.RevokeKeyRequest(key_id=key_id), pb.RevokeKeyResponse, None).key


class AsyncKeyAdmin:
    """`KeyAdmin` for asyncio."""

    def __init__(self, call: AsyncCall) -> None:
        self._call = call

    async def create(
        self, tenant: str, scopes: Iterable[str], *, key_id: str = "", lifetime_ms: int = 0
    ) -> pb.CreateKeyResponse:
        """See KeyAdmin.create."""
        request = pb.CreateKeyRequest(key_id=key_id, tenant=tenant, scopes=list(scopes), lifetime_ms=lifetime_ms)
        return await self._call(_CREATE, request, pb.CreateKeyResponse, None)

    async def show(self, tenant: str = "") -> Sequence[pb.KeyInfo]:
        """See KeyAdmin.show."""
        return (await self._call(_LIST, pb.ListKeysRequest(tenant=tenant), pb.ListKeysResponse, None)).keys

    async def rotate(self, key_id: str, *, overlap_ms: int = 0) -> pb.RotateKeyResponse:
        """See KeyAdmin.rotate."""
        request = pb.RotateKeyRequest(key_id=key_id, overlap_ms=overlap_ms)
        return await self._call(_ROTATE, request, pb.RotateKeyResponse, None)

    async def revoke(self, key_id: str) -> pb.KeyInfo:
        """See KeyAdmin.revoke."""
        return (await self._call(_REVOKE, pb.RevokeKeyRequest(key_id=key_id), pb.RevokeKeyResponse, None)).key
