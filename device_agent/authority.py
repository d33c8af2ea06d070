"""TLS to a broker whose authority is known by its SHA-256 alone, on a machine that may not know what time it is.

The broker shows its authority's certificate beside its own; the one with the right digest becomes the only authority
that counts. Names are not compared, since the authority vouches for this one broker, and neither are dates: what has to
be fresh is proven by signatures, and TLS only hides topics and passwords.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
from typing import Any, Final, cast

from device_agent.errors import OutstationError
from device_agent.host_port import host_port

FETCH_SECONDS: Final = 15.0
ENCODING_DER: Final = 2
"""``_ssl.ENCODING_DER``."""

NO_CHECK_TIME: Final = ssl.VerifyFlags(0x200000)
"""``X509_V_FLAG_NO_CHECK_TIME`` of OpenSSL, which Python gives no name."""


class AuthorityUnknown(OutstationError):
    """Whoever answers at the broker's TLS port does not show the authority that the site named."""

    default_id = "mqtt.authority_unknown"


def context_for(plain: socket.socket, host: str, port: int, digest: bytes) -> ssl.SSLContext:
    """What to connect with; ``plain`` is a connection to the broker, and is used up. Blocks.

    Raises ``OSError`` and ``AuthorityUnknown``.
    """
    shown = _shown(plain, host)
    for certificate in shown:
        if hmac.compare_digest(hashlib.sha256(certificate).digest(), digest):
            context = _context(ssl.CERT_REQUIRED)
            context.load_verify_locations(cadata=certificate)
            return context
    raise AuthorityUnknown(
        "the broker does not show the authority that the site named",
        where=host_port(host, port),
        found=", ".join(hashlib.sha256(certificate).hexdigest() for certificate in shown) or "no certificate",
        allowed=digest.hex(),
    )


def _context(mode: ssl.VerifyMode) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = mode
    context.verify_flags |= NO_CHECK_TIME
    return context


def _shown(plain: socket.socket, host: str) -> list[bytes]:
    """The certificates that a server shows, unverified."""
    plain.settimeout(FETCH_SECONDS)
    with plain, _context(ssl.CERT_NONE).wrap_socket(plain, server_hostname=host) as connection:
        # Public from Python 3.13 on; before that it is the same function of the object inside.
        inner = cast("Any", connection)
        if hasattr(inner, "get_unverified_chain"):
            return list(inner.get_unverified_chain())
        chain = inner._sslobj.get_unverified_chain() or []  # noqa: SLF001 - as said above, the only way before 3.13
        return [certificate.public_bytes(ENCODING_DER) for certificate in chain]
