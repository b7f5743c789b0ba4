"""The guard of the DPDK front as a Python object over ctypes, its slow twin, and frames to show them."""

import ctypes
import socket
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).resolve().parents[2] / "k8s-free-deploy" / "guard"
SECOND_NS: Final = 1_000_000_000
VERDICTS: Final = ("passed", "malformed", "flags", "syn_rate", "packet_rate", "syn_guard")
SYN: Final = 0x02
ACK: Final = 0x10


class _Limits(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint32)
        for name in ("syn_rate", "syn_burst", "packet_rate", "packet_burst", "guard_rate", "guard_burst")
    ]


class _Guard(ctypes.Structure):
    _fields_ = [
        ("limits", _Limits),
        *(
            (name, ctypes.c_uint64)
            for name in (
                "syn_interval_ns",
                "syn_tolerance_ns",
                "packet_interval_ns",
                "packet_tolerance_ns",
                "guard_interval_ns",
                "guard_tolerance_ns",
                "guard_full_ns",
                "guarded_until_ns",
                "seed",
            )
        ),
        ("sets", ctypes.c_uint32),
        ("spread", ctypes.c_uint32),
        ("sources", ctypes.c_void_p),
        ("counts", ctypes.c_uint64 * len(VERDICTS)),
        ("evictions", ctypes.c_uint64),
    ]


class _Answer(ctypes.Structure):
    _fields_ = [("verdict", ctypes.c_int), ("way", ctypes.c_uint32)]


@dataclass(frozen=True, slots=True)
class Limits:
    """Rates are per second, bursts are packets."""

    syn_rate: int = 50
    syn_burst: int = 200
    packet_rate: int = 1_000
    packet_burst: int = 1_000
    guard_rate: int = 5_000
    guard_burst: int = 5_000


def build_guard(folder: Path, *flags: str) -> ctypes.CDLL:
    """Compile the guard as a shared library into a folder."""
    library = folder / "guard.so"
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]
    subprocess.run(
        ["gcc", "-O2", "-g", "-shared", "-fPIC", *warnings, *flags, str(SOURCES / "guard.c"), "-o", str(library)],
        check=True,
        timeout=60,
    )
    found = ctypes.CDLL(str(library))
    found.guard_table_bytes.restype = ctypes.c_size_t
    found.guard_judge.restype = _Answer
    found.guard_judge.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint64]
    found.guard_init.restype = ctypes.c_bool
    found.guard_init.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_uint32,
        ctypes.c_uint64,
    ]
    return found


class Guard:
    """The guard in C."""

    def __init__(self, library: ctypes.CDLL, limits: Limits, *, sources: int = 65_536, spread: int = 1) -> None:
        self._library = library
        # The table has to lie at a multiple of 64.
        self._memory = ctypes.create_string_buffer(library.guard_table_bytes(sources) + 64)
        table = -(-ctypes.addressof(self._memory) // 64) * 64
        self._guard = _Guard()
        numbers = _Limits(*(getattr(limits, name) for name in limits.__slots__))
        self.is_made = library.guard_init(
            ctypes.byref(self._guard), ctypes.byref(numbers), table, sources, spread, 0x5EED
        )

    def judge(self, frame: bytes, now_ns: int) -> tuple[str, int]:
        """Verdict and way of a frame."""
        # A buffer of just its size, so that a sanitizer sees a byte read behind it.
        answer = self._library.guard_judge(ctypes.byref(self._guard), frame, len(frame), now_ns)
        return VERDICTS[answer.verdict], answer.way

    @property
    def counts(self) -> dict[str, int]:
        """Frames by verdict."""
        return dict(zip(VERDICTS, self._guard.counts, strict=True))

    @property
    def evictions(self) -> int:
        """Sources that were pushed out of the table."""
        return int(self._guard.evictions)


@dataclass(slots=True)
class _Source:
    packets: list[int] = field(default_factory=list)
    syns: list[int] = field(default_factory=list)
    first_syn_ns: int | None = None
    trusted_until_ns: int = 0


def _take(taken_ns: list[int], now_ns: int, rate: int, burst: int) -> bool:
    """Replay all that was taken: the bucket holds `burst`, and one comes each interval."""
    interval_ns = SECOND_NS // rate
    full_ns = 0
    for at_ns in taken_ns:
        full_ns = max(full_ns, at_ns) + interval_ns
    if max(full_ns, now_ns) - now_ns > interval_ns * (burst - 1):
        return False
    taken_ns.append(now_ns)
    return True


class SlowGuard:
    """The guard for TCP over IPv4, from the rules: a dictionary without bounds, buckets replayed from the start."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._sources: dict[str, _Source] = {}
        self._all_syns: list[int] = []
        self._guarded_until_ns = 0

    def judge(self, address: str, flags: int, now_ns: int) -> str:
        """Verdict of a segment."""
        limits = self._limits
        if not flags or (flags & SYN and flags & 0x05) or flags & 0x05 == 0x05:
            return "flags"
        source = self._sources.setdefault(address, _Source())
        if not _take(source.packets, now_ns, limits.packet_rate, limits.packet_burst):
            return "packet_rate"
        if flags & (SYN | ACK) != SYN:
            return "passed"
        if not _take(source.syns, now_ns, limits.syn_rate, limits.syn_burst):
            return "syn_rate"
        if not _take(self._all_syns, now_ns, limits.guard_rate, limits.guard_burst):
            self._guarded_until_ns = now_ns + SECOND_NS
        if now_ns >= self._guarded_until_ns or now_ns < source.trusted_until_ns:
            return "passed"
        since_ns = None if source.first_syn_ns is None else now_ns - source.first_syn_ns
        if since_ns is not None and SECOND_NS // 5 <= since_ns <= 10 * SECOND_NS:
            source.trusted_until_ns = now_ns + 60 * SECOND_NS
            return "passed"
        if since_ns is None or since_ns > 10 * SECOND_NS:
            source.first_syn_ns = now_ns
        return "syn_guard"


def tcp_v4(
    source: str = "192.0.2.1",
    *,
    flags: int = ACK,
    port: int = 40_000,
    vlans: int = 0,
    fragment: int = 0,
    payload: bytes = b"",
) -> bytes:
    """An Ethernet frame with a TCP segment to 198.51.100.1:443."""
    segment = struct.pack("!HHIIBBHHH", port, 443, 1, 1, 5 << 4, flags, 65_535, 0, 0) + payload
    head = struct.pack(
        "!BBHHHBBH4s4s",
        0x45,
        0,
        20 + len(segment),
        0,
        fragment,
        64,
        6,
        0,
        socket.inet_aton(source),
        socket.inet_aton("198.51.100.1"),
    )
    return _ethernet(0x0800, vlans) + head + segment


def tcp_v6(source: str = "2001:db8::1", *, flags: int = ACK, port: int = 40_000) -> bytes:
    """The same over IPv6."""
    segment = struct.pack("!HHIIBBHHH", port, 443, 1, 1, 5 << 4, flags, 65_535, 0, 0)
    addresses = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, "2001:db8:ffff::1")
    return _ethernet(0x86DD, 0) + struct.pack("!IHBB", 6 << 28, len(segment), 6, 64) + addresses + segment


def arp() -> bytes:
    """A frame that is no IP."""
    return _ethernet(0x0806, 0) + bytes(28)


def cuts(frame: bytes) -> Iterator[bytes]:
    """Every beginning of a frame."""
    yield from (frame[:length] for length in range(len(frame)))


def _ethernet(kind: int, vlans: int) -> bytes:
    return bytes(12) + b"\x81\x00\x00\x07" * vlans + kind.to_bytes(2, "big")
