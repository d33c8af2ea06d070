"""Whom a proof names: the device it is about (``sub``) and the site it is for (``aud``)."""

from __future__ import annotations

import re
from typing import Any

from device_agent.errors import Refused
from device_agent.protocol.messages import JID_PATTERN, SITE_ID_PATTERN
from device_agent.trust.claims import AUD, SUB, take
from device_agent.trust.keys import did_from_text

JID_BYTES = 20

_site_id = re.compile(SITE_ID_PATTERN)
_jid = re.compile(JID_PATTERN)


def take_device(claims: dict[int, Any], expected: str | None = None) -> str:
    """The did, as text, that a proof is about. Raises ``Refused`` (``not_for_us``) when another one was expected."""
    device = take(claims, SUB, str, most=64)
    did_from_text(device)
    if expected is not None and device != expected:
        raise Refused("not_for_us", device)
    return device


def take_site(claims: dict[int, Any], expected: str | None = None) -> str:
    """The site that a proof is for. Raises ``Refused`` (``wrong_site``) when another one was expected."""
    site = take(claims, AUD, str, most=64)
    if not _site_id.match(site):
        raise Refused("claim_invalid", f"aud is {site!r}")
    if expected is not None and site != expected:
        raise Refused("wrong_site", site)
    return site


def jid_to_bytes(jid: str) -> bytes:
    """A job's id as proofs carry it. Raises ``Refused``."""
    if not _jid.match(jid):
        raise Refused("claim_invalid", f"{jid[:40]!r} is no job id")
    return jid.encode("ascii")


def jid_from_bytes(body: object) -> str:
    """A job's id from a proof: 20 ASCII digits. Raises ``Refused``."""
    if type(body) is not bytes or len(body) != JID_BYTES or not body.isdigit():
        raise Refused("claim_invalid", "a job id is 20 ASCII digits")
    return body.decode("ascii")
