"""Table `discovery` of section `router`: nodes that join and leave at run time."""

from typing import Final

from pydantic import Field, field_validator

from ssop_chassis.announcement import UNIX, Network, read_networks
from ssop_chassis.settings import Settings

# This host's sockets, loopback and private networks (RFC 1918, RFC 4193): no address of somebody else's is in these.
_NETWORKS: Final = [
    UNIX,
    "127.0.0.0/8",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "::1/128",
    "fc00::/7",
]


class DiscoveryTable(Settings):
    """How nodes are found besides those of the settings. See docs/nodes.md."""

    has_leases: bool = Field(False, description="Take nodes that announce themselves, by way of the cache service.")
    networks: list[str] = Field(
        default=_NETWORKS, description="Where such a node may be: networks, and `unix` for sockets of this host."
    )
    poll_ms: int = Field(500, ge=50, le=60_000, description="How often the leases are read.")
    timeout_ms: int = Field(500, gt=0, le=10_000, description="Time for reading the leases.")
    linger_ms: int = Field(
        10_000, ge=0, description="How long a node whose lease has lapsed stays while it says that it is well."
    )
    dns_refresh_ms: int = Field(5_000, ge=100, description="How often names are looked up again.")
    dns_timeout_ms: int = Field(2_000, gt=0, le=60_000, description="Time for looking a name up.")
    max_nodes: int = Field(256, ge=1, le=10_000, description="Most nodes of a router; more are refused, and counted.")

    @field_validator("networks")
    @classmethod
    def _check_networks(cls, value: list[str]) -> list[str]:
        read_networks(value)
        return value

    @property
    def allowed(self) -> tuple[Network | None, ...]:
        """The networks, read."""
        return read_networks(self.networks)
