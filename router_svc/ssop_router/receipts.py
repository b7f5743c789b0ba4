# cython: annotation_typing=False
"""Three numbers: document frames sent, received and verified. The last two come from clients, and are not trusted.

`receipts.pxd` gives the types with which this very file is compiled.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from ssop.v1.mesh_pb2 import Receipt
from ssop_codec.probes import stream_number
from ssop_router.metrics import RouterMetrics
from ssop_router.outlet import DirectOutlet, Write

_SIZE: Final = 10_000


class _Entry:
    __slots__ = ("is_receipted", "is_whole", "received", "sent", "verified")

    def __init__(self) -> None:
        self.sent = self.received = self.verified = 0
        self.is_whole = self.is_receipted = False


class Receipts:
    """Totals, and the last 10,000 requests. A receipt counts at most what was sent, and each frame once."""

    def __init__(self, metrics: RouterMetrics, *, thin: Callable[[bytes], bytes] | None = None) -> None:
        """`thin` is what a failpoint makes of each chunk."""
        self.sent = self.received = self.verified = 0
        self._metrics = metrics
        self._thin = thin
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()

    def watch(self, write: Write, request_id: str) -> DirectOutlet:
        """The way of a request's chunks to a client."""
        thin = self._thin
        return DirectOutlet(write if thin is None else lambda chunk: write(thin(chunk)), stream_number(request_id))

    def record_sent(self, tenant: str, request_id: str, frames: int, is_whole: bool) -> None:
        """Document frames went to the client of a request; `is_whole`: all that there were."""
        if not frames:
            return
        self.sent += frames
        self._metrics.frames_sent.inc(frames)
        name = (tenant, request_id)
        entry = self._entries.get(name)
        if entry is None:
            entry = self._entries[name] = _Entry()
        entry.sent += frames
        entry.is_whole = entry.is_whole or is_whole
        if len(self._entries) > _SIZE:
            self._entries.popitem(last=False)

    def of_request(self, tenant: str, request_id: str) -> tuple[int, int, int]:
        """Document frames of one request: sent, received, verified."""
        entry = self._entries.get((tenant, request_id), _Entry())
        return entry.sent, entry.received, entry.verified

    def record(self, tenant: str, receipts: Iterable[Receipt]) -> None:
        """Count what a client says it got; requests of other tenants, or long gone, count nothing."""
        for receipt in receipts:
            entry = self._entries.get((tenant, receipt.request_id))
            if entry is None:
                continue
            received = min(receipt.frames_received, entry.sent)
            verified = min(receipt.frames_verified, received)
            self._add(entry, max(entry.received, received), max(entry.verified, verified))
            if not entry.is_receipted and (entry.is_whole or verified < received):
                # Of an answer that its client gave up, what was on the way is no loss, unless there was a gap before.
                self._metrics.frames_lost.inc(entry.sent - entry.received)
            entry.is_receipted = True

    def _add(self, entry: _Entry, received: int, verified: int) -> None:
        self.received += received - entry.received
        self.verified += verified - entry.verified
        self._metrics.frames_received.inc(received - entry.received)
        self._metrics.frames_verified.inc(verified - entry.verified)
        entry.received, entry.verified = received, verified
