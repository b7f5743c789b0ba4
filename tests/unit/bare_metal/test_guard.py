"""The guard of the DPDK front: what passes, what is dropped, and why."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from helpers.packet_guard import ACK, SECOND_NS, SOURCES, SYN, Guard, Limits, arp, build_guard, cuts, tcp_v4, tcp_v6

pytestmark = pytest.mark.needs("gcc")
START_NS = 5 * SECOND_NS


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build_guard(tmp_path_factory.mktemp("guard"))


def test_what_is_no_ip_passes(library: ctypes.CDLL) -> None:
    assert Guard(library, Limits()).judge(arp(), START_NS) == ("passed", 0)


@pytest.mark.parametrize("frame", [tcp_v4(), tcp_v4(vlans=2), tcp_v6()], ids=["v4", "two vlans", "v6"])
def test_whole_segment_passes_and_no_beginning_of_it_does(library: ctypes.CDLL, frame: bytes) -> None:
    guard = Guard(library, Limits())
    assert guard.judge(frame, START_NS)[0] == "passed"
    assert {guard.judge(cut, START_NS)[0] for cut in cuts(frame)} == {"malformed"}


def test_padding_of_a_short_frame_passes(library: ctypes.CDLL) -> None:
    assert Guard(library, Limits()).judge(tcp_v4() + bytes(6), START_NS)[0] == "passed"


@pytest.mark.parametrize("flags", [0x00, 0x03, 0x06, 0x05, 0x3F], ids=["none", "SYN FIN", "SYN RST", "FIN RST", "all"])
def test_flags_that_no_stack_sends_are_dropped(library: ctypes.CDLL, flags: int) -> None:
    assert Guard(library, Limits()).judge(tcp_v4(flags=flags), START_NS)[0] == "flags"


def test_source_opens_so_many_connections_at_once_and_then_at_its_rate(library: ctypes.CDLL) -> None:
    guard = Guard(library, Limits(syn_rate=10, syn_burst=3))
    at_once = [guard.judge(tcp_v4(flags=SYN), START_NS)[0] for _ in range(4)]
    assert at_once == ["passed", "passed", "passed", "syn_rate"]
    assert guard.judge(tcp_v4(flags=SYN), START_NS + SECOND_NS // 10)[0] == "passed"
    assert guard.judge(tcp_v4(flags=SYN), START_NS + SECOND_NS // 10)[0] == "syn_rate"


def test_one_source_leaves_another_its_rate(library: ctypes.CDLL) -> None:
    guard = Guard(library, Limits(packet_rate=1, packet_burst=1))
    assert guard.judge(tcp_v4("192.0.2.1"), START_NS)[0] == "passed"
    assert guard.judge(tcp_v4("192.0.2.1"), START_NS)[0] == "packet_rate"
    assert guard.judge(tcp_v4("192.0.2.2"), START_NS)[0] == "passed"


def test_addresses_of_one_v6_network_are_one_source(library: ctypes.CDLL) -> None:
    guard = Guard(library, Limits(packet_rate=1, packet_burst=1))
    assert guard.judge(tcp_v6("2001:db8:0:1::1"), START_NS)[0] == "passed"
    assert guard.judge(tcp_v6("2001:db8:0:1::2"), START_NS)[0] == "packet_rate"
    assert guard.judge(tcp_v6("2001:db8:0:2::1"), START_NS)[0] == "passed"


def test_fragments_of_a_packet_go_one_way(library: ctypes.CDLL) -> None:
    guard = Guard(library, Limits(), spread=16)
    first, later = tcp_v4(fragment=0x2000), tcp_v4(fragment=0x0010, port=1)
    assert guard.judge(first, START_NS) == guard.judge(later, START_NS)


def test_segments_of_a_flow_go_one_way_and_flows_spread(library: ctypes.CDLL) -> None:
    guard = Guard(library, Limits(), spread=4)
    ways = [guard.judge(tcp_v4(port=port), START_NS)[1] for port in range(1_000, 1_400)]
    again = [guard.judge(tcp_v4(port=port, payload=b"more"), START_NS)[1] for port in range(1_000, 1_400)]
    assert ways == again
    assert all(60 < ways.count(way) < 140 for way in range(4))


def test_flood_of_forged_sources_is_held_back_and_a_client_that_tries_again_is_not(library: ctypes.CDLL) -> None:
    guard = Guard(library, Limits(guard_rate=100, guard_burst=100))
    flood = [guard.judge(tcp_v4(f"198.18.{n >> 8}.{n & 255}", flags=SYN), START_NS + n)[0] for n in range(2_000)]
    assert flood.count("passed") == 100
    client = tcp_v4("192.0.2.9", flags=SYN)
    assert guard.judge(client, START_NS + 2_000)[0] == "syn_guard"
    assert guard.judge(client, START_NS + 3_000)[0] == "syn_guard"
    later_ns = START_NS + SECOND_NS - 1
    assert guard.judge(client, later_ns)[0] == "passed"
    assert guard.judge(tcp_v4("192.0.2.9", flags=ACK), later_ns)[0] == "passed"


def test_connections_that_are_open_stay_so_under_a_flood(library: ctypes.CDLL) -> None:
    guard = Guard(library, Limits(guard_rate=1, guard_burst=1))
    for number in range(50):
        guard.judge(tcp_v4(f"198.18.0.{number}", flags=SYN), START_NS)
    assert guard.judge(tcp_v4("192.0.2.1", flags=ACK), START_NS)[0] == "passed"


def test_busy_source_is_remembered_while_a_flood_pushes_others_out(library: ctypes.CDLL) -> None:
    guard = Guard(library, Limits(packet_rate=1, packet_burst=30), sources=64)
    busy = tcp_v4("192.0.2.1")
    for _ in range(30):
        guard.judge(busy, START_NS)
    for number in range(5_000):
        guard.judge(tcp_v4(f"198.18.{number >> 8}.{number & 255}"), START_NS)
    assert guard.evictions > 4_000
    assert guard.judge(busy, START_NS)[0] == "packet_rate"


def test_limits_of_zero_are_refused(library: ctypes.CDLL) -> None:
    assert not Guard(library, Limits(syn_rate=0)).is_made
    assert not Guard(library, Limits(), spread=0).is_made
    assert Guard(library, Limits()).is_made


def test_each_verdict_is_counted(library: ctypes.CDLL) -> None:
    guard = Guard(library, Limits(packet_rate=1, packet_burst=2))
    for frame in (b"", tcp_v4(), tcp_v4(), tcp_v4(), tcp_v4(flags=0)):
        guard.judge(frame, START_NS)
    assert guard.counts == {
        "passed": 2, "malformed": 1, "flags": 1, "syn_rate": 0, "packet_rate": 1, "syn_guard": 0,
    }  # fmt: skip


def test_random_bytes_read_nothing_behind_the_frame(tmp_path: Path) -> None:
    program = tmp_path / "fuzz"
    sources = [str(Path(__file__).with_name("guard_fuzz.c")), str(SOURCES / "guard.c")]
    flags = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{SOURCES}"]
    subprocess.run(["gcc", *flags, *sources, "-o", str(program)], check=True, timeout=60)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
