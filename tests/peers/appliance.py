"""A fleet on booted machines, installed from the package as an operator would: a master, a site's gateway, and devices.

What is typed here is what docs/first-hour.md says is typed. The devices are a swarm on a third machine, which is there
when the gateway is not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from device_agent import __version__
from device_agent.host import Completed
from tests.peers.machines import Machine, TestBed
from tests.peers.waiting import until

DIST = Path(__file__).resolve().parents[2] / "dist"
PREVIOUS = "0.0.1"
"""The version that ``make appliance`` gives to a package of the same tree, to have something to come from."""

SECONDS = 900.0
"""How long a test waits for anything; it says nothing about how long it takes."""

GATEWAY, MASTER, BROKER = "outstation-gateway.service", "outstation-master.service", "outstation-broker.service"
MASTER_PORT = 4510
SITE = "lisbon"
FULLY = ("--option", "Dpkg::Options::=--force-confdef", "--option", "Dpkg::Options::=--force-confold")
INSTALL = ("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "--allow-downgrades", "--reinstall")

MASTER_SETTINGS = f"name: central\nsites:\n  listen: tcp://0.0.0.0:{MASTER_PORT}\n"

Fields = dict[str, Any]


def package_of(name: str = "outstation", version: str = __version__) -> Path:
    """The package of this version, as ``make appliance`` has built it."""
    found = DIST / f"{name}_{version}_amd64.deb"
    assert found.is_file(), f"{found} is not there: try: make appliance"
    return found


def packages(name: str = "outstation") -> tuple[Path, Path]:
    """The package of the previous version and that of this one."""
    return package_of(name, PREVIOUS), package_of(name)


async def install(machine: Machine, package: Path) -> Completed:
    """Install a package from its file alone: over nothing, over another version, or over itself."""
    there = f"/var/tmp/{package.name}"
    await machine.push(package, there)
    return await machine.run(*INSTALL, *FULLY, there, seconds=SECONDS)


@dataclass
class Site:
    """The three machines, and what is asked of them."""

    bed: TestBed
    master: Machine
    gateway: Machine
    cameras: Machine
    devices: int = 0

    async def job(self, *words: str) -> str:
        """Give the master a job for every device and do not wait; its jid."""
        return (await self.master.said("outstation", "run", "--detach", "--expires", "1h", "*", *words)).split()[-1]

    async def view(self, station: Machine, jid: str) -> tuple[Fields, list[Fields]]:
        """A job as a station has it, and every outcome."""
        text = await station.said("outstation", "jobs", "show", jid, "--all", "--json")
        job, *outcomes = [json.loads(line) for line in text.splitlines()]
        return job, outcomes

    async def ended(self, jid: str) -> None:
        """Wait until the master has the last word on a job: each device ran it once, and it is ok."""

        async def last_word() -> bool:
            job, _ = await self.view(self.master, jid)
            return bool(job["state"] == "closed" and job["counts"] == {"ok": self.devices})

        await until(last_word, SECONDS, f"{self.devices} ok of job {jid} at the master")
        _, outcomes = await self.view(self.master, jid)
        assert len({each["id"] for each in outcomes}) == len(outcomes) == self.devices
        assert await self.executed(jid) == {"devices": self.devices, "executions": self.devices, "most": 1}

    async def running(self, jid: str) -> None:
        """Wait until a job runs on every device, as the gateway knows."""

        async def seen() -> bool:
            done = await self.gateway.run("outstation", "jobs", "show", jid, "--json", check=False)
            waiting = {} if done.returncode else json.loads(done.stdout.splitlines()[0])["waiting"]
            return bool(waiting == {"running": self.devices})

        await until(seen, SECONDS, f"job {jid} runs on {self.devices} devices")

    async def present(self, station: Machine) -> None:
        """Wait until a station knows that every device is here."""

        async def seen() -> bool:
            done = await station.run("outstation", "devices", "list", "cam-*", "--json", check=False)
            rows = [json.loads(line) for line in done.stdout.splitlines()] if not done.returncode else []
            return len([row for row in rows if row["present"]]) == self.devices

        await until(seen, SECONDS, f"{self.devices} devices at {station.name}")

    async def executed(self, jid: str) -> Fields:
        """How often the devices ran a job, by their own count."""
        await self.cameras.run("rm", "--force", "/run/swarm.json")
        await self.cameras.run("systemctl", "kill", "--signal=USR1", "swarm.service")

        async def written() -> bool:
            return (await self.cameras.run("test", "-s", "/run/swarm.json", check=False)).returncode == 0

        await until(written, SECONDS, "the report of the swarm")
        report = json.loads(await self.cameras.read("/run/swarm.json"))
        return dict(report["executed"].get(jid, {}))

    async def ledger_adds_up(self) -> None:
        """Wait until all has gone up; nothing was dropped, and the ledger is equal to what is on the disk."""

        async def gone_up() -> bool:
            return not sum([row["pending"] for row in (await self.ledger()).values()])

        await until(gone_up, SECONDS, "an empty spool")
        for name, row in (await self.ledger()).items():
            assert set(row["dropped"]) <= {"coalesced"}, (name, row)
            assert row["accepted"] == row["delivered"] + row["pending"] + sum(row["dropped"].values()), (name, row)
        await self.gateway.run("outstation", "spool", "verify")

    async def ledger(self) -> dict[str, Fields]:
        """What the gateway's spool says of each class."""
        text = await self.gateway.said("outstation", "spool", "status", "--json")
        return {row["class"]: row for row in json.loads(text)["classes"]}

    async def waits(self, name: str, items: int) -> None:
        """Wait until so many items of a class, or more, are on the gateway's disk for the master."""

        async def enough() -> bool:
            return int((await self.ledger())[name]["pending"]) >= items

        await until(enough, SECONDS, f"{items} {name} in the spool")

    async def cut(self) -> None:
        """A digger finds the line between the gateway and the master."""
        await self.bed.room.cut(self.gateway.name, self.master.name)

    async def heal(self) -> None:
        """It is mended."""
        await self.bed.room.heal(self.gateway.name, self.master.name)

    async def active(self, *units: str) -> None:
        """Wait until these units of the gateway are up."""

        async def up() -> bool:
            states = [await self.gateway.property_of(unit, "ActiveState") for unit in units]
            return states == ["active"] * len(units)

        await until(up, SECONDS, f"{', '.join(units)} active on the gateway")


async def make_master(machine: Machine, package: Path) -> None:
    """Make a machine with nothing on it the master of a new fleet."""
    await install(machine, package)
    await machine.run("systemctl", "disable", "--now", GATEWAY, BROKER)
    await machine.write("/etc/outstation/master.yaml", MASTER_SETTINGS)
    address = f"tcp://{machine.address}:{MASTER_PORT}"
    await machine.run("outstation", "master", "init", "--address", address, "--file", "/srv/central.master")
    await machine.run("outstation", "fleet", "init", "--folder", "/srv/fleet")
    await machine.run(
        "outstation", "fleet", "add-master", "/srv/central.master", "--root-shell", "--folder", "/srv/fleet"
    )
    await machine.run("outstation", "master", "init", "--root-list", "/srv/fleet/root-lists")
    await machine.run("systemctl", "enable", "--now", MASTER)


async def join(gateway: Machine, master: Machine) -> None:
    """Make a machine that the package is installed on the gateway of a site, and wait until the master has it."""
    token = await master.said("outstation", "sites", "token")
    answers = {"site": SITE, "token": token.splitlines()[-1], "broker": {"host": gateway.address}}
    await gateway.write("/var/tmp/outstation-join.yaml", json.dumps(answers), 0o600)
    await gateway.run(
        "outstation", "gateway", "join", "--from", "/var/tmp/outstation-join.yaml", "--no-wait", "--remove"
    )
    await accept(master)


async def accept(master: Machine) -> None:
    """Let the site in at the master, and wait until it is connected."""

    async def accepted() -> bool:
        return (await master.run("outstation", "keys", "accept", SITE, check=False)).returncode == 0

    async def connected() -> bool:
        text = await master.said("outstation", "sites", "list", "--json")
        return any(site["site"] == SITE and site["connected"] for site in map(json.loads, text.splitlines()))

    await until(accepted, SECONDS, f"{SITE} asks to join")
    await until(connected, SECONDS, f"{SITE} is connected")


async def add_swarm(site: Site, package: Path, devices: int) -> None:
    """Start so many devices on the third machine, which has the program without its services, and wait for them."""
    assert site.devices == 0
    site.devices = devices
    there = f"/var/tmp/{package.name}"
    await site.cameras.push(package, there)
    await site.cameras.sh('dpkg-deb -x "$1" /opt/package && cp -a /opt/package/usr/lib/outstation /usr/lib/', there)
    token = json.loads(await site.gateway.said("outstation", "keys", "token", "new", "--uses", str(devices), "--json"))
    program = ("/usr/lib/outstation/bin/python3", "-I", "-m", "gateway.cli.main")
    words = ("swarm", "--devices", str(devices), "--token", token["text"], "--report", "/run/swarm.json")
    await site.cameras.run("systemd-run", "--unit=swarm", "--property=LimitNOFILE=infinity", *program, *words)
    await site.present(site.gateway)
    await site.present(site.master)


async def make_site(bed: TestBed, package: Path, devices: int) -> Site:
    """All three machines, joined, with so many devices that both stations know."""
    master, gateway, cameras = [await bed.machine(name) for name in ("central", SITE, "cameras")]
    site = Site(bed, master, gateway, cameras)
    await make_master(site.master, package)
    await install(site.gateway, package)
    await join(site.gateway, site.master)
    await add_swarm(site, package, devices)
    return site
