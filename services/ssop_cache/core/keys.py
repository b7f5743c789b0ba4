# cython: annotation_typing=False
"""Names of the keys in Redis.

All keys of a tenant carry the tenant's hash as their hash tag, so that a script's keys share a slot of a cluster and no
two tenants share a key. Names hold hashes, never texts. What belongs to an answer carries wire and codec version;
limits and reservations don't, since a codec update must not reset a quota.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Final

from ssop_cache.core.names import name_key

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
    _tenants: "dict[str, TenantKeys]" = field(default_factory=dict, init=False, repr=False, compare=False)

    def of_tenant(self, tenant: str) -> "TenantKeys":
        """The keys of a tenant."""
        keys = self._tenants.get(tenant)
        if keys is None:
            tag = hashlib.sha256(b"ssop.tenant.v1\0" + tenant.encode()).hexdigest()[:32]
            keys = TenantKeys(f"{_PREFIX}:{{{tag}}}", f"w{self.wire_version}:c{self.codec_version}")
            if len(self._tenants) >= _TENANTS:
                self._tenants.clear()
            self._tenants[tenant] = keys
        return keys


class TenantKeys:
    """The keys of one tenant. `cache_key` is the canonical key, 32 bytes."""

    def __init__(self, base: str, versions: str) -> None:
        self.base: Final = base
        self.versions: Final = versions
        self.tag: Final = base[-33:-1]
        """The tenant's hash, 32 hexadecimal digits."""
        self.rate: Final = f"{base}:rate"
        """Theoretical arrival time of the rate limit."""
        self.used: Final = f"{base}:used"
        """Tokens charged in the current window."""
        self.reserved: Final = f"{base}:reserved"
        """Tokens reserved, by request, and their sum."""
        self.expiry: Final = f"{base}:expiry"
        """When each reservation lapses."""
        self.usage: Final = f"{base}:usage"
        """What was used, by day and counter: `20421/lite.requests`; and the last `day` in `last`."""
        self.fence: Final = f"{base}:fence"
        """The last fencing token."""
        self.flush: Final = f"{base}:flush:{versions}"
        """The mark under which answers are good, and the last fence before it; in the cache instance."""
        # What names of requests, leases and answers begin with.
        self._request: Final = f"{base}:{_LAYOUT}:request:"
        self._lease: Final = f"{base}:{_LAYOUT}:lease:{versions}:"
        self._answer: Final = f"{base}:{_ANSWERS}:answer:{versions}:"
        self.id_at: Final = len(self._request) + 1
        """Where the id begins in the name of a request, from 1."""

    def request(self, request_id: str) -> str:
        """What became of a request."""
        return self._request + request_id

    def lease(self, cache_key: bytes) -> str:
        """The lease on generating an answer."""
        return name_key(self._lease, cache_key)

    def log(self, cache_key: bytes, fence: int) -> str:
        """The chunks of one generation, for those that follow it."""
        return f"{self.base}:log:{self.versions}:{cache_key.hex()}:{fence}"

    def channel(self, cache_key: bytes) -> str:
        """Where followers are woken."""
        return f"{self.base}:wake:{self.versions}:{cache_key.hex()}"

    def answer(self, cache_key: bytes) -> str:
        """The stored answer; in the cache instance."""
        return name_key(self._answer, cache_key)

    @property
    def similar(self) -> tuple[str, str, str]:
        """What similar answers are found by: records, their names by scope, and by age; in the cache instance."""
        base = f"{self.base}:similar:{self.versions}"
        return base, f"{base}:scopes", f"{base}:ages"
