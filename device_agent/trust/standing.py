"""Who counts: worked out anew from the root list, certificates and revocation lists whenever one of them changes.

An issuer counts only while its own issuer does. Only the root list says which masters there are; a master's list of
revoked keys is for sites and devices, a site's list for its own devices; and the list of a signer that counts no more
counts no more either, so that the lies of a stolen master end with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from device_agent.trust.revocations import Revocations
from device_agent.trust.root_list import MasterKey, RootList
from device_agent.trust.site_certificate import SiteCertificate


@dataclass(frozen=True, slots=True)
class Certified:
    """A site's certificate and the master's key that signed it."""

    certificate: SiteCertificate
    public: bytes


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of revoked keys and the key that signed it."""

    revocations: Revocations
    public: bytes


@dataclass(frozen=True, slots=True)
class Standing:
    """The answers. ``sites`` is by kid and site, ``revoked`` what the root list or a master has revoked."""

    masters: Mapping[bytes, MasterKey] = field(default_factory=dict)
    sites: Mapping[bytes, Mapping[str, SiteCertificate]] = field(default_factory=dict)
    newest: Mapping[str, SiteCertificate] = field(default_factory=dict)
    revoked: frozenset[bytes] = frozenset()
    revoked_devices: Mapping[str, frozenset[bytes]] = field(default_factory=dict)
    lists: tuple[Revocations, ...] = ()


def judge(root: RootList | None, certified: Iterable[Certified], listed: Iterable[Listed]) -> Standing:
    """Who counts by all this. Every signature was checked before; here only the standing of the signers is."""
    if root is None:
        return Standing()
    masters = {master.kid: master for master in root.masters if master.kid not in root.revoked}
    of_masters, of_sites = [], []
    for each in listed:
        master = masters.get(each.revocations.kid)
        if master is None:
            of_sites.append(each)
        elif _signed_by(master, each.public, "revoke"):
            of_masters.append(each.revocations)
    revoked = frozenset(root.revoked).union(*(each.kids for each in of_masters))
    sites = _sites(masters, revoked, certified)
    counting = [each.revocations for each in of_sites if _may_revoke(sites, each)]
    devices: dict[str, frozenset[bytes]] = {}
    for revocations in counting:
        if revocations.site is not None:
            devices[revocations.site] = devices.get(revocations.site, frozenset()) | revocations.kids
    return Standing(
        masters=masters,
        sites=sites,
        newest=_newest(sites),
        revoked=revoked,
        revoked_devices=devices,
        lists=(*of_masters, *counting),
    )


def _sites(
    masters: Mapping[bytes, MasterKey], revoked: frozenset[bytes], certified: Iterable[Certified]
) -> dict[bytes, dict[str, SiteCertificate]]:
    sites: dict[bytes, dict[str, SiteCertificate]] = defaultdict(dict)
    for each in certified:
        certificate, kid = each.certificate, each.certificate.kid
        master = masters.get(certificate.issuer)
        if master is None or not _signed_by(master, each.public, "site-ca") or kid in revoked:
            continue
        known = sites[kid].get(certificate.site)
        if known is None or newer(certificate, known):
            sites[kid][certificate.site] = certificate
    return dict(sites)


def _newest(sites: Mapping[bytes, Mapping[str, SiteCertificate]]) -> dict[str, SiteCertificate]:
    found: dict[str, SiteCertificate] = {}
    for by_site in sites.values():
        for site, certificate in by_site.items():
            if site not in found or newer(certificate, found[site]):
                found[site] = certificate
    return found


def newer(one: SiteCertificate, other: SiteCertificate) -> bool:
    """Whether one certificate goes before another: by when it was issued, and by its bytes where that is the same."""
    return (one.issued, one.body) > (other.issued, other.body)


def _may_revoke(sites: Mapping[bytes, Mapping[str, SiteCertificate]], listed: Listed) -> bool:
    certificate = sites.get(listed.revocations.kid, {}).get(listed.revocations.site or "")
    return certificate is not None and certificate.sig == listed.public and "revoke" in certificate.roles


def _signed_by(master: MasterKey, public: bytes, role: str) -> bool:
    return master.sig == public and role in master.roles
