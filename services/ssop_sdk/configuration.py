"""How a client is set up: arguments, environment, checks. The same for the sync and the async client."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ssop_sdk.errors import ConfigurationError
from ssop_sdk.request import Defaults, check_level, check_timeout
from ssop_sdk.retry import MAX_RETRIES, RetryPolicy
from ssop_sdk.schema import SchemaLike, read_schema
from ssop_sdk.target import DEFAULT_TARGET, Target, Tls, parse_targets

_log = logging.getLogger(__name__)

Metadata = tuple[tuple[str, str], ...]

MAX_BATCH_SIZE: Final = 1_024


@dataclass(frozen=True, slots=True)
class Setup:
    """What a client works with. Its repr shows no key."""

    targets: tuple[Target, ...]
    metadata: Metadata = field(repr=False)
    defaults: Defaults
    retry: RetryPolicy
    batch_size: int

    @property
    def addresses(self) -> str:
        """Where the mesh is, as it was told."""
        return ",".join(target.address for target in self.targets)

    def call_metadata(self, request_id: str = "") -> Metadata:
        """Metadata of one call."""
        if not request_id:
            return self.metadata
        return (*self.metadata, ("x-ssop-request-id", request_id))


def check_batch_size(batch_size: int) -> int:
    """Requests in flight, if it is a number of them. Raises ConfigurationError."""
    if batch_size not in range(1, MAX_BATCH_SIZE + 1):
        raise ConfigurationError(f"batch_size is from 1 to {MAX_BATCH_SIZE} requests in flight")
    return batch_size


def _read_key(api_key: str | None, environ: Mapping[str, str]) -> str:
    key = environ.get("SSOP_API_KEY", "") if api_key is None else api_key
    if not key:
        raise ConfigurationError("there is no API key: give api_key or set SSOP_API_KEY")
    # gRPC's own complaint about a header value that it can't send would quote the key.
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigurationError("the API key has characters that no key has, such as a line break")
    return key


def set_up(
    *,
    api_key: str | None,
    target: str | None,
    streaming: bool,
    output_schema: SchemaLike,
    timeout_s: float,
    policy: str | None,
    max_degraded_level: int | None,
    allow_degraded: bool,
    stream_buffer_size: int,
    batch_size: int,
    tls: Tls | bool | None,
    retry: RetryPolicy | None,
    environ: Mapping[str, str] | None = None,
) -> Setup:
    """Check what a client was given, and fill in from the environment what it was not. Raises ConfigurationError."""
    environ = os.environ if environ is None else environ
    if stream_buffer_size and stream_buffer_size not in range(64, 16_385):
        raise ConfigurationError("stream_buffer_size is 0 (auto) or from 64 to 16384 bytes")
    where = parse_targets(target or environ.get("SSOP_TARGET") or DEFAULT_TARGET, tls, environ)
    key = _read_key(api_key, environ)
    for one in where:
        if one.is_exposed:
            _log.warning("the API key travels unencrypted to %s; use ssops:// or tls=True", one.address)
    return Setup(
        where,
        (("authorization", f"Bearer {key}"),),
        Defaults(
            read_schema(output_schema),
            check_timeout(timeout_s),
            policy or "",
            check_level(max_degraded_level),
            allow_degraded,
            stream_buffer_size,
            streaming,
        ),
        # Each router twice, since it may be the call that finds out that a connection is dead.
        retry or RetryPolicy(max_retries=MAX_RETRIES * len(where)),
        check_batch_size(batch_size),
    )
