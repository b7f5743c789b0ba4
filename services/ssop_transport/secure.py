"""TLS for connections of asyncio, from the files that the chassis watches: new connections get what they hold now."""

import asyncio
import logging
import ssl
from typing import Any, Final

from ssop_chassis.tls import Tls

HANDSHAKE_S: Final = 10.0
GOODBYE_S: Final = 5.0
_log = logging.getLogger(__name__)


def _context(purpose: ssl.Purpose, tls: Tls) -> ssl.SSLContext:
    if tls.certificates is None:
        raise RuntimeError("there is no TLS without certificates")
    settings = tls.certificates.settings
    context = ssl.create_default_context(purpose, cafile=settings.ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    context.options |= ssl.OP_NO_RENEGOTIATION
    if purpose is ssl.Purpose.CLIENT_AUTH and tls.is_mutual:
        context.verify_mode = ssl.CERT_REQUIRED
        # A session that is resumed is one whose certificate nobody looks at again.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    if settings.certificate_file is not None:
        context.load_cert_chain(settings.certificate_file, settings.key_file, password="")
    return context


class Contexts:
    """Contexts of one side, made anew when the certificates have changed."""

    def __init__(self, purpose: ssl.Purpose, tls: Tls) -> None:
        self._purpose = purpose
        self._tls = tls
        self._version = -1
        self._context: ssl.SSLContext | None = None

    def current(self) -> tuple[ssl.SSLContext, int]:
        """The context to use now, and its version."""
        certificates = self._tls.certificates
        version = certificates.current().version if certificates is not None else 0
        if self._context is None:
            self._context, self._version = _context(self._purpose, self._tls), version
        elif version != self._version:
            try:
                self._context, self._version = _context(self._purpose, self._tls), version
            except (OSError, ValueError) as error:
                # The files are being replaced once more: the last ones serve until the next look.
                _log.warning("certificates that can't be used", extra={"cause": type(error).__name__})
        return self._context, self._version


def listener_options(context: ssl.SSLContext | None) -> dict[str, Any]:
    """How long handshakes and goodbyes of a listener may take; clients are strangers."""
    if context is None:
        return {}
    return {"ssl": context, "ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": GOODBYE_S}


def is_http2(transport: asyncio.BaseTransport | None) -> bool:
    """Whether a connection is plain, or its handshake came to HTTP/2 (RFC 9113, 3.2)."""
    secured = None if transport is None else transport.get_extra_info("ssl_object")
    return secured is None or secured.selected_alpn_protocol() == "h2"


def server_context(tls: Tls) -> ssl.SSLContext:
    """For listeners. Every handshake looks for the certificate of the moment."""
    contexts = Contexts(ssl.Purpose.CLIENT_AUTH, tls)
    context, _ = contexts.current()

    def pick(connection: Any, _: str | None, __: ssl.SSLContext) -> None:
        connection.context, _version = contexts.current()

    context.sni_callback = pick
    return context
