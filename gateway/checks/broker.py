"""Does the site's broker answer?"""

from __future__ import annotations

import asyncio
import re
import subprocess
from typing import Final

from device_agent.exhausted import shortage
from gateway.broker.embedded import COMFORTABLE_DEVICES
from gateway.broker.own_address import not_own
from gateway.broker.start import find_mosquitto
from gateway.checks.box import Box
from gateway.checks.finding import Facts, Finding

SECONDS: Final = 5.0
OURS: Final = ("managed", "service")
"""The modes in which mosquitto runs on this machine, and ``host`` is where it listens."""

LEAST: Final = (2, 0)
"""The first mosquitto with the listeners and the rules that a site needs."""

FIXES: Final = {
    "service": "systemctl status outstation-broker says why it does not run",
}


async def check(facts: Facts) -> list[Finding]:
    """One finding about the broker; none on a station without one."""
    view = await facts.station_view()
    broker = view["broker"]
    if broker is None:
        return []
    if broker["mode"] in OURS and shortage() is None and (foreign := await asyncio.to_thread(_foreign, broker["host"])):
        return foreign
    where = f"{broker['mode']} broker at {broker['host']}:{broker['port']}"
    if not broker["connected"] and shortage() is not None and (short := shortage(facts.box().unit)) is not None:
        return [
            Finding(
                check="broker",
                severity="error",
                finding=f"not connected to the {where}: {short.what}",
                meaning="the broker is not at fault; no device with an agent can be reached until there is room",
                fix=short.fix,
            )
        ]
    if not broker["connected"]:
        return [
            Finding(
                check="broker",
                severity="error",
                finding=f"not connected to the {where}: {broker['last_error']}",
                meaning="no device with an agent can be reached; jobs wait until they expire",
                fix=FIXES.get(
                    broker["mode"], "start the broker, or correct broker.host and broker.port in the settings"
                ),
            )
        ]
    if broker["mode"] == "embedded" and view["devices"] > COMFORTABLE_DEVICES:
        return [
            Finding(
                check="broker",
                severity="warning",
                finding=f"{view['devices']} devices on the embedded broker",
                meaning=f"it is fine for about {COMFORTABLE_DEVICES}; beyond that answers come late",
                fix="apt install mosquitto, then set broker.mode to managed",
            )
        ]
    return [Finding(check="broker", severity="ok", finding=f"connected to the {where}")]


def at_rest(box: Box) -> list[Finding]:
    """One finding about the program that would be the broker; none where it is another's, or inside the station."""
    broker = box.settings.broker
    if broker is None or broker.mode not in OURS:
        return []
    program = find_mosquitto()
    if program is None:
        return [
            Finding(
                check="broker",
                severity="error",
                finding=f"mosquitto is not installed, and broker.mode is {broker.mode}",
                meaning="the gateway does not start: it has no broker for its devices",
                fix="apt install mosquitto; or set broker.mode to embedded, for up to 200 devices",
            )
        ]
    release = _release(program)
    if release is not None and release < LEAST:
        words = ".".join(map(str, release))
        return [
            Finding(
                check="broker",
                severity="error",
                finding=f"{program} is mosquitto {words}, needed is {'.'.join(map(str, LEAST))} or newer",
                meaning="the gateway does not start: that broker does not know the rules of a site",
                fix="apt install mosquitto, from Debian 12 or newer",
            )
        ]
    foreign = _foreign(broker.host) if broker.host is not None else []
    return foreign or [Finding(check="broker", severity="ok", finding=f"{program} is there")]


def _foreign(host: str) -> list[Finding]:
    """What there is to say of a broker that is to listen where this machine has no address."""
    why = not_own(host)
    if not why:
        return []
    return [
        Finding(
            check="broker",
            severity="error",
            finding=f"broker.host {host} is no address of this machine: {why}",
            meaning="the broker cannot listen there, so no device with an agent can be reached; it listens by itself as"
            " soon as the address is there; one of a router before this machine never is",
            fix="ip -brief address shows which it has; correct broker.host in /etc/outstation/gateway.yaml or"
            " gateway.d/50-join.yaml, or take it out for all of them; then systemctl restart outstation-gateway",
            about="broker.host",
        )
    ]


def _release(program: str) -> tuple[int, ...] | None:
    """What it says of itself; None when it says nothing that can be read."""
    try:
        # It tells its help with status 3.
        said = subprocess.run([program, "-h"], capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"mosquitto version (\d+)\.(\d+)", said.stdout + said.stderr)
    return (int(found[1]), int(found[2])) if found else None
