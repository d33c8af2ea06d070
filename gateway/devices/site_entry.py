"""One site below a station, as far as trust goes: a row of the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from device_agent.errors import Refused
from device_agent.trust import codec
from device_agent.trust.keys import SigningKey, verify
from device_agent.trust.policy import SitePolicy
from device_agent.trust.site_certificate import SiteCertificate, read_site_certificate
from device_agent.trust.site_request import SiteRequest, open_site_request
from gateway.fleet.grants import DAYS
from gateway.store.writer import Statement
from upstream.frames import GroupKeys, decode_group_keys, encode

EntryState = Literal["pending", "accepted", "rejected"]

SELECT_ALL = (
    "SELECT site, link, state, request, certificate, policy, days, group_keys, first_seen, last_seen FROM site_trust"
)
_PUT = (
    "INSERT OR REPLACE INTO site_trust"
    " (site, link, state, request, certificate, policy, days, group_keys, first_seen, last_seen)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SIGNED = b"os1 group keys\0"


@dataclass(slots=True)
class SiteEntry:
    """What is kept of a site. ``contender`` is a request by another identity under the same name, not kept on disk."""

    site: str
    link: str
    state: EntryState
    request: bytes = b""
    certificate: bytes = b""
    policy: SitePolicy = field(default_factory=SitePolicy)
    days: int = DAYS
    group: GroupKeys | None = None
    first_seen: float = 0.0
    last_seen: float = 0.0
    contender: bytes = b""

    @property
    def is_leaf(self) -> bool:
        """Whether it is behind a relay."""
        return self.link != self.site

    def asked(self) -> SiteRequest | None:
        """What it asks its certificate with; None for a site that has not asked."""
        return open_site_request(self.request) if self.request else None

    @property
    def identity(self) -> bytes:
        """The signing key that was accepted for it; empty for none yet."""
        if self.request:
            return open_site_request(self.request).sig
        return read_site_certificate(self.certificate).sig if self.certificate else b""

    def put(self) -> Statement:
        """The statement that keeps it."""
        group = encode(self.group) if self.group is not None else b""
        policy = codec.encode(self.policy.to_claims())
        row = (
            self.site,
            self.link,
            self.state,
            self.request,
            self.certificate,
            policy,
            self.days,
            group,
            self.first_seen,
            self.last_seen,
        )
        return (_PUT, [row])


def entry_of(row: tuple[Any, ...]) -> SiteEntry:
    """The site in a row. Raises ``Refused`` for one that this release does not understand."""
    site, link, state, request, certificate, policy, days, group, first_seen, last_seen = row
    claims = codec.decode(policy)
    if type(claims) is not dict:
        raise Refused("malformed", "a policy is a map")
    return SiteEntry(
        site=site,
        link=link,
        state=state,
        request=request,
        certificate=certificate,
        policy=SitePolicy.from_claims(claims),
        days=days,
        group=decode_group_keys(group) if group else None,
        first_seen=first_seen,
        last_seen=last_seen,
    )


def sign_group_keys(
    key: SigningKey, *, site: str, certificate: bytes, epoch: int, keys: list[tuple[bytes, bytes]]
) -> GroupKeys:
    """A site's group key on its way to the masters, signed by the site."""
    signature = key.sign(_content(site, epoch, keys))
    return GroupKeys(site=site, certificate=certificate, epoch=epoch, keys=keys, signature=signature)


def check_group_keys(group: GroupKeys, certificate: SiteCertificate) -> None:
    """Whether the site of this certificate signed it. Raises ``Refused``."""
    if certificate.site != group.site:
        raise Refused("wrong_site", f"a certificate of {certificate.site} with the group key of {group.site}")
    verify(certificate.sig, group.signature, _content(group.site, group.epoch, group.keys))


def _content(site: str, epoch: int, keys: list[tuple[bytes, bytes]]) -> bytes:
    return _SIGNED + codec.encode([site, epoch, [list(entry) for entry in keys]])
