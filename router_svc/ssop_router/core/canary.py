# cython: annotation_typing=False
"""Which requests try a new model before all do. Pure: the same request always falls on the same side.

A canary is a model that nodes already serve for a tier and that, while it is named, gets only its share of the tier's
requests, and copies of others (shadows) whose answers nobody sees.

`canary.pxd` gives the types with which this very file is compiled.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ssop.v1.mesh_pb2 import Tier

_NONE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Canary:
    """`model` of `tier` gets `share` of the requests, and copies of `shadow` of the others; both from 0 to 1."""

    tier: Tier.ValueType
    model: str
    share: float = 0.0
    shadow: float = 0.0


def draw(canaries: Sequence[Canary], tenant: str, name: str) -> frozenset[str]:
    """The canaries that a request meets. `name` is its conversation, so that one stays with a model, or the request."""
    if not canaries:
        return _NONE
    return frozenset(canary.model for canary in canaries if _place(canary, tenant, name, "canary") < canary.share)


def is_shadowed(canary: Canary, tenant: str, request_id: str) -> bool:
    """Whether a request that the canary did not answer is copied to it."""
    return _place(canary, tenant, request_id, "shadow") < canary.shadow


def _place(canary: Canary, tenant: str, name: str, purpose: str) -> float:
    """Where the request lies between 0 and 1, for a purpose: evenly spread, and the same each time."""
    text = "\0".join((purpose, canary.model, tenant, name))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7]) / (1 << 56)
