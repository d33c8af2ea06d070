"""Is a master above, does it take what is spooled, and are those that stand by there?"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.checks.box import Box
from gateway.checks.finding import Facts, Finding
from gateway.fleet.join_words import JOIN
from gateway.fleet.station_files import StationFiles
from upstream.salt.terms import endpoint

CONNECT_SECONDS: Final = 3.0
MASTERS_TRIED: Final = 4
LOST: Final = "lost_publishes"
"""What a link to a Salt master says of itself, and one to a master of ours does not."""

ACCEPT: Final = re.compile(r"salt-key -a \S+")


async def check(facts: Facts) -> list[Finding]:
    """One finding about the uplink, and one for each other master that is away; none on a station without masters."""
    view = await facts.station_view()
    uplink = view["uplink"]
    if uplink is None or uplink["state"] == "no masters":
        return []
    pending = view["spool_pending"]
    others = [link for link in uplink["links"] if link["address"] != uplink["master"]]
    if uplink["state"] != "connected":
        return [
            Finding(
                check="uplink",
                severity="warning",
                finding=f"{uplink['state']}: {uplink['last_error'] or 'no answer yet'} ({uplink['master']})",
                meaning=f"the site works on by itself; {pending} items wait on this disk and go up when a master is"
                " back",
                fix=_fix(view, uplink["last_error"], uplink["state"]),
            ),
            *(_away(view, link) for link in others if link["state"] != "connected"),
        ]
    standing_by = [link["address"] for link in others if link["state"] == "connected"]
    words = f", standing by: {', '.join(standing_by)}" if standing_by else ""
    lost = sum(link.get(LOST, 0) for link in uplink["links"])
    words += f"; {lost} publishes were lost on the way, which Salt does not repeat" if lost else ""
    words += _resources(uplink["links"])
    return [
        Finding(
            check="uplink",
            severity="ok",
            finding=f"connected to {uplink['master']}, {pending} items to send{words}",
        ),
        *(_away(view, link) for link in others if link["state"] != "connected"),
    ]


def _resources(links: Sequence[Mapping[str, Any]]) -> str:
    """Which Salt masters have the devices as resources, where that is wanted."""
    words = ""
    for link in links:
        match link.get("resources"):
            case {"state": "registered", "count": count, "left_out": left_out, "grains_left_out": short}:
                words += f"; {count} devices are resources of {link['address']}"
                words += f", {left_out} more find no room" if left_out else ""
                words += f", {short} of them without some grains (upstream.resource_grains)" if short else ""
            case {"state": "none"}:
                words += f"; {link['address']} has no resources, which Salt has since 3008"
            case {"state": "waiting"} if link["state"] == "connected":
                words += f"; {link['address']} has not yet taken the devices as resources"
    return words


def _away(view: Mapping[str, Any], link: Mapping[str, Any]) -> Finding:
    return Finding(
        check="uplink",
        severity="warning",
        finding=f"{link['state']}: {link['last_error'] or 'no answer yet'} ({link['address']})",
        meaning="jobs that are given to this master wait there, and it cannot take over from the other",
        fix=_fix(view, link["last_error"], link["state"]),
        about=link["address"],
    )


def _fix(view: Mapping[str, Any], last_error: str, state: str) -> str:
    if any(LOST in link for link in view["uplink"]["links"]):
        return _fix_salt(last_error, state)
    standing = "pending" if state == "pending" else last_error.split(":", maxsplit=1)[0]
    if "the key was revoked" in last_error:
        standing = "revoked"
    accept = f"outstation keys accept {view['name']}"
    fixes = {
        "revoked": f"for ever: if this gateway is in the right hands, begin anew with another state_dir and {JOIN}",
        "pending": f"on the master: {accept}",
        "rejected": f"on the master: {accept} --fingerprint {view['fingerprint']}",
        "fenced": f"on the master, if this gateway is the right one: outstation sites unfence {view['name']}",
        "denied": f"on the master, if this gateway replaces the other: outstation keys reject {view['name']},"
        f" then {accept} --fingerprint {view['fingerprint']}",
    }
    return fixes.get(standing, "check the address and key under masters: in the settings, and the network to it")


def _fix_salt(last_error: str, state: str) -> str:
    accept = ACCEPT.search(last_error)
    if accept is not None:
        return f"on the master: {accept[0]}"
    if "request_server_ttl" in last_error:
        return "date -u here and on the master; where it is wrong: timedatectl set-ntp true (docs/salt.md)"
    if state == "refused":
        return "on the master: salt-key -L says what it thinks of our key, salt-key -F master its own (docs/salt.md)"
    return "check the address under upstream: in the settings, and the network to its ports 4505 and 4506"


def at_rest(box: Box) -> list[Finding]:
    """Whether the masters can be reached from this machine at all; none on a station that knows no master."""
    if box.role == "master":
        return []
    upstream = box.settings.upstream
    if upstream.salt:
        places = [endpoint(address, upstream.master_port) for address in upstream.masters[:MASTERS_TRIED]]
        found = [_reached(f"{host}:{port}") for host, port in places]
        return [each for each in found if each.severity != "ok"] or found[:1]
    known = [entry.address for entry in box.settings.masters]
    joined = StationFiles(box.state_dir).joined() if (box.state_dir / "masters").exists() else None
    known += [master.address for master in joined.masters] if joined is not None else []
    found = [_reached(address) for address in list(dict.fromkeys(known))[:MASTERS_TRIED]]
    away = [each for each in found if each.severity != "ok"]
    return away or found[:1]


def _reached(address: str) -> Finding:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS):
            pass
    except (OSError, ValueError) as error:
        return Finding(
            check="uplink",
            severity="warning",
            finding=f"no way to {address}: {error}",
            meaning="this station would work on by itself, and what it has for the master waits on this disk",
            fix=f"look at the cable; ip route get {host}; getent hosts {host}; is the address right in the settings?",
            about=address,
        )
    return Finding(check="uplink", severity="ok", finding=f"{address} takes connections", about=address)
