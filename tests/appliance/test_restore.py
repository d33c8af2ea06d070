"""A dead box is replaced: a backup of one machine put back on another that has just been installed, as root."""

from __future__ import annotations

import json
from pathlib import Path

from tests.peers.machines import Machine, TestBed
from tests.peers.waiting import until

DIST = Path(__file__).resolve().parents[2] / "dist"
GATEWAY = "outstation-gateway.service"
SECONDS = 900.0
PASSPHRASE = "correct horse battery staple"


async def installed(machine: Machine) -> None:
    found = sorted(DIST.glob("outstation_*_amd64.deb"), key=lambda path: path.stat().st_mtime)
    assert found, "try: make deb FAST=1"
    await machine.push(found[-1], "/var/tmp/outstation.deb")
    await machine.run("apt-get", "install", "--yes", "/var/tmp/outstation.deb", seconds=SECONDS)
    await machine.write("/srv/passphrase", PASSPHRASE, 0o600)


async def fingerprint(machine: Machine) -> str:
    """Who answers as the gateway of the site; empty when nobody does."""
    script = (
        "import http.client, json, socket; c = http.client.HTTPConnection('x');"
        " c.sock = socket.socket(socket.AF_UNIX); c.sock.connect('/run/outstation/gateway.sock');"
        " c.request('GET', '/station'); print(json.dumps(json.loads(c.getresponse().read())))"
    )
    done = await machine.run("/usr/bin/python3", "-c", script, check=False)
    view = json.loads(done.stdout) if not done.returncode else {}
    return str(view.get("fingerprint", "")) if view.get("name") == "lisbon" else ""


async def test_a_dead_box_is_replaced_by_one_that_has_just_been_installed(bed: TestBed) -> None:
    old = await bed.machine("old")
    await installed(old)
    await old.write("/etc/outstation/gateway.d/10-name.yaml", "name: lisbon\nlog_level: debug\n")
    await old.run("systemctl", "restart", GATEWAY)
    known = await until(lambda: fingerprint(old), SECONDS, "the gateway of lisbon")
    await old.run("outstation", "fire", "site/before/the/fire")
    await old.run("outstation", "gateway", "backup", "--passphrase-file", "/srv/passphrase", "/srv/lisbon.backup")
    backup = await old.read("/srv/lisbon.backup")
    assert b"site/before/the/fire" not in backup
    await old.power_off()

    new = await bed.machine("new")
    await installed(new)
    await new.write("/srv/lisbon.backup", backup, 0o600)
    restore = ("outstation", "gateway", "restore", "--passphrase-file", "/srv/passphrase", "/srv/lisbon.backup")
    done = await new.run(*restore)
    assert b"systemctl restart outstation-gateway" in done.stdout + done.stderr
    await new.run("systemctl", "restart", GATEWAY)
    assert await until(lambda: fingerprint(new), SECONDS, "the gateway of lisbon, on the new box") == known
    assert "site/before/the/fire" in await new.said("outstation", "events", "--history", "100", "--no-follow", "--json")
    # What helps from afar is had of a packaged box too, and leaves nothing behind.
    await new.run("outstation", "support-bundle", "--out", "/srv/support.tar.gz", seconds=SECONDS)
    for piece in ("log.txt", "units.txt", "package.txt", "files.txt"):
        assert "outstation" in await new.sh(f"tar -xzOf /srv/support.tar.gz --wildcards '*/{piece}' | head -c 65536"), (
            piece
        )
    # All of it is the service's, and its settings are not everybody's.
    strangers = await new.said("find", "/var/lib/outstation/gateway", "!", "-user", "outstation")
    assert strangers == ""
    assert await new.sh("stat --format '%U:%G %a' /etc/outstation/gateway.d/* | sort -u") == "root:outstation 640"
    assert await new.property_of(GATEWAY, "NRestarts") == "0"
