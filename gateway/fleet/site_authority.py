"""The offline site authority of a fleet without online masters: certificates of sites, signed by hand.

It may certify sites and order nothing. What a site is to be ordered by others, such as a stock Salt master, is granted
to that origin in the certificate.
"""

from __future__ import annotations

from dataclasses import replace

from device_agent.errors import Refused, UsageInvalid
from device_agent.trust.chain import Anchor
from device_agent.trust.keys import SigningKey
from device_agent.trust.site_certificate import sign_site_certificate
from device_agent.trust.site_request import SiteRequest, open_site_request
from gateway.fleet import armor
from gateway.fleet.bundle import Bundle
from gateway.fleet.ceremony import SITE_AUTHORITY, Ceremony
from gateway.fleet.grants import DAY_SECONDS, LONGEST_DAYS, Grant, granted
from gateway.fleet.station_files import load_or_make_keys

STANDALONE_DAYS = LONGEST_DAYS


def read_request(text: str) -> SiteRequest:
    """The request in a line. Raises ``UsageInvalid``."""
    try:
        return open_site_request(armor.unwrap("os-request", text))
    except Refused as refusal:
        raise UsageInvalid(
            "this request of a site proves nothing",
            error_id="fleet.bad_request",
            found=str(refusal),
            allowed=armor.KINDS["os-request"],
            hint="make it again on that gateway: outstation gateway init",
        ) from None


def sign_site(ceremony: Ceremony, request: SiteRequest, grant: Grant, now: float) -> Bundle:
    """All that a site needs, certified by the offline authority of this folder. Raises ``UsageInvalid``."""
    chain = ceremony.chain()
    key = _authority_key(ceremony)
    days = grant.days or STANDALONE_DAYS
    policy = replace(granted(None, grant), offl=days * DAY_SECONDS)
    issued = int(now)
    body = sign_site_certificate(
        key,
        site=request.site,
        sig=request.sig,
        kem=request.kem,
        curve=request.curve,
        issued=issued,
        expires=issued + days * DAY_SECONDS,
        policy=policy,
    )
    anchor = Anchor(None)
    anchor.take_root_lists(chain)
    try:
        anchor.take_site_certificate(body, issued)
    except Refused as refusal:
        raise UsageInvalid(
            "the site authority of this folder does not count any more",
            error_id="fleet.no_authority",
            where=str(ceremony.folder),
            found=str(refusal),
            allowed=f"{SITE_AUTHORITY} in the newest root list, with the role site-ca",
            hint=f"outstation fleet show {ceremony.folder / 'root-lists'}",
        ) from None
    return Bundle(tuple(chain), body)


def _authority_key(ceremony: Ceremony) -> SigningKey:
    path = ceremony.folder / f"{SITE_AUTHORITY}.keys"
    if not path.exists():
        raise UsageInvalid(
            "this fleet has no offline site authority",
            error_id="fleet.no_authority",
            where=str(path),
            allowed="a fleet that was made with `outstation fleet init --standalone`",
            hint="on a fleet with masters a master certifies: outstation keys accept SITE --request FILE --bundle FILE",
        )
    return load_or_make_keys(path)[0]
