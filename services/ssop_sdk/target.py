"""Where the mesh is and how to reach it: targets, TLS, channel options."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

import grpc

from ssop_sdk.errors import ConfigurationError

VERSION: Final = "0.1.0"
DEFAULT_TARGET: Final = "127.0.0.1:7300"
_TLS_SCHEMES: Final = ("ssops://", "https://", "grpcs://")
_PLAIN_SCHEMES: Final = ("ssop://", "http://", "grpc://")
# What a target may say of its TLS, as `ssops://mesh:7300?ca=/etc/ssop/ca.pem`.
_TLS_OPTIONS: Final = {
    "ca": "root_certificates",
    "cert": "client_certificate",
    "key": "client_key",
    "name": "server_name",
}
_VARIABLES: Final = {
    "SSOP_TLS_CA": "root_certificates",
    "SSOP_TLS_CERTIFICATE": "client_certificate",
    "SSOP_TLS_KEY": "client_key",
    "SSOP_TLS_NAME": "server_name",
}
_RESOLVER_SCHEMES: Final = ("dns:", "ipv4:", "ipv6:", "unix:", "unix-abstract:", "vsock:", "xds:")


@dataclass(frozen=True, slots=True)
class Tls:
    """How a TLS connection is checked. Each file is PEM, given as its bytes or its path."""

    root_certificates: bytes | str | Path | None = None
    """Authorities to trust; None for those that gRPC brings along."""
    client_certificate: bytes | str | Path | None = None
    """Chain of this client, for mutual TLS; needs `client_key`."""
    client_key: bytes | str | Path | None = field(default=None, repr=False)
    """Private key of this client."""
    server_name: str | None = None
    """Name that the server's certificate must carry, where it is not the host of the target."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target in gRPC's own syntax, and whether it is reached over TLS."""

    address: str
    is_tls: bool
    tls: Tls = field(default_factory=Tls)

    @property
    def is_resolved_by_grpc(self) -> bool:
        """The address is one of gRPC's resolvers, and no `host:port` or `unix:/path` that any transport knows."""
        return self.address.startswith(_RESOLVER_SCHEMES) and not self.address.startswith("unix:")

    @property
    def is_exposed(self) -> bool:
        """A key sent there can be read on the way: neither TLS nor a connection within this machine."""
        if self.is_tls or self.address.startswith(("unix:", "unix-abstract:")):
            return False
        host = self.address.removeprefix("dns:///").removeprefix("ipv4:").removeprefix("ipv6:")
        host = host.rpartition(":")[0].strip("[]") or host
        if host == "localhost":
            return False
        try:
            return not ipaddress.ip_address(host).is_loopback
        except ValueError:
            return True


def _with_port(address: str, port: int) -> str:
    host, colon, digits = address.rpartition(":")
    if colon and digits.isdecimal() and not (":" in host and not host.endswith("]")):
        return address
    return f"[{address}]:{port}" if ":" in address and "]" not in address else f"{address}:{port}"


def parse_target(text: str, tls: "Tls | bool | None" = None, environ: Mapping[str, str] | None = None) -> Target:
    """Read `host:port`, `unix:/path`, `ssops://host[:port]`, `https://host[:port]`, or a target of gRPC's resolvers.

    A TLS target may name files: `?ca=FILE&cert=FILE&key=FILE&name=HOST`; what it does not name comes from `environ`.
    `tls` is None to go by the scheme, True or a `Tls` to insist on it, False to forbid it. Raises ConfigurationError.
    """
    text = text.strip()
    if not text:
        raise ConfigurationError("the target is empty")
    scheme = next((s for s in (*_TLS_SCHEMES, *_PLAIN_SCHEMES) if text.lower().startswith(s)), "")
    address, _, query = text[len(scheme) :].partition("?") if scheme else (text, "", "")
    address = address.rstrip("/") if scheme else address
    if scheme and (not address or "/" in address):
        raise ConfigurationError(f"a target is {scheme}host:port, without a path")
    if scheme in _TLS_SCHEMES and tls is False:
        raise ConfigurationError(f"the target asks for TLS ({scheme}) and tls=False forbids it")
    is_tls = scheme in _TLS_SCHEMES or (tls is not None and tls is not False)
    if scheme in _PLAIN_SCHEMES and is_tls:
        raise ConfigurationError(f"the target asks for no TLS ({scheme}) and tls asks for it")
    if query and not is_tls:
        raise ConfigurationError(f"a target without TLS ({scheme}) has no options")
    if scheme in _TLS_SCHEMES:
        address = _with_port(address, 7300 if scheme == "ssops://" else 443)
    elif not address.startswith(_RESOLVER_SCHEMES):
        address = _with_port(address, 7300)
    if not is_tls:
        return Target(address, False)
    return Target(address, True, tls if isinstance(tls, Tls) else _read_tls(query, environ or {}))


def _read_tls(query: str, environ: Mapping[str, str]) -> Tls:
    found = {name: environ[variable] for variable, name in _VARIABLES.items() if environ.get(variable)}
    for option, value in parse_qsl(query, keep_blank_values=True):
        if option not in _TLS_OPTIONS or not value:
            raise ConfigurationError(f"a target has the options {', '.join(_TLS_OPTIONS)}, each with a value")
        found[_TLS_OPTIONS[option]] = value
    return Tls(**found)


def parse_targets(
    text: str, tls: "Tls | bool | None" = None, environ: Mapping[str, str] | None = None
) -> tuple[Target, ...]:
    """Read targets of routers of one mesh, with commas between them; each as `parse_target` does.

    A comma within a list of gRPC's own (`ipv4:10.0.0.1:7300,10.0.0.2:7300`) belongs to it. Raises ConfigurationError.
    """
    if text.strip().startswith(("ipv4:", "ipv6:")):
        return (parse_target(text, tls, environ),)
    targets = tuple(parse_target(part, tls, environ) for part in text.split(","))
    if len(set(targets)) < len(targets):
        raise ConfigurationError("the same target is there twice")
    return targets


def _pem(source: bytes | str | Path | None) -> bytes | None:
    if source is None or isinstance(source, bytes):
        return source
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"can't read {source}: {error.strerror}") from error


def channel_credentials(target: Target) -> grpc.ChannelCredentials | None:
    """Credentials of a TLS target, None of a plain one."""
    if not target.is_tls:
        return None
    tls = target.tls
    if (tls.client_certificate is None) != (tls.client_key is None):
        raise ConfigurationError("client_certificate and client_key go together")
    return grpc.ssl_channel_credentials(_pem(tls.root_certificates), _pem(tls.client_key), _pem(tls.client_certificate))


def channel_options(target: Target) -> list[tuple[str, str | int]]:
    """Options of the one channel of a client.

    Without a ping time-out of its own, a peer that hangs is noticed after 70 s whatever the keepalive says; with it,
    after the sum of keepalive time and time-out. Each call has its deadline besides. Small windows and no bandwidth
    probe keep what an unread stream buffers at tens of kilobytes, so that a slow reader slows the model and not the
    memory. A connection may take 3 s, so that a lost SYN, which the kernel repeats after one, does no harm. Repeating
    calls is the SDK's business, which knows whether a frame has arrived.
    """
    options: list[tuple[str, str | int]] = [
        ("grpc.keepalive_time_ms", 5_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.http2.ping_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.lookahead_bytes", 65_536),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", 3_000),
        ("grpc.max_reconnect_backoff_ms", 5_000),
        ("grpc.primary_user_agent", f"ssop-sdk/{VERSION}"),
    ]
    if target.tls.server_name:
        options.append(("grpc.ssl_target_name_override", target.tls.server_name))
    return options
