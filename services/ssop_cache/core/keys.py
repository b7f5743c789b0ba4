"""Names of the keys in Redis.

All keys of a tenant carry the tenant's hash as their hash tag, so that a script's keys share a slot of a cluster and no
two tenants share a key. Names hold hashes, never texts. What belongs to an answer carries wire and codec version;
limits and reservations don't, since a codec update must not reset a quota.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_PREFIX: Final = "ssop"
_LAYOUT: Final = "2"
"""How requests and leases are written (`lua/_records.lua`)."""
_ANSWERS: Final = "2"
"""How answers are written (`lua/_answers.lua`)."""
_TENANTS: Final = 1_024
KEY_RECORDS: Final = (f"{_PREFIX}:{{api-keys}}:records", f"{_PREFIX}:{{api-keys}}:version")
"""The records of the mesh's API keys, and a number that rises with every change."""
HINTS: Final = (f"{_PREFIX}:{{hints}}:nodes",)
"""What routers say about nodes, by router and address. No tenant writes there."""
NODE_LEASES: Final = (f"{_PREFIX}:{{nodes}}:leases",)
"""Nodes that have announced themselves, by address. No tenant writes there."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The versions that the keys of answers, leases and logs carry."""

    wire_version: int
    codec_version: str

    @lru_cache(maxsize=_TENANTS)  # noqa: B019 - there is one layout in a process
    def of_tenant(self, tenant: str) -> "TenantKeys":
        """The keys of a tenant."""
        tag = hashlib.sha256(b"ssop.tenant.v1\0" + tenant.encode()).hexdigest()[:32]
        return TenantKeys(f"{_PREFIX}:{{{tag}}}", f"w{self.wire_version}:c{self.codec_version}")


@dataclass(frozen=True, slots=True)
class TenantKeys:
    """The keys of one tenant. `cache_key` is the canonical key, 32 bytes."""

    base: str
    versions: str

    @property
    def tag(self) -> str:
        """The tenant's hash, 32 hexadecimal digits."""
        return self.base[-33:-1]

    @property
    def rate(self) -> str:
        """Theoretical arrival time of the rate limit."""
        return f"{self.base}:rate"

    @property
    def used(self) -> str:
        """Tokens charged in the current window."""
        return f"{self.base}:used"

    @property
    def reserved(self) -> str:
        """Tokens reserved, by request, and their sum."""
        return f"{self.base}:reserved"

    @property
    def expiry(self) -> str:
        """When each reservation lapses."""
        return f"{self.base}:expiry"

    @property
    def usage(self) -> str:
        """What was used, by day and counter: `20421/lite.requests`; and the last `day` in `last`."""
        return f"{self.base}:usage"

    @property
    def fence(self) -> str:
        """The last fencing token."""
        return f"{self.base}:fence"

    def request(self, request_id: str) -> str:
        """What became of a request."""
        return f"{self.base}:{_LAYOUT}:request:{request_id}"

    @property
    def id_at(self) -> int:
        """Where the id begins in the name of a request, from 1."""
        return len(self.request("")) + 1

    def lease(self, cache_key: bytes) -> str:
        """The lease on generating an answer."""
        return f"{self.base}:{_LAYOUT}:lease:{self.versions}:{cache_key.hex()}"

    def log(self, cache_key: bytes, fence: int) -> str:
        """The chunks of one generation, for those that follow it."""
        return f"{self.base}:log:{self.versions}:{cache_key.hex()}:{fence}"

    def channel(self, cache_key: bytes) -> str:
        """Where followers are woken."""
        return f"{self.base}:wake:{self.versions}:{cache_key.hex()}"

    def answer(self, cache_key: bytes) -> str:
        """The stored answer; in the cache instance."""
        return f"{self.base}:{_ANSWERS}:answer:{self.versions}:{cache_key.hex()}"

    @property
    def flush(self) -> str:
        """The mark under which answers are good, and the last fence before it; in the cache instance."""
        return f"{self.base}:flush:{self.versions}"

    @property
    def similar(self) -> tuple[str, str, str]:
        """What similar answers are found by: records, their names by scope, and by age; in the cache instance."""
        base = f"{self.base}:similar:{self.versions}"
        return base, f"{base}:scopes", f"{base}:ages"
