"""Which messages came compressed. Handlers and callers of the mesh are not told; gRPC's interop cases ask."""

from collections import deque
from typing import Final

from ssop_transport import _stream, compression

_KEPT: Final = 64
"""Messages that are remembered. Cases look at one as soon as they have it."""


class Unpacked:
    """The messages that this process has unpacked last, by identity: what was sent as it is never gets here."""

    def __init__(self) -> None:
        self._found: deque[bytes] = deque(maxlen=_KEPT)

    def watch(self) -> None:
        """From now on."""
        vars(_stream)["unpack"] = self._unpack

    def _unpack(self, encoding: bytes, packed: bytes, most_bytes: int) -> bytes:
        message = compression.unpack(encoding, packed, most_bytes)
        self._found.append(message)
        return message

    def __contains__(self, message: object) -> bool:
        return any(known is message for known in self._found)
