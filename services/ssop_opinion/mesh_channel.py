"""What carries the application's calls to routers."""

import logging
from typing import Any

from ssop_chassis.transport import Kind, channel_maker
from ssop_sdk.async_client import OpenChannel, open_grpc_channel
from ssop_sdk.target import Target

_log = logging.getLogger(__name__)


def channel_opener(transport: Kind) -> OpenChannel | None:
    """What opens channels to routers; None: the SDK's own way. Raises SettingsError where it is not built.

    TLS and what gRPC resolves are left to gRPC's transport, which is said.
    """
    make = channel_maker(transport)
    if make is None:
        return None

    def open_channel(target: Target) -> Any:
        if target.is_tls or target.is_resolved_by_grpc:
            _log.warning("gRPC's own transport carries calls to a router over TLS, or behind a resolver")
            return open_grpc_channel(target)
        return make(target.address)

    return open_channel
