"""How far a gateway is on its way into a fleet, in words for who waits: what was reached, and whose turn it is.

``judged`` is pure; ``wait_until_accepted`` asks the station again and again, for a bounded time. The join itself is the
station's: whoever stops waiting stops nothing, and can wait again.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from device_agent.clock import iso
from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, EXIT_REFUSED, NotRunning
from gateway.cli.arguments import written
from gateway.cli.text import safe
from gateway.fleet.join_words import JOIN

if TYPE_CHECKING:
    from gateway.cli.client import StationClient
    from gateway.cli.fleet_views import FleetView
    from gateway.cli.output import Output
    from gateway.cli.views import StationView

LOOK_SECONDS = 0.25
CONNECT_SECONDS = 3.0
TURNED_AWAY = ("rejected", "denied", "revoked", "fenced")


@dataclass(frozen=True)
class Stage:
    """Where a join stands: what is so, what to do, and the exit status when nothing more will come by itself."""

    words: str
    todo: str = ""
    status: int | None = None
    silent: str = ""
    """The address of a master that does not answer: worth a look whether anything listens there."""


def judged(station: StationView, fleet: FleetView) -> Stage:
    """Where a join stands, by what the station says of itself."""
    if fleet.joined:
        return Stage(f"accepted: {fleet.site} belongs to fleet {fleet.root}", status=EXIT_OK)
    uplink = station.uplink
    if uplink is None or uplink.state == "no masters":
        return Stage("no master is known yet", f"{JOIN}, with what `outstation sites token` prints on the master")
    error, master = uplink.last_error or "", uplink.master or "the master"
    accept = f"outstation keys accept {station.name} --fingerprint {station.fingerprint}"
    if uplink.state == "pending":
        return Stage(f"{master} has heard of this gateway; somebody there must accept it", f"on the master: {accept}")
    if uplink.state == "connected" and fleet.lapsed == "expired":
        return Stage(
            f"accepted by {master}, and its certificate counts until {iso(fleet.expires or 0)}: the clock of this"
            " machine is beyond that",
            "sudo timedatectl set-ntp false; sudo timedatectl set-time 'YYYY-MM-DD HH:MM:SS',"
            " with the date and time of now; then it goes on by itself",
        )
    if uplink.state == "connected":
        return Stage(f"connected to {master}, which has not sent the certificate yet")
    turned_away = next((word for word in TURNED_AWAY if error.startswith(word) or f"was {word}" in error), None)
    if turned_away is not None:
        undo = {
            "rejected": f"if that was a mistake, on the master: {accept}",
            "denied": "if this gateway takes the place of another, on the master:"
            f" outstation keys reject {station.name}, then {accept}",
            "fenced": f"if this is the right one of two, on the master: outstation sites unfence {station.name}",
        }
        why = undo.get(turned_away, "for good: begin anew with an empty state folder, and join again")
        return Stage(f"{master} turns this gateway away: {error}", why, EXIT_REFUSED)
    if error:
        return Stage(f"{master} does not answer: {error}", silent=master)
    return Stage(f"asking {master}")


def reached(address: str) -> str:
    """Why no master answers at an address, as far as this machine can see."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS):
            pass
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        return f"nothing listens at {address} ({why}): is the address right, does the master run, is the way open?"
    return (
        f"something listens at {address}, and does not answer to this key: is it that master's? `outstation keys list`"
        " there shows its key, `outstation sites token` prints a new token"
    )


def wait_until_accepted(output: Output, client: StationClient, seconds: float) -> int:
    """Tell each stage once, until the gateway is accepted or turned away, or the time is up; the exit status."""
    from gateway.cli import fleet_views

    deadline = time.monotonic() + seconds
    told: set[str] = set()
    while True:
        try:
            stage = judged(client.station(), fleet_views.shown(client))
        except NotRunning:
            stage = Stage("the gateway does not answer just now")
        if stage.words not in told:
            # A link that is lost comes back and is lost again; each of its stages is said once.
            told.add(stage.words)
            output.note(safe(stage.words))
            if stage.todo or stage.silent:
                output.note(f"  {safe(stage.todo or reached(stage.silent))}")
        if stage.status is not None:
            return stage.status
        if time.monotonic() >= deadline:
            _give_up(output, client, seconds)
            return EXIT_NOT_ALL_OK
        time.sleep(LOOK_SECONDS)


def _give_up(output: Output, client: StationClient, seconds: float) -> None:
    output.note(f"not accepted within {written(seconds)}; the gateway goes on asking by itself")
    try:
        findings = client.findings()
    except NotRunning:
        findings = []
    for finding in findings:
        if finding.check in {"refusals", "clock"} and finding.severity != "ok":
            output.note(f"  {safe(finding.finding)}: {safe(finding.meaning or '')}")
    output.note("wait again:  outstation gateway join")
