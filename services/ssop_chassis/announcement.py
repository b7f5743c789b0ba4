"""What nodes say of themselves to be found: signed with the mesh's secret; and the proof that a node has it, too.

Nobody can forge an announcement without the secret, not even who may write in the store, and an old one is worth
nothing: it holds for its lease. Whoever listens there must prove that it has the secret before it is sent anything.
"""

import hmac
import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from ssop.v1 import registry_pb2
from ssop_chassis.identity import CLOCK_SKEW_MS

CHALLENGE_BYTES: Final = 32
MAX_LEASE_MS: Final = 600_000
UNIX: Final = "unix"
"""In place of a network: unix sockets."""
_MAC_BYTES: Final = 32
_INSTANCE: Final = re.compile(r"[0-9a-f]{32}")
_NODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SOCKET: Final = re.compile(r"unix:/[\x21-\x7e]{1,200}")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class AnnouncementError(ValueError):
    """An announcement that is not believed; the text says why, and holds nothing of it."""


@dataclass(frozen=True, slots=True)
class Announced:
    """A node that is at an address for `lease_ms` milliseconds from `issued_at_ms` on, the wall clock."""

    address: str
    node: str
    instance: str
    issued_at_ms: int
    lease_ms: int


def sign_announcement(announced: Announced, secret: bytes) -> bytes:
    """HMAC-SHA-256 (RFC 2104), then the message."""
    message = registry_pb2.Announcement(
        address=announced.address,
        node=announced.node,
        instance=announced.instance,
        issued_at_ms=announced.issued_at_ms,
        lease_ms=announced.lease_ms,
    ).SerializeToString()
    return _mac(secret, message) + message


def verify_announcement(data: bytes, secrets: Sequence[bytes], *, now_ms: int) -> Announced:
    """What was announced, if it was signed with any of the secrets and holds now. Raises AnnouncementError."""
    mac, message = data[:_MAC_BYTES], data[_MAC_BYTES:]
    if not any(hmac.compare_digest(mac, _mac(secret, message)) for secret in secrets):
        raise AnnouncementError("its signature is wrong")
    parsed = registry_pb2.Announcement()
    try:
        parsed.ParseFromString(message)
    except DecodeError as error:
        raise AnnouncementError("it is malformed") from error
    if not (_INSTANCE.fullmatch(parsed.instance) and _NODE.fullmatch(parsed.node)):
        raise AnnouncementError("its names are malformed")
    if not 0 < parsed.lease_ms <= MAX_LEASE_MS:
        raise AnnouncementError("its lease is too long")
    age_ms = now_ms - parsed.issued_at_ms
    if not -CLOCK_SKEW_MS <= age_ms <= parsed.lease_ms + CLOCK_SKEW_MS:
        raise AnnouncementError("it is too old, or the hosts' clocks differ")
    return Announced(read_address(parsed.address), parsed.node, parsed.instance, parsed.issued_at_ms, parsed.lease_ms)


def read_address(text: str) -> str:
    """An address as routers name it: `IP:port`, `[IP]:port` or `unix:/path`. Raises AnnouncementError for others.

    A host's name is none: who answers for a name can change while the announcement holds.
    """
    if text.startswith("unix:"):
        if not _SOCKET.fullmatch(text):
            raise AnnouncementError("its socket is malformed")
        return text
    host, _, digits = text.rpartition(":")
    try:
        ip = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError as error:
        raise AnnouncementError("its address is no IP address with a port") from error
    if not (digits.isascii() and digits.isdecimal() and 0 < int(digits) < 65_536):
        raise AnnouncementError("its port is malformed")
    if ip.is_unspecified or ip.is_multicast:
        raise AnnouncementError("its address is one that nobody can be reached at")
    return f"[{ip}]:{int(digits)}" if ip.version == 6 else f"{ip}:{int(digits)}"


def read_networks(texts: Iterable[str]) -> tuple[Network | None, ...]:
    """Networks of the settings; None stands for `unix`. Raises ValueError."""
    return tuple(None if text == UNIX else ipaddress.ip_network(text) for text in texts)


def is_within(address: str, networks: Sequence[Network | None]) -> bool:
    """Whether an address (of `read_address`) lies in one of the networks."""
    if address.startswith("unix:"):
        return None in networks
    ip = ipaddress.ip_address(address.rpartition(":")[0].strip("[]"))
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return any(network is not None and (mapped or ip) in network for network in networks)


def prove(secret: bytes, challenge: bytes) -> bytes:
    """The answer to a challenge of at least 16 random bytes, 32 bytes."""
    return hmac.digest(secret, b"ssop.node-proof.v1\0" + challenge, "sha256")


def is_proof(proof: bytes, secrets: Sequence[bytes], challenge: bytes) -> bool:
    """Whether somebody with one of the secrets made it."""
    return any(hmac.compare_digest(proof, prove(secret, challenge)) for secret in secrets)


def _mac(secret: bytes, message: bytes) -> bytes:
    # The prefix keeps this use of the secret apart from that for principals and keys.
    return hmac.digest(secret, b"ssop.announcement.v1\0" + message, "sha256")
