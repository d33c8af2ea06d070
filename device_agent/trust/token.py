"""Tokens that people carry from one screen to another: what a device, or a site, must know before it trusts anybody.

    JoinToken, for a device   ver 1 | flags 1 | root 16 | id 8 | secret 16 | length 1 + site | host:port
    SiteToken, for a gateway  ver 2 | flags 1 | root 16 | curve key 32 | tcp://host:port[,tcp://host:port…]

The text is base45, which a QR code packs tightest; it neither begins nor ends with a space, and case and line breaks do
not matter. Text that is no such token is refused with a sentence for the person who typed it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from device_agent.errors import Refused
from device_agent.protocol.messages import SITE_ID_PATTERN
from device_agent.trust import base45
from device_agent.trust.root_list import FINGERPRINT_BYTES

TEXT_MAX: Final = 1024
ID_BYTES: Final = 8
SECRET_BYTES: Final = 16
CURVE_BYTES: Final = 32
ADDRESSES_MAX: Final = 8

_DEVICE, _SITE = 1, 2
_KINDS = {_DEVICE: "a join token for a device", _SITE: "a join token for a site"}
_TLS: Final = 1
_HOST = r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}))"
_address = re.compile(rf"{_HOST}:([0-9]{{1,5}})")


@dataclass(frozen=True, slots=True)
class JoinToken:
    """What one device needs to join one site, once. ``address`` is host:port of the broker's listener for joining."""

    root: bytes
    id: bytes
    secret: bytes = field(repr=False)
    site: str
    address: str
    tls: bool = False

    def text(self) -> str:
        """The token as it is shown. Raises ``Refused`` for one that no reader would take."""
        site = self.site.encode()
        head = bytes([_DEVICE, _TLS if self.tls else 0]) + self.root + self.id + self.secret
        text = base45.encode(head + bytes([len(site) % 256]) + site + self.address.encode())
        if self.from_text(text) != self:
            raise Refused("token_malformed", "a part of the token has another length")
        return text

    @classmethod
    def from_text(cls, text: str) -> JoinToken:
        """The token that somebody typed. Raises ``Refused`` (``token_…``)."""
        reader = _Reader(text, _DEVICE)
        root, identity, secret = reader.take(FINGERPRINT_BYTES), reader.take(ID_BYTES), reader.take(SECRET_BYTES)
        site = _ascii(reader.take(reader.take(1)[0]))
        if not re.match(SITE_ID_PATTERN, site):
            raise Refused("token_malformed", f"the token names a site that cannot be: {site[:40]!r}")
        return cls(root, identity, secret, site, _checked_address(_ascii(reader.rest())), tls=reader.flags == _TLS)


@dataclass(frozen=True, slots=True)
class SiteToken:
    """What a gateway needs to ask a master for its site: whom to believe, and where it is. ``curve`` is public."""

    root: bytes
    curve: bytes
    addresses: tuple[str, ...]

    def text(self) -> str:
        """The token as it is shown. Raises ``Refused`` for one that no reader would take."""
        text = base45.encode(bytes([_SITE, 0]) + self.root + self.curve + ",".join(self.addresses).encode())
        if self.from_text(text) != self:
            raise Refused("token_malformed", "a part of the token has another length")
        return text

    @classmethod
    def from_text(cls, text: str) -> SiteToken:
        """The token that somebody typed. Raises ``Refused`` (``token_…``)."""
        reader = _Reader(text, _SITE)
        if reader.flags:
            raise Refused("token_newer", "the token was made by a newer release: update this machine first")
        root, curve = reader.take(FINGERPRINT_BYTES), reader.take(CURVE_BYTES)
        addresses = _ascii(reader.rest()).split(",")
        if len(addresses) > ADDRESSES_MAX:
            raise Refused("token_malformed", f"the token has more than {ADDRESSES_MAX} addresses")
        for address in addresses:
            if not address.startswith("tcp://"):
                raise Refused("token_malformed", f"the token has an address that is not tcp://host:port: {address!r}")
            _checked_address(address.removeprefix("tcp://"))
        return cls(root, curve, tuple(addresses))


class _Reader:
    """Takes a token apart from left to right."""

    def __init__(self, text: str, kind: int) -> None:
        typed = re.sub(r"[\r\n\t]", "", text).strip(" ").upper()
        if not typed:
            raise Refused("token_empty", "there is no token")
        if len(typed) > TEXT_MAX:
            raise Refused(
                "token_malformed", f"the token has {len(typed)} characters, and none has more than {TEXT_MAX}"
            )
        try:
            self._left = base45.decode(typed)
        except ValueError as error:
            raise Refused("token_malformed", f"the token was not copied exactly: {error}") from None
        found, self.flags = self.take(2)
        if found != kind and found in _KINDS:
            raise Refused("token_other_kind", f"this is {_KINDS[found]}, and {_KINDS[kind]} is needed")
        if found != kind and found == 0:
            raise Refused("token_malformed", "this is no token")
        if found != kind or self.flags not in {0, _TLS}:
            raise Refused("token_newer", "the token was made by a newer release, or it was not copied exactly")

    def take(self, count: int) -> bytes:
        if len(self._left) < count:
            raise Refused("token_cut_short", "the token ends too early: copy all of it")
        taken, self._left = self._left[:count], self._left[count:]
        return taken

    def rest(self) -> bytes:
        if not self._left:
            raise Refused("token_cut_short", "the token ends before its address: copy all of it")
        return self.take(len(self._left))


def _ascii(body: bytes) -> str:
    try:
        return body.decode("ascii")
    except UnicodeDecodeError:
        raise Refused(
            "token_malformed", "the token was not copied exactly: a name or an address in it is no text"
        ) from None


def _checked_address(address: str) -> str:
    found = _address.fullmatch(address)
    if not found or not 1 <= int(found[3]) <= 65_535:
        raise Refused("token_malformed", f"the token has an address that is not host:port: {address[:80]!r}")
    return address
