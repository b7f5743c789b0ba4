"""KeyStoreService: the records of API keys in the state instance, for the routers of a mesh."""

import logging
from typing import Final

from google.protobuf.message import DecodeError

from ssop.v1 import keys_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_cache.core import scripts
from ssop_cache.store import RedisStore
from ssop_chassis.call import Call
from ssop_chassis.errors import MeshError, invalid_request
from ssop_chassis.identity import RESERVED_TENANT

MAX_KEYS: Final = 10_000
"""A reply with so many records fits a message of 4 MiB."""
MAX_RECORD_BYTES: Final = 400
_NO_ROOM: Final = -1
_log = logging.getLogger(__name__)


class KeyStoreServicer:
    """Reads all or nothing, writes one at a time. What the records say is the routers' business."""

    def __init__(self, state: RedisStore) -> None:
        self._state = state

    async def read_keys(self, call: Call) -> None:
        """See KeyStoreService.ReadKeys."""
        require_router(call)
        request = keys_pb2.ReadKeysRequest.FromString(call.request)
        version, *records = await self._state.run(scripts.read_keys(request.known_version))
        response = keys_pb2.ReadKeysResponse(version=int(version))
        for record in records:
            try:
                response.records.append(keys_pb2.KeyRecord.FromString(scripts.data(record)))
            except DecodeError:
                # One that is spoilt must not keep the others from the routers; it can be of no key that is good.
                _log.error("the store holds a record of a key that can't be read; it is left out")
        await call.write(response.SerializeToString())

    async def write_key(self, call: Call) -> None:
        """See KeyStoreService.WriteKey."""
        require_router(call)
        request = keys_pb2.WriteKeyRequest.FromString(call.request)
        key_id = request.record.info.key_id
        if not key_id or (request.HasField("expected") and request.expected.info.key_id != key_id):
            raise invalid_request(("record.info.key_id", "must be that of the record that is expected"))
        record = request.record.SerializeToString(deterministic=True)
        if len(record) > MAX_RECORD_BYTES:
            raise invalid_request(("record", f"is longer than {MAX_RECORD_BYTES} bytes"))
        expected = request.expected.SerializeToString(deterministic=True)
        (outcome,) = await self._state.run(scripts.write_key(key_id, expected, record, most=MAX_KEYS))
        if outcome == _NO_ROOM:
            raise MeshError(
                ErrorReason.ERROR_REASON_REQUEST_INVALID, f"the mesh has {MAX_KEYS} keys, and takes no more"
            )
        await call.write(keys_pb2.WriteKeyResponse(is_written=outcome == 1).SerializeToString())


def require_router(call: Call) -> None:
    """Raise PRINCIPAL_INVALID for all but services that speak for the mesh; callers' principals come here too."""
    if call.principal.tenant != RESERVED_TENANT:
        raise MeshError(ErrorReason.ERROR_REASON_PRINCIPAL_INVALID, "only services of the mesh may call this")
