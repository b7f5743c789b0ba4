"""What nodes say of themselves: who is believed, and where a node may be."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssop_chassis.announcement import (
    Announced,
    AnnouncementError,
    is_proof,
    is_within,
    prove,
    read_address,
    read_networks,
    sign_announcement,
    verify_announcement,
)

OWN, OLD, OTHER = b"a" * 32, b"b" * 32, b"c" * 32
NOW_MS = 1_000_000
GOOD = Announced("10.0.0.1:7310", "node-1", "0" * 32, NOW_MS, 5_000)


def verify(announced: Announced, *, secret: bytes = OWN, now_ms: int = NOW_MS) -> Announced:
    return verify_announcement(sign_announcement(announced, secret), (OWN, OLD), now_ms=now_ms)


def test_what_was_signed_is_read() -> None:
    assert verify(GOOD) == GOOD


def test_secret_before_is_taken_while_it_is_rotated() -> None:
    assert verify(GOOD, secret=OLD) == GOOD


def test_another_secret_is_refused() -> None:
    with pytest.raises(AnnouncementError, match="signature"):
        verify(GOOD, secret=OTHER)


@given(st.integers(0, 31 + 60), st.integers(1, 255))
def test_every_changed_byte_is_noticed(index: int, mask: int) -> None:
    data = bytearray(sign_announcement(GOOD, OWN))
    data[index % len(data)] ^= mask
    with pytest.raises(AnnouncementError):
        verify_announcement(bytes(data), (OWN,), now_ms=NOW_MS)


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(AnnouncementError):
        verify_announcement(data, (OWN,), now_ms=NOW_MS)


@pytest.mark.parametrize(("age_ms", "is_good"), [(-5_001, False), (-5_000, True), (10_000, True), (10_001, False)])
def test_announcement_holds_for_its_lease_and_what_clocks_differ_by(age_ms: int, is_good: bool) -> None:
    if is_good:
        assert verify(GOOD, now_ms=NOW_MS + age_ms) == GOOD
        return
    with pytest.raises(AnnouncementError, match="too old"):
        verify(GOOD, now_ms=NOW_MS + age_ms)


@pytest.mark.parametrize(
    "changes",
    [
        {"address": "node.test:7310"},
        {"address": "10.0.0.1"},
        {"address": "0.0.0.0:7310"},
        {"address": "unix:relative"},
        {"node": ""},
        {"node": "a b"},
        {"instance": "0"},
        {"lease_ms": 0},
        {"lease_ms": 600_001},
    ],
)
def test_signed_nonsense_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(AnnouncementError):
        verify(replace(GOOD, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:07310", "127.0.0.1:7310"),
        ("::1:7310", "[::1]:7310"),
        ("[FC00::0:1]:7310", "[fc00::1]:7310"),
        ("unix:/run/ssop/n.sock", "unix:/run/ssop/n.sock"),
    ],
)
def test_address_has_one_form(text: str, expected: str) -> None:
    assert read_address(text) == expected


@pytest.mark.parametrize(
    "text", ["", ":1", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:\u0661", "224.0.0.1:1", "[::]:1", "unix:/a b", "dns:///a:1"]
)  # fmt: skip
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(AnnouncementError):
        read_address(text)


@pytest.mark.parametrize(
    ("address", "networks", "expected"),
    [
        ("10.1.2.3:1", ["10.0.0.0/8"], True),
        ("11.1.2.3:1", ["10.0.0.0/8"], False),
        ("[::ffff:10.1.2.3]:1", ["10.0.0.0/8"], True),
        ("[::ffff:11.1.2.3]:1", ["::/0"], False),
        ("[fc00::1]:1", ["fc00::/7"], True),
        ("unix:/s", ["unix"], True),
        ("unix:/s", ["0.0.0.0/0", "::/0"], False),
        ("10.0.0.1:1", ["unix"], False),
        ("10.0.0.1:1", [], False),
    ],
)
def test_networks_hold_what_is_in_them(address: str, networks: list[str], expected: bool) -> None:
    assert is_within(address, read_networks(networks)) == expected


def test_only_who_has_the_secret_can_prove_it() -> None:
    challenge = bytes(range(32))
    assert is_proof(prove(OLD, challenge), (OWN, OLD), challenge)
    assert not is_proof(prove(OTHER, challenge), (OWN, OLD), challenge)
    assert not is_proof(prove(OWN, challenge[::-1]), (OWN, OLD), challenge)
    assert not is_proof(b"", (OWN, OLD), challenge)
