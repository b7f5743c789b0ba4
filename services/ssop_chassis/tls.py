"""TLS between services: files as credentials, read again when they change, so that no stream is cut by a rotation.

A connection keeps what it was made with; new ones are made with what the files hold then. Files that can't be used,
such as a certificate whose key has not been written yet, leave the last ones in place.
"""

import contextlib
import ipaddress
import logging
import ssl
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc

from ssop_chassis.settings import SettingsError, TlsSettings

_LOOK_AGAIN_S: Final = 1.0
_log = logging.getLogger(__name__)

Stamp = tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """What the files held. `version` rises with each change; a file that is not set is empty."""

    version: int
    key: bytes = field(repr=False)
    chain: bytes
    authorities: bytes


class Certificates:
    """The files of a table. Looked at once a second at most; may be asked from any thread.

    `on_reload` hears whether changed files could be used.
    """

    def __init__(
        self,
        settings: TlsSettings,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        on_reload: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Raises SettingsError where the files can't be used."""
        self.settings = settings
        self._clock_s = clock_s
        self._on_reload = on_reload
        self._lock = threading.Lock()
        self._looked_s = clock_s()
        self._refused: Stamp | None = None
        try:
            self._stamp = self._look()
            self._pair = self._read(1)
        except (OSError, ValueError) as error:
            raise SettingsError(f"[mesh.tls] {error}") from error

    def current(self) -> Pair:
        """What is to be used now."""
        with self._lock:
            now_s = self._clock_s()
            if now_s - self._looked_s >= _LOOK_AGAIN_S:
                self._looked_s = now_s
                self._refresh()
            return self._pair

    def expires_at_s(self) -> float:
        """When the own certificate ends, seconds since the epoch; 0 where `ca_file` does not vouch for it."""
        settings = self.settings
        if settings.certificate_file is None or settings.key_file is None or settings.ca_file is None:
            return 0.0
        with contextlib.suppress(OSError, ValueError):
            return _expiry_s(settings.certificate_file, settings.key_file, settings.ca_file)
        return 0.0

    def _files(self) -> list[Path]:
        settings = self.settings
        return [path for path in (settings.certificate_file, settings.key_file, settings.ca_file) if path is not None]

    def _look(self) -> Stamp:
        found = [path.stat() for path in self._files()]
        return tuple((file.st_dev, file.st_ino, file.st_mtime_ns, file.st_size) for file in found)

    def _refresh(self) -> None:
        try:
            stamp = self._look()
            if stamp == self._stamp:
                self._refused = None
                return
            pair = self._read(self._pair.version + 1)
            if self._look() != stamp:
                # They change at this moment; the next look finds them whole.
                return
        except (OSError, ValueError) as error:
            self._refuse(error)
            return
        self._stamp, self._pair, self._refused = stamp, pair, None
        self._on_reload(True)
        _log.info("certificates were read again", extra={"version": pair.version})

    def _refuse(self, error: Exception) -> None:
        """Say it once for each state of the files, though they are looked at each second."""
        stamp: Stamp = ()
        with contextlib.suppress(OSError):
            stamp = self._look()
        if stamp != self._refused:
            self._refused = stamp
            self._on_reload(False)
            _log.error("changed certificates can't be used; the last ones stay", extra={"cause": str(error)})

    def _read(self, version: int) -> Pair:
        """Raises OSError, and ValueError (ssl.SSLError is both) for what is no certificate or not its key."""
        settings = self.settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        key = chain = authorities = b""
        if settings.certificate_file is not None and settings.key_file is not None:
            if settings.key_file.stat().st_mode & stat.S_IRWXO:
                raise ValueError(f"key_file: everybody may read {settings.key_file}; give it mode 0600")
            with _naming("certificate_file and key_file"):
                # Without a password that it can try, OpenSSL asks for one on the terminal.
                context.load_cert_chain(settings.certificate_file, settings.key_file, password="")
            key, chain = settings.key_file.read_bytes(), settings.certificate_file.read_bytes()
        if settings.ca_file is not None:
            with _naming("ca_file"):
                context.load_verify_locations(settings.ca_file)
            authorities = settings.ca_file.read_bytes()
        return Pair(version, key, chain, authorities)


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    """Put the name of a setting before what OpenSSL says."""
    try:
        yield
    except ssl.SSLError as error:
        raise ValueError(f"{name}: {error.reason or error}") from error
    except OSError as error:
        raise ValueError(f"{name}: {error.filename or ''} {error.strerror}") from error


def _expiry_s(certificate: Path, key: Path, authorities: Path) -> float:
    """Shake hands with ourselves in memory: the peer's certificate is the only one that `ssl` takes apart."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key, password="")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(authorities)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller, callee = client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)
    for _ in range(4):
        for side in (caller, callee):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    found = caller.getpeercert() or {}
    return ssl.cert_time_to_seconds(str(found["notAfter"])) if "notAfter" in found else 0.0


class Tls:
    """What a process needs to know of TLS: which addresses have it, and credentials for both sides."""

    def __init__(self, settings: TlsSettings, service: str, certificates: Certificates | None) -> None:
        self._settings = settings
        self._service = service
        self.certificates = certificates

    def is_listener_secure(self, address: str) -> bool:
        """Whether a listener there speaks TLS."""
        return self._settings.certificate_file is not None and not self._is_plain(address)

    def is_peer_secure(self, address: str) -> bool:
        """Whether a service there is called over TLS."""
        return self._settings.is_on and not self._is_plain(address)

    def _is_plain(self, address: str) -> bool:
        return address.startswith(("unix:", "unix-abstract:")) or address in self._settings.plain

    @property
    def is_mutual(self) -> bool:
        """Whether this process takes only callers that show a certificate."""
        return self._service in self._settings.mutual

    def server_credentials(self) -> grpc.ServerCredentials:
        """For a listener. Each new connection gets the certificate that the files hold then."""
        certificates = self._held()
        first = certificates.current()
        seen = first.version

        def fetch() -> "grpc.ServerCertificateConfiguration | None":
            nonlocal seen
            pair = certificates.current()
            if pair.version == seen:
                return None
            seen = pair.version
            return self._configure(pair)

        return grpc.dynamic_ssl_server_credentials(
            self._configure(first),
            fetch,  # type: ignore[arg-type]  # None is no change, by the documentation
            require_client_authentication=self.is_mutual,
        )

    def _configure(self, pair: Pair) -> "grpc.ServerCertificateConfiguration":
        return grpc.ssl_server_certificate_configuration(
            [(pair.key, pair.chain)], pair.authorities if self.is_mutual else None
        )

    def channel_credentials(self) -> tuple[grpc.ChannelCredentials, int]:
        """For a channel, and the version of the files that they were made of."""
        pair = self._held().current()
        credentials = grpc.ssl_channel_credentials(pair.authorities or None, pair.key or None, pair.chain or None)
        return credentials, pair.version

    def _held(self) -> Certificates:
        if self.certificates is None:
            raise RuntimeError("there is no TLS without certificates")
        return self.certificates

    def server_name(self, own: str) -> str:
        """The name that the certificate of a service must carry; empty: the host of its address."""
        return self._settings.server_name or own


NO_TLS: Final = Tls(TlsSettings(), "", None)
"""Everything in plain text."""


def open_tls(settings: TlsSettings, service: str, *, on_reload: Callable[[bool], None] = lambda _: None) -> Tls:
    """TLS of a process. Raises SettingsError where the files can't be used."""
    return Tls(settings, service, Certificates(settings, on_reload=on_reload) if settings.is_on else None)


def is_exposed(address: str) -> bool:
    """Whether others than this host reach an address: neither a unix socket nor loopback."""
    if address.startswith(("unix:", "unix-abstract:")):
        return False
    host = address.rpartition(":")[0].strip("[]")
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"
