"""Which transport carries the calls: gRPC's own, or the native one where it was built."""

import importlib
from collections.abc import Awaitable, Callable
from functools import cache, partial
from typing import Any, Final, Literal, Protocol, runtime_checkable

from ssop_chassis import grpc_peer, grpc_server
from ssop_chassis.call import Peer
from ssop_chassis.grpc_options import Compression
from ssop_chassis.settings import SettingsError

Kind = Literal["auto", "grpc", "inner", "native"]
"""As MeshSettings.transport."""
Carried = Literal["grpc", "inner", "native"]
"""What becomes of it."""
NATIVE_MODULE: Final = "ssop_transport._connection"


@runtime_checkable
class ConnectedPeer(Peer, Protocol):
    """A Peer over connections of its own."""

    async def finish(self) -> None:
        """Take no new call, let those that run end, then drop the connection."""
        ...


class Server(Protocol):
    """A running server, on any transport."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """What it listens on."""
        ...

    async def stop(self, grace_s: float) -> None:
        """Take no new call, let those that run finish for `grace_s` seconds, then cancel them."""
        ...


StartServer = Callable[..., Awaitable[Server]]
Connect = Callable[..., ConnectedPeer]


@cache
def is_native_built() -> bool:
    """Whether the native transport can be used here: it was built where libnghttp2 and its headers are, and loads."""
    try:
        importlib.import_module(NATIVE_MODULE)
    except ImportError:
        return False
    return True


def resolve(kind: Kind) -> Carried:
    """What a setting comes to here: `auto` is the native transport, where it was built."""
    if kind == "auto":
        return "native" if is_native_built() else "grpc"
    return kind


def server_starter(kind: Kind, service: str) -> StartServer:
    """`start_server` for a service; the router is the one that clients call. Raises SettingsError."""
    carried = resolve(kind)
    if carried == "grpc" or (carried == "inner" and service == "router"):
        return grpc_server.start_server
    found: StartServer = _native("server").start_server
    return found


def connector(kind: Kind, compression: Compression = "none") -> Connect:
    """`connect` for calls between services. Raises SettingsError."""
    found: Connect = grpc_peer.connect if resolve(kind) == "grpc" else _native("client").connect
    return found if compression == "none" else partial(found, compression=compression)


def channel_maker(kind: Kind) -> Callable[[str], Any] | None:
    """What makes a channel of grpc.aio's shape to an address, for clients; None: gRPC's own. Raises SettingsError."""
    if resolve(kind) == "grpc":
        return None
    found: Callable[[str], Any] = _native("channel").NativeChannel
    return found


def _native(name: str) -> Any:
    try:
        # Not a plain import: the chassis works without it.
        return importlib.import_module(f"ssop_transport.{name}")
    except ImportError as error:
        raise SettingsError(
            f"the native transport needs libnghttp2 and a build that found its headers ({error.name or error}); "
            'install libnghttp2-dev and install again, or set transport = "grpc"'
        ) from error
