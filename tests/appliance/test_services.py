"""The units of a gateway and its broker, booted: what they start works in the sandbox, and each comes back."""

from __future__ import annotations

import json
from functools import partial

from gateway.fleet.join_words import NOT_JOINED
from tests.peers.appliance import BROKER, GATEWAY, MASTER, SECONDS, install, package_of, packages
from tests.peers.machines import Machine, TestBed
from tests.peers.waiting import until

SETTINGS = """\
name: lisbon
engines:
  - event_to_file:
      path: /var/log/outstation/events.jsonl
reactor:
  - door/open: [/srv/reactor/door.sls]
"""
REACTION = """\
{% set door = data['door'] %}
say:
  runner.test.arg:
    - args:
        door: {{ door }}
"""
HASTY = "[Service]\nWatchdogSec=20\n"


async def status_has(machine: Machine, unit: str, part: str) -> None:
    async def said() -> bool:
        return part in await machine.property_of(unit, "StatusText")

    await until(said, SECONDS, f"a status of {unit} with {part!r}")


async def test_what_a_gateway_starts_works_in_its_sandbox_and_each_unit_comes_back(bed: TestBed) -> None:
    gateway = await bed.machine("gateway")
    await install(gateway, packages()[1])
    await status_has(gateway, GATEWAY, NOT_JOINED)
    await status_has(gateway, BROKER, "waits for the settings that the gateway writes")

    async def told() -> bool:
        return NOT_JOINED in {entry["MESSAGE"] for entry in await gateway.journal(f"--unit={GATEWAY}")}

    await until(told, SECONDS, "the journal of the gateway says that it has not joined")

    await gateway.write("/etc/outstation/gateway.d/10-test.yaml", SETTINGS)
    await gateway.write("/srv/reactor/door.sls", REACTION)
    await gateway.write(f"/etc/systemd/system/{GATEWAY}.d/hasty.conf", HASTY)
    await gateway.run("systemctl", "daemon-reload")
    await gateway.run("systemctl", "restart", GATEWAY)
    await status_has(gateway, GATEWAY, "lisbon: not joined yet")
    await status_has(gateway, BROKER, "the broker of this site, on port 1884 and 1885")
    assert await gateway.property_of(BROKER, "NRestarts") == "0"

    # An engine below its warden writes where it may, and a reaction is rendered in a process of its own.
    async def reacted() -> bool:
        text = await gateway.sh("cat /var/log/outstation/events.jsonl 2>/dev/null", check=False)
        tags = {json.loads(line)["tag"]: line for line in text.splitlines()}
        return any(tag.startswith("salt/run/") and tag.endswith("/ret") and "front" in tags[tag] for tag in tags)

    await gateway.run("outstation", "fire", "door/open", '{"door": "front"}')
    await until(reacted, SECONDS, "what the reaction's runner returned, in the engine's file")
    assert (
        await gateway.sh("journalctl -u outstation-gateway -o cat | grep -c 'Operation not permitted'", check=False)
        == "0"
    )

    entries = await gateway.journal("ROLE=gateway", "STATION=lisbon")
    assert {entry["SYSLOG_IDENTIFIER"] for entry in entries} == {"outstation-gateway"}
    for unit in (GATEWAY, BROKER):
        exposure = await gateway.sh('systemd-analyze security --no-pager "$1" | tail -n 1', unit)
        assert float(exposure.split(": ")[1].split()[0]) <= 2.0, exposure

    # Each without the other.
    await gateway.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", BROKER)

    async def broker_is_back() -> bool:
        return await gateway.property_of(BROKER, "NRestarts") == "1"

    await until(broker_is_back, SECONDS, "the broker's next start")
    await status_has(gateway, BROKER, "the broker of this site")
    assert await gateway.property_of(GATEWAY, "NRestarts") == "0"
    broker = await gateway.property_of(BROKER, "MainPID")

    # One that hangs is not fed any more.
    await gateway.run("systemctl", "kill", "--signal=STOP", "--kill-whom=main", GATEWAY)

    async def gateway_is_back() -> bool:
        return await gateway.property_of(GATEWAY, "NRestarts") == "1"

    await until(gateway_is_back, SECONDS, "the gateway's next start")
    await status_has(gateway, GATEWAY, "lisbon: not joined yet")
    assert await gateway.property_of(BROKER, "MainPID") == broker
    assert await gateway.sh("journalctl -u outstation-gateway -o cat | grep -c 'Watchdog timeout'", check=False) != "0"


LATE_ADDRESS = "192.0.2.10"
LATE_GATEWAY = f"name: lisbon\nbroker:\n  host: {LATE_ADDRESS}\n"
LATE_MASTER = f"name: central\nsites:\n  listen: tcp://{LATE_ADDRESS}:4510\n"


async def test_units_whose_address_comes_after_the_boot_listen_without_an_operator(bed: TestBed) -> None:
    """The power comes back, and the address of the broker and of the master is added minutes after the boot."""
    machine = await bed.machine("late")
    await install(machine, package_of())
    await machine.write("/etc/outstation/gateway.d/10-test.yaml", LATE_GATEWAY)
    await machine.write("/etc/outstation/master.yaml", LATE_MASTER)
    await machine.run("systemctl", "restart", GATEWAY)
    await status_has(machine, BROKER, f"broker.host {LATE_ADDRESS} cannot be used")
    await machine.run("systemctl", "enable", MASTER)
    await machine.kill()
    await machine.start()
    listeners = {BROKER: f"{LATE_ADDRESS}:1884", MASTER: f"{LATE_ADDRESS}:4510"}

    async def tried_again(unit: str) -> bool:
        return int(await machine.property_of(unit, "NRestarts")) >= 1

    async def listens(address: str) -> bool:
        return address in (await machine.said("ss", "-Hltn")).split()

    async def active(unit: str) -> bool:
        return await machine.property_of(unit, "ActiveState") == "active"

    for unit, address in listeners.items():
        await until(partial(tried_again, unit), SECONDS, f"the second start of {unit}")
        await status_has(machine, unit, "Cannot assign requested address")
        assert await machine.property_of(unit, "ActiveState") != "failed", "status 6 would keep it down"
        assert not await listens(address)
    text = await machine.sh("outstation --socket /run/outstation/gateway.sock check", check=False)
    assert f"{LATE_ADDRESS} is no address of this machine" in text
    await machine.run("ip", "address", "add", f"{LATE_ADDRESS}/32", "dev", "lo")
    for unit, address in listeners.items():
        await until(partial(listens, address), SECONDS, f"{unit} listens at {address}")
        await until(partial(active, unit), SECONDS, f"{unit} is active")
    await until(partial(active, GATEWAY), SECONDS, f"{GATEWAY} is active")
