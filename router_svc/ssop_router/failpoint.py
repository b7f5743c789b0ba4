"""A fault to order: document frames that are lost between the probe that counts them and the client.

It shows that losses are seen. Only the environment switches it on, with two variables of which the second says what
it does; either one alone, or a share that is none, stops the start.
"""

import logging
from collections.abc import Mapping
from typing import Final

from ssop_chassis.settings import SettingsError
from ssop_codec import scan_heads
from ssop_router.core.frames import FIRST_MESH_KIND, split_frames
from ssop_router.delivery import FIELD_KINDS
from ssop_router.metrics import RouterMetrics

SHARE_VARIABLE: Final = "SSOP_TEST_DROP_FRAMES"
CONSENT_VARIABLE: Final = "SSOP_TEST_DROP_FRAMES_CONSENT"
CONSENT: Final = "clients of this router lose answers"
_MAX_SHARE: Final = 0.5
_log = logging.getLogger(__name__)


class FrameLoss:
    """Drops a share of all document frames. Headers and ends stay, so that what is lost is a gap and no other fault."""

    def __init__(self, share: float, metrics: RouterMetrics) -> None:
        self._share = share
        self._metrics = metrics
        self._due = 0.0

    def thin(self, chunk: bytes) -> bytes:
        """The chunk without the frames whose turn it is."""
        kept: list[bytes] = []
        for (kind, _, _), frame in zip(scan_heads(chunk), split_frames(chunk), strict=True):
            self._due += self._share if kind < FIRST_MESH_KIND else 0
            if self._due >= 1 and kind in FIELD_KINDS:
                self._due -= 1
                self._metrics.frames_dropped.inc()
                continue
            kept.append(frame)
        return b"".join(kept)


def open_failpoint(environ: Mapping[str, str], metrics: RouterMetrics) -> FrameLoss | None:
    """What the environment asks for; None, as always in production. Raises SettingsError."""
    text, consent = environ.get(SHARE_VARIABLE), environ.get(CONSENT_VARIABLE)
    if text is None and consent is None:
        return None
    if text is None or consent != CONSENT:
        raise SettingsError(f"{SHARE_VARIABLE} breaks answers, so it needs {CONSENT_VARIABLE}='{CONSENT}'")
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= _MAX_SHARE:
        raise SettingsError(f"{SHARE_VARIABLE} is a share above 0, of at most {_MAX_SHARE}")
    _log.warning("a failpoint is on: this router loses frames of its answers", extra={"share": share})
    return FrameLoss(share, metrics)
