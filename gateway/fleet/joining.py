"""How a station comes to its fleet: a root list for a master, a token or a bundle for a gateway.

The same for a station that runs and for files of one that does not: ``Authority`` verifies and keeps. What is wrong is
said to whoever typed it.
"""

from __future__ import annotations

from collections.abc import Sequence

from device_agent.errors import PolicyRefused, Refused, UsageInvalid
from device_agent.trust.root_list import read_root_list
from device_agent.trust.token import SiteToken
from gateway.devices.authority import Authority
from gateway.fleet.bundle import read_bundle
from gateway.fleet.ceremony import checked_chain
from gateway.fleet.description import check_address
from gateway.fleet.station_files import KnownMaster
from upstream.curve import key_bytes, key_text


async def publish(authority: Authority, body: bytes, where: str) -> bool:
    """Take in the file of root lists; whether it was news. Raises ``UsageInvalid`` and ``ConfigInvalid``."""
    chain = checked_chain(body, where)
    newest = read_root_list(chain[-1])
    hints = {
        "rollback": "take the newest file: outstation fleet show FILE says which version it is",
        "not_in_root_list": "first let the holders of the root keys add it: outstation fleet add-master DESCRIPTION,"
        " with what `outstation master init` prints here",
        "wrong_root": "this station joined with a token of another fleet: outstation fleet show FILE names the fleet",
    }
    try:
        return await authority.install(root_lists=chain)
    except Refused as refusal:
        current = authority.anchor.root
        raise UsageInvalid(
            "this station does not take these root lists",
            error_id=f"fleet.{refusal.reason}",
            where=where,
            found=f"version {newest.version} of fleet {newest.fingerprint.hex()}: {refusal}",
            allowed=f"a version after {current.version} of fleet {current.fingerprint.hex()}"
            if current is not None
            else "the newest root lists of its fleet, in which it stands",
            hint=hints.get(refusal.reason, "take the file root-lists from the folder of the ceremony again"),
        ) from None


async def join_with_token(authority: Authority, text: str) -> None:
    """Join the fleet of a token and remember its master. Raises ``UsageInvalid``."""
    _need_gateway(authority)
    try:
        token = SiteToken.from_text(text)
    except Refused as refusal:
        raise UsageInvalid(
            "this is no token to join with",
            error_id=f"join.{refusal.reason}",
            found=refusal.detail or refusal.reason,
            allowed="what `outstation sites token` prints on a master, all of it, in quotes",
            hint="outstation gateway join --token-file FILE takes it from a file, where no shell can change it",
        ) from None
    key = key_text(token.curve)
    await authority.join(token.root, [KnownMaster(address, key) for address in token.addresses])


async def join_with_bundle(authority: Authority, text: str) -> None:
    """Take in all that a site needs which has never seen a master. Raises ``UsageInvalid``."""
    _need_gateway(authority)
    bundle = read_bundle(text)
    try:
        await authority.install(
            root_lists=bundle.root_lists, certificate=bundle.certificate, revocations=bundle.revocations
        )
    except Refused as refusal:
        raise UsageInvalid(
            "this station does not take this bundle",
            error_id=f"join.{refusal.reason}",
            found=f"a bundle for site {bundle.site}: {refusal}",
            allowed=f"one made from the request of this gateway, site {authority.site}",
            hint="outstation gateway init prints the request; outstation keys accept SITE --request FILE --bundle FILE"
            " on a master makes the bundle",
        ) from None


def site_token(authority: Authority, addresses: Sequence[str]) -> SiteToken:
    """The token with which gateways find this master. Raises ``PolicyRefused`` without a fleet."""
    root, master = authority.anchor.root, authority.master
    if root is None or master is None:
        raise PolicyRefused(
            "this station is no master of a fleet, so there is nothing to join",
            error_id="fleet.no_fleet",
            found="no root list" if root is None else f"masters there: {', '.join(m.name for m in root.masters)}",
            allowed="a master that stands in its fleet's root list",
            hint="outstation master init, outstation fleet add-master, outstation fleet publish",
        )
    found = tuple(check_address(address) for address in addresses) or master.addresses
    if not found:
        raise UsageInvalid(
            "nobody has said where gateways reach this master",
            error_id="fleet.no_address",
            allowed="an address in the root list, or one given here",
            hint="outstation sites token --address tcp://HOST:PORT",
        )
    return SiteToken(root.fingerprint, key_bytes(authority.curve.public), found)


def _need_gateway(authority: Authority) -> None:
    if authority.role != "gateway":
        raise UsageInvalid(
            "a master does not join, it is added",
            error_id="join.master",
            found="a master",
            allowed="a gateway",
            hint="outstation fleet add-master DESCRIPTION, then outstation fleet publish FILE",
        )
