"""`outstation check` where the package was just installed: before a site, at work, stopped; and its timer."""

from __future__ import annotations

import json
from typing import Any

from tests.peers.appliance import SECONDS, install, packages
from tests.peers.machines import Machine, TestBed
from tests.peers.waiting import until

NOT_ALL_OK, NOT_RUNNING = 1, 7
SERVICE = "outstation-check.service"


async def found(machine: Machine, status: int) -> dict[str, str]:
    """The severity of every check, and that the command ended so."""
    done = await machine.run("outstation", "check", "--json", check=False)
    assert done.returncode == status, done
    lines = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert not [each for each in lines if each["about"] == "broken"], lines
    return {each["check"]: each["severity"] for each in reversed(lines)}


async def timed(machine: Machine) -> list[str]:
    """Let the timer's service run once; what the journal has of it."""
    await machine.run("systemctl", "start", SERVICE, seconds=SECONDS)
    assert await machine.property_of(SERVICE, "Result") == "success"
    return [entry["MESSAGE"] for entry in await machine.journal("-u", SERVICE) if entry.get("_COMM") != "systemd"]


async def told(machine: Machine) -> list[dict[str, Any]]:
    """The events of checks that the gateway has kept."""
    words = ("outstation", "events", "outstation/check/*", "--history", "100", "--no-follow", "--json")
    return [json.loads(line)["data"] for line in (await machine.said(*words)).splitlines()]


async def test_a_box_explains_itself_from_the_installation_on(bed: TestBed) -> None:
    machine = await bed.machine("gateway")
    _, package = packages()
    await install(machine, package)
    assert await machine.property_of("outstation-check.timer", "ActiveState") == "active"

    async def answers() -> bool:
        return (await machine.run("outstation", "check", check=False)).returncode == NOT_ALL_OK

    await until(answers, SECONDS, "the gateway answers")
    assert await found(machine, NOT_ALL_OK) == {"join": "error", "disk": "ok", "clock": "ok", "permissions": "ok"}
    await timed(machine)

    await machine.sh("echo 'name: lisbon' >> /etc/outstation/gateway.yaml; systemctl reload outstation-gateway")

    async def at_work() -> bool:
        view = await machine.run("outstation", "check", "--json", check=False)
        return b'"check":"broker","severity":"ok"' in view.stdout

    await until(at_work, SECONDS, "the gateway is a station with a broker")
    healthy = {name for name, severity in (await found(machine, 0)).items() if severity == "ok"}
    assert healthy >= {"disk", "clock", "permissions", "store", "broker", "ports", "open-files", "versions"}

    # As root somebody gives a file of the station away: the timer tells it once, --fix mends it, the timer tells that.
    await machine.sh(
        "chown root /var/lib/outstation/gateway/trust.keys; chmod 644 /var/lib/outstation/gateway/trust.keys"
    )
    await timed(machine)
    journal = await timed(machine)
    assert sum("permissions: was ok" in line for line in journal) == 1, journal
    await machine.run("outstation", "check", "--fix", "--yes")
    assert (await machine.said("stat", "--format=%U %a", "/var/lib/outstation/gateway/trust.keys")).split() == [
        "outstation",
        "600",
    ]
    assert any("permissions: was error" in line for line in await timed(machine))
    events = [event for event in await told(machine) if event["check"] == "permissions"]
    assert [(event["was"], event["severity"]) for event in events] == [("ok", "error"), ("error", "ok")]

    await machine.run("systemctl", "stop", "outstation-gateway")
    stopped = await found(machine, NOT_RUNNING)
    assert (stopped["station"], stopped["permissions"], stopped["broker"]) == ("error", "ok", "ok")
    assert any("error     station" in line for line in await timed(machine))
    assert await machine.said("systemctl", "--failed", "--no-legend") == ""
