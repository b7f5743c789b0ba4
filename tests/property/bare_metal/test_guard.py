"""The guard in C against its slow twin."""

import ctypes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.packet_guard import ACK, SECOND_NS, SYN, Guard, Limits, SlowGuard, build_guard, tcp_v4

pytestmark = pytest.mark.needs("gcc")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build_guard(tmp_path_factory.mktemp("guard"))


LIMITS = st.builds(
    Limits,
    syn_rate=st.integers(1, 20),
    syn_burst=st.integers(1, 5),
    packet_rate=st.integers(1, 50),
    packet_burst=st.integers(1, 10),
    guard_rate=st.integers(1, 20),
    guard_burst=st.integers(1, 5),
)
SEGMENTS = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.sampled_from([SYN, SYN, ACK, SYN | ACK, 0, 0x05]),
        st.one_of(st.just(0), st.integers(0, SECOND_NS // 20), st.integers(0, 12 * SECOND_NS)),
    ),
    max_size=60,
)


@given(limits=LIMITS, segments=SEGMENTS)
def test_guard_judges_as_its_twin(library: ctypes.CDLL, limits: Limits, segments: list[tuple[int, int, int]]) -> None:
    guard, twin = Guard(library, limits), SlowGuard(limits)
    now_ns = SECOND_NS
    for host, flags, pause_ns in segments:
        now_ns += pause_ns
        address = f"192.0.2.{host}"
        assert guard.judge(tcp_v4(address, flags=flags), now_ns)[0] == twin.judge(address, flags, now_ns)
