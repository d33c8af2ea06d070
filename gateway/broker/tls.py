"""The broker's TLS door: a certificate for it, from an authority of this site alone.

TLS hides topic names and passwords from whoever listens on the site's network; what travels inside is sealed anyway.
Devices know the authority by the SHA-256 of its certificate, which they were given when they were accepted. So it never
ends and is never renewed: a new one would lock out every device that knows the old. The broker's own certificate is
made at each start and again in good time; it is sent with the authority's, so that who knows the digest finds it there.
Both are valid from 1970 on, since a device may have no clock.
"""

from __future__ import annotations

import hashlib
import ipaddress
import socket
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from device_agent.clock import Clock
from device_agent.durable import read_regular, replace_private
from device_agent.errors import ConfigInvalid

AUTHORITY_FILE: Final = "broker-authority.pem"
SERVER_DAYS: Final = 730
RENEW_DAYS: Final = 365
"""Days before its end at which the broker's certificate is made again: a broker that is told only at its next start
still has as long."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""RFC 5280, 4.1.2.5: no well-defined end."""

_ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - addresses to leave out, none to listen on


class TlsAuthority:
    """What vouches for the broker: a key and its certificate in one file of mode 0600, made at first use."""

    def __init__(self, path: Path, site: str, clock: Clock | None = None) -> None:
        self._path = path
        self._site = site
        self._clock = clock or Clock()
        self._key: ec.EllipticCurvePrivateKey | None = None
        self._certificate: x509.Certificate | None = None
        self._server_end: datetime | None = None

    @property
    def digest(self) -> bytes:
        """What devices know it by; once it is loaded."""
        assert self._certificate is not None
        return hashlib.sha256(self._certificate.public_bytes(serialization.Encoding.DER)).digest()

    @property
    def pem(self) -> str:
        """Its certificate, as text; once it is loaded."""
        assert self._certificate is not None
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")

    def load(self) -> None:
        """Read it, or make it. Raises ``ConfigInvalid`` when the file is not one of ours."""
        try:
            content = read_regular(self._path)
        except FileNotFoundError:
            self._make()
            return
        try:
            key = serialization.load_pem_private_key(content, None)
            certificate = x509.load_pem_x509_certificate(content)
        except (ValueError, TypeError) as error:
            raise self._not_ours(str(error)) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or certificate.public_key() != key.public_key():
            raise self._not_ours("a certificate of another key")
        self._key, self._certificate = key, certificate

    def server_is_due(self) -> bool:
        """Whether the broker needs a certificate: it has none, or not for long."""
        return self._server_end is None or self._now() > self._server_end - timedelta(days=RENEW_DAYS)

    def server(self, host: str) -> tuple[str, str]:
        """A new certificate for the broker, followed by this authority's, and its key; both as text (PEM)."""
        assert self._key is not None
        assert self._certificate is not None
        key = ec.generate_private_key(ec.SECP256R1())
        self._server_end = min(self._now() + timedelta(days=SERVER_DAYS), _NEVER)
        certificate = (
            self._builder(key.public_key(), _name(self._site, "Outstation broker"), self._certificate.subject)
            .not_valid_after(self._server_end)
            .add_extension(x509.SubjectAlternativeName(_names(host)), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        chain = certificate.public_bytes(serialization.Encoding.PEM).decode("ascii") + self.pem
        return chain, _private_pem(key).decode("ascii")

    def _make(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(self._site, "Outstation broker authority")
        certificate = (
            self._builder(key.public_key(), name, name)
            .not_valid_after(_NEVER)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(key_cert_sign=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        replace_private(self._path, _private_pem(key) + certificate.public_bytes(serialization.Encoding.PEM))
        self._key, self._certificate = key, certificate

    def _builder(
        self, public: ec.EllipticCurvePublicKey, name: x509.Name, issuer: x509.Name
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_EPOCH)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        )

    def _now(self) -> datetime:
        """The wall clock, kept within what a certificate can say."""
        return _EPOCH + timedelta(seconds=min(max(self._clock.wall(), 0.0), 2.0**36))

    def _not_ours(self, found: str) -> ConfigInvalid:
        return ConfigInvalid(
            "the authority of the broker's TLS door cannot be read",
            where=str(self._path),
            found=found,
            allowed="the file that a station wrote here",
            hint="restore it; without it a new one is made, and devices that use TLS must be accepted again",
        )


def _name(site: str, what: str) -> x509.Name:
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, site), x509.NameAttribute(NameOID.COMMON_NAME, what)]
    )


def _names(host: str) -> list[x509.GeneralName]:
    """What the broker may be called: its address as it is set, this machine's name, and this machine."""
    texts: Iterable[str] = dict.fromkeys([host, socket.gethostname(), "localhost", "127.0.0.1", "::1"])
    names: list[x509.GeneralName] = []
    for text in texts:
        if text in _ANY_ADDRESS:
            continue
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(text)))
        except ValueError:
            if text.isascii():
                names.append(x509.DNSName(text))
    return names


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
