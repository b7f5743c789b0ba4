"""The failpoint that loses frames: never on by accident, and exact where it is on."""

import pytest
from prometheus_client import CollectorRegistry

from ssop_chassis.settings import SettingsError
from ssop_codec import Decoder, Encoder, FrameKind, scan_heads
from ssop_router.failpoint import CONSENT, CONSENT_VARIABLE, SHARE_VARIABLE, FrameLoss, open_failpoint
from ssop_router.metrics import RouterMetrics


def metrics() -> RouterMetrics:
    return RouterMetrics(CollectorRegistry())


def document(length: int) -> bytes:
    encoder = Encoder(None)
    encoder.feed(b"[" + b",".join([b"1"] * length) + b"]")
    encoder.finish()
    return b"".join(encoder.drain(True))


def test_it_is_off_where_nothing_asks_for_it() -> None:
    assert open_failpoint({"SSOP_CONFIG": "x"}, metrics()) is None


@pytest.mark.parametrize(
    "environ",
    [
        {SHARE_VARIABLE: "0.01"},
        {SHARE_VARIABLE: "0.01", CONSENT_VARIABLE: "yes"},
        {CONSENT_VARIABLE: CONSENT},
        {SHARE_VARIABLE: "0", CONSENT_VARIABLE: CONSENT},
        {SHARE_VARIABLE: "0.6", CONSENT_VARIABLE: CONSENT},
        {SHARE_VARIABLE: "nan", CONSENT_VARIABLE: CONSENT},
        {SHARE_VARIABLE: "", CONSENT_VARIABLE: CONSENT},
    ],
)
def test_half_a_wish_stops_the_start(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=SHARE_VARIABLE):
        open_failpoint(environ, metrics())


def test_its_start_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    open_failpoint({SHARE_VARIABLE: "0.01", CONSENT_VARIABLE: CONSENT}, metrics())
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_one_frame_of_a_hundred_is_lost_and_no_header_or_end() -> None:
    loss = FrameLoss(0.01, metrics())
    before = after = 0
    for _ in range(50):
        chunk = document(18)
        thinned = loss.thin(chunk)
        before += len(scan_heads(chunk))
        kinds = [kind for kind, _, _ in scan_heads(thinned)]
        assert (kinds[0], kinds[-1]) == (FrameKind.HEADER, FrameKind.END)
        after += len(kinds)
    assert before - after == before // 100


def test_a_client_sees_the_gap() -> None:
    decoder = Decoder()
    decoder.feed(FrameLoss(0.1, metrics()).thin(document(20)))
    assert decoder.missing == 2
