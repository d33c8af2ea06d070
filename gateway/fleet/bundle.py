"""All that a site needs to begin without ever having seen a master: the root lists, its certificate, and who is out."""

from __future__ import annotations

from dataclasses import dataclass

from device_agent.errors import Refused, UsageInvalid
from device_agent.trust import codec
from device_agent.trust.site_certificate import read_site_certificate
from gateway.fleet import armor


@dataclass(frozen=True)
class Bundle:
    """What is carried to one gateway. Whoever takes it in checks each proof."""

    root_lists: tuple[bytes, ...]
    certificate: bytes
    revocations: tuple[bytes, ...] = ()

    @property
    def site(self) -> str:
        """The site it says it is for."""
        return read_site_certificate(self.certificate).site

    def text(self) -> str:
        """As one line."""
        return armor.wrap("os-bundle", codec.encode([list(self.root_lists), self.certificate, list(self.revocations)]))


def read_bundle(text: str) -> Bundle:
    """The bundle in a line. Raises ``UsageInvalid``."""
    body = armor.unwrap("os-bundle", text)
    try:
        parts = codec.decode(body, armor.TEXT_MAX)
        if type(parts) is not list or len(parts) != 3:
            raise Refused("malformed", "a bundle has root lists, a certificate and lists of revoked keys")
        root_lists, certificate, revocations = parts
        if type(certificate) is not bytes or not (_are_proofs(root_lists) and _are_proofs(revocations)):
            raise Refused("malformed", "a bundle is made of proofs")
        read_site_certificate(certificate)
    except Refused as refusal:
        raise UsageInvalid(
            "this bundle cannot be read",
            error_id="fleet.bad_bundle",
            found=str(refusal),
            allowed=armor.KINDS["os-bundle"],
            hint="make it again where it was made",
        ) from None
    return Bundle(tuple(root_lists), certificate, tuple(revocations))


def _are_proofs(value: object) -> bool:
    return isinstance(value, list) and all(type(each) is bytes for each in value)
