"""The package's life on a server: another version over it, the one before, itself again, and away with all it made."""

from __future__ import annotations

import pytest

from gateway.upgrade.withdraw import WHY
from tests.peers.appliance import BROKER, GATEWAY, MASTER, PREVIOUS, Site, install, make_site, package_of, packages
from tests.peers.machines import Machine, TestBed
from tests.peers.upgrading import GUARD, record

CHECK = "outstation-check.timer"
DEVICES = 50
EVENTS = 20
NOT_OURS = (
    "/proc|/sys|/dev|/run|/tmp|/var/tmp|/var/log|/var/lib/(dpkg|apt|systemd)|/var/cache/(apt|debconf|ldconfig|man)"
)
"""What every installation of anything changes."""

OWN_USER = ("/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow")


async def version(machine: Machine) -> str:
    """The version of the package that is installed."""
    return await machine.said("dpkg-query", "--show", "--showformat=${Version}", "outstation")


async def files(machine: Machine) -> set[str]:
    """Every path of the machine's disk that an installation could leave behind."""
    text = await machine.sh('find / -xdev -regextype posix-extended -regex "$1" -prune -o -print', f"({NOT_OURS})")
    return set(text.splitlines())


async def has_everything(site: Site, jid: str, wanted: str) -> None:
    """The gateway is up in that version, with all it had, and knows every device again."""
    assert await version(site.gateway) == wanted
    assert await site.gateway.said("dpkg", "--audit") == ""
    await site.active(GATEWAY, BROKER)
    await site.present(site.gateway)
    assert (await site.ledger())["events"]["pending"] >= EVENTS
    assert (await site.view(site.gateway, jid))[0]["counts"] == {"ok": DEVICES}


async def test_upgraded_downgraded_reinstalled_and_removed_for_a_while_it_keeps_all_it_has(bed: TestBed) -> None:
    previous, current = packages()
    site = await make_site(bed, previous, DEVICES)
    await site.gateway.sh("echo '# an administrator was here' >>/etc/outstation/gateway.yaml")
    known = await site.job("test.ping")
    await site.ended(known)
    await site.cut()
    jid = await site.job("test.ping")
    for number in range(EVENTS):
        await site.gateway.run("outstation", "fire", f"site/said/{number}")
    for package, wanted in ((current, ""), (previous, PREVIOUS), (current, ""), (current, "")):
        await install(site.gateway, package)
        await has_everything(site, known, wanted or package.name.split("_")[1])
    await site.gateway.run("apt-get", "remove", "--yes", "--quiet", "outstation")
    await install(site.gateway, current)
    await has_everything(site, known, current.name.split("_")[1])
    text = await site.gateway.read("/etc/outstation/gateway.yaml")
    assert text.endswith(b"# an administrator was here\n")
    await site.heal()
    await site.ended(jid)
    await site.ledger_adds_up()
    await install(site.master, current)
    assert await site.master.property_of(MASTER, "ActiveState") == "active"
    assert await site.master.property_of(GATEWAY, "ActiveState") == "inactive"
    await site.ended(await site.job("test.ping"))


async def nothing_is_left(machine: Machine, before: set[str], broker: dict[str, str]) -> None:
    """Of the package on a machine that had these files and this broker before it came."""
    left = await files(machine) - before
    assert left <= {f"{path}-" for path in OWN_USER}, sorted(left)
    assert "outstation" not in await machine.said("ls", "/run")
    assert await machine.sh("pgrep --count --uid outstation", check=False) == "0"
    assert await machine.sh("pgrep --count --full '[/]usr/lib/outstation'", check=False) == "0"
    for kind in ("units", "timers"):
        assert await machine.said("systemctl", f"list-{kind}", "--all", "--plain", "--no-legend", "outstation*") == ""
    assert await machine.sh("systemctl list-unit-files --no-legend 'outstation*'", check=False) == ""
    assert await machine.said("dpkg", "--audit") == ""
    assert await machine.sh("grep -c '^Package: outstation' /var/lib/dpkg/status", check=False) == "0"
    after = await machine.show("mosquitto.service")
    assert (after["MainPID"], after["ActiveState"]) == (broker["MainPID"], "active")


@pytest.mark.short
async def test_installed_from_its_file_alone_and_purged_nothing_is_left(bed: TestBed) -> None:
    machine = await bed.machine("gateway")
    before = await files(machine)
    broker = await machine.show("mosquitto.service")
    await install(machine, package_of())
    for unit in (GATEWAY, BROKER, CHECK):
        assert await machine.property_of(unit, "UnitFileState") == "enabled", unit
    # A master is one who says so.
    shown = await machine.show(MASTER)
    assert (shown["UnitFileState"], shown["ActiveState"]) == ("disabled", "inactive")
    made = await files(machine) - before
    assert any(path.startswith("/var/lib/outstation/") for path in made)
    await machine.run("apt-get", "purge", "--yes", "--quiet", "outstation")
    await nothing_is_left(machine, before, broker)


async def test_removed_while_the_guard_of_an_upgrade_is_at_work_nothing_is_under_way_and_purged_nothing_is_left(
    bed: TestBed,
) -> None:
    machine = await bed.machine("gateway")
    before = await files(machine)
    broker = await machine.show("mosquitto.service")
    for package in packages():
        await install(machine, package)
    guard = await machine.show(GUARD)
    assert (guard["ActiveState"], guard["SubState"]) == ("active", "running")
    assert b'"watching"' in await machine.read("/var/cache/outstation/upgrade.json")
    assert guard["MainPID"] in (await machine.said("pgrep", "--full", "gateway.upgrade.guard")).split()
    await machine.run("apt-get", "remove", "--yes", "--quiet", "outstation")
    ended = await record(machine)
    assert (ended["state"], ended["reason"]) == ("withdrawn", WHY)
    await machine.run("apt-get", "purge", "--yes", "--quiet", "outstation")
    await nothing_is_left(machine, before, broker)
