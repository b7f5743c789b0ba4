"""TLS for connections of asyncio, from the files that the chassis watches: new connections get what they hold now."""

import ssl
from typing import Any

from ssop_chassis.tls import Tls


def _context(purpose: ssl.Purpose, tls: Tls) -> ssl.SSLContext:
    if tls.certificates is None:
        raise RuntimeError("there is no TLS without certificates")
    settings = tls.certificates.settings
    context = ssl.create_default_context(purpose, cafile=settings.ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    if purpose is ssl.Purpose.CLIENT_AUTH and tls.is_mutual:
        context.verify_mode = ssl.CERT_REQUIRED
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
        if self._context is None or version != self._version:
            self._context, self._version = _context(self._purpose, self._tls), version
        return self._context, self._version


def server_context(tls: Tls) -> ssl.SSLContext:
    """For listeners. Every handshake looks for the certificate of the moment."""
    contexts = Contexts(ssl.Purpose.CLIENT_AUTH, tls)
    context, _ = contexts.current()

    def pick(connection: Any, _: str | None, __: ssl.SSLContext) -> None:
        connection.context, _version = contexts.current()

    context.sni_callback = pick
    return context
