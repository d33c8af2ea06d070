"""A unit that fails again and again waits longer and longer, says so, and starts at once for who asks."""

from __future__ import annotations

import json
from functools import partial

from tests.peers.appliance import BROKER, GATEWAY, SECONDS, install, packages
from tests.peers.machines import Machine, TestBed
from tests.peers.waiting import until

AGENT = "outstation-agent.service"
STATES = {
    GATEWAY: "/var/lib/outstation/gateway",
    BROKER: "/var/lib/outstation/broker",
    AGENT: "/var/lib/outstation-agent",
}
SIX_TIMES = 'read -r boot rest <"$1/failures" && echo "$boot 6 $(cut -d " " -f 1 /proc/uptime) before" >"$1/failures"'
"""One that has failed, as if it had so often: the next failure is followed by the longest pause."""
LONGEST = "has failed 7 times in a row: waits 300 s, until "


async def status(machine: Machine, unit: str) -> str:
    return await machine.property_of(unit, "StatusText")


async def status_has(machine: Machine, unit: str, part: str) -> None:
    async def said() -> bool:
        return part in await status(machine, unit)

    await until(said, SECONDS, f"a status of {unit} with {part!r}")


async def crash(machine: Machine, unit: str, restarts: int) -> None:
    """Kill what runs, and wait until systemd has started it so often."""
    await machine.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", unit)

    async def again() -> bool:
        return await machine.property_of(unit, "NRestarts") == str(restarts)

    await until(again, SECONDS, f"start {restarts} of {unit}")


async def waits(machine: Machine, unit: str) -> list[str]:
    """What it wrote each time that it waited."""
    entries = await machine.journal("-u", unit)
    return [str(entry["MESSAGE"]) for entry in entries if " times in a row: waits " in str(entry["MESSAGE"])]


async def test_a_unit_that_fails_waits_longer_and_longer_and_starts_at_once_for_who_asks(bed: TestBed) -> None:
    machine = await bed.machine("gateway")
    await install(machine, packages("outstation-agent")[1])
    await install(machine, packages()[1])
    await machine.sh("echo 'name: lisbon' >>/etc/outstation/gateway.yaml; systemctl reload outstation-gateway")
    await status_has(machine, GATEWAY, "lisbon: not joined yet")
    await status_has(machine, BROKER, "the broker of this site")

    # The first start follows after systemd's pause.
    await crash(machine, GATEWAY, 1)
    await status_has(machine, GATEWAY, "lisbon: not joined yet")
    assert await waits(machine, GATEWAY) == []
    for unit in (BROKER, AGENT):
        await crash(machine, unit, 1)
    await status_has(machine, BROKER, "the broker of this site")
    for unit, state in STATES.items():
        await machine.sh(SIX_TIMES, state)
        before = int(await machine.property_of(unit, "NRestarts"))
        await crash(machine, unit, before + 1)
        await status_has(machine, unit, LONGEST)
        counts = await machine.property_of(unit, "ActiveState")
        assert counts == ("active" if unit == BROKER else "activating")

    # Nobody who asks waits: systemctl returns when the unit is ready.
    done = await machine.run("outstation", "check", "--json", check=False)
    (station,) = [json.loads(line) for line in done.stdout.splitlines() if b'"check":"station"' in line]
    assert LONGEST in station["finding"], station
    assert station["fix"] == "systemctl restart outstation-gateway"
    for unit in (GATEWAY, AGENT):
        await machine.run("systemctl", "restart", unit)
        assert "times in a row" not in await status(machine, unit)
    # The gateway did not wait for its broker either, and says that it is away.
    await status_has(machine, GATEWAY, "broker: not connected")
    await machine.run("systemctl", "stop", BROKER)
    await machine.run("systemctl", "start", BROKER)
    await status_has(machine, BROKER, "the broker of this site")
    for state in STATES.values():
        assert (await machine.sh('cat "$1/failures"', state)).split() == ["none"]

    # What ends by itself keeps its reason: mosquitto's port is somebody else's.
    await machine.run("systemctl", "stop", BROKER)
    listen = "import socket, time; s = socket.socket(); s.bind(('', 1884)); s.listen(); time.sleep(10 ** 6)"
    await machine.run("systemd-run", "--unit=thief", "python3", "-c", listen)
    await machine.run("systemctl", "start", BROKER, check=False)
    await until(partial(machine.sh, 'grep " 1 " "$1/failures" || true', STATES[BROKER]), SECONDS, "its first failure")
    await machine.sh(SIX_TIMES, STATES[BROKER])
    await status_has(machine, BROKER, LONGEST)
    assert "the last time: ended with 1; it said: the broker does not start: port 1884 is" in await status(
        machine, BROKER
    )
    await machine.run("systemctl", "stop", "thief")
    await machine.run("systemctl", "restart", BROKER)
    await status_has(machine, BROKER, "the broker of this site")

    # Wrong settings are nothing to wait for.
    await machine.sh("echo 'log_levle: info' >>/etc/outstation/gateway.yaml")
    await machine.run("systemctl", "restart", GATEWAY, check=False)
    shown = await machine.show(GATEWAY)
    assert (shown["ActiveState"], shown["NRestarts"], shown["ExecMainStatus"]) == ("failed", "0", "6")
    assert "log_levle" in shown["StatusText"]
    for unit in (GATEWAY, BROKER):
        exposure = await machine.sh('systemd-analyze security --no-pager "$1" | tail -n 1', unit)
        assert float(exposure.split(": ")[1].split()[0]) <= 2.0, exposure
