"""A stick joins a machine on which nobody types: the unit, in its sandbox, mounts it, and the gateway is a site."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from device_agent.trust.token import SiteToken
from tests.peers.appliance import GATEWAY, SECONDS, install, packages
from tests.peers.machines import Machine, TestBed
from tests.peers.waiting import until
from upstream.curve import key_bytes

UNIT = "outstation-join-usb.service"
BYTES = 4 * 2**20
TOKEN = SiteToken(bytes(range(16)), key_bytes(zmq.curve_keypair()[0].decode()), ("tcp://203.0.113.7:4510",)).text()

PLAYED = """import runpy, sys
from pathlib import Path
from gateway.fleet import usb_stick
usb_stick.KINDS = "ext4"
usb_stick.wish_on_a_stick.__defaults__ = (Path("/srv/block"), Path("/srv/dev"))
sys.argv = ["outstation", "gateway", "join", "--usb", "--no-wait"]
runpy.run_module("gateway.cli.main", run_name="__main__")
"""
"""The kernel under these machines need not have FAT, and shows no stick: a loop device with ext4 stands for one."""

DROP_IN = """[Service]
ExecStart=
ExecStart=/usr/lib/outstation/bin/python3 -I /srv/played.py
DeviceAllow=block-loop r
"""


def ran(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=True).stdout.strip()


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[int]:
    """The number of a loop device with a file system that has the file in its root."""
    content, image = tmp_path / "content", tmp_path / "image"
    content.mkdir()
    (content / "outstation-join.yaml").write_text(f'site: lisbon\ntoken: "{TOKEN}"\n')
    with image.open("wb") as file:
        file.truncate(BYTES)
    ran("mkfs.ext4", "-q", "-O", "^has_journal", "-d", str(content), str(image))
    device = ran("losetup", "--find", "--show", str(image))
    yield int(device.removeprefix("/dev/loop"))
    ran("losetup", "--detach", device)


async def said(machine: Machine) -> list[str]:
    """What the unit and systemd have said of it, as far as the journal has it."""
    return [str(entry["MESSAGE"]) for entry in await machine.journal("-u", UNIT)]


async def test_a_stick_joins_a_gateway_that_has_not_joined_and_no_other(bed: TestBed, loop: int) -> None:
    machine = await bed.machine("gateway")
    _, package = packages()
    await install(machine, package)
    rules = await machine.sh("ls /lib/udev/rules.d/*outstation.rules")
    # Whose rules find the file system that ours ask for.
    assert rules.rpartition("/")[2] > "60-persistent-storage.rules"
    assert (await machine.sh('cat "$1"', rules)).endswith(f'ENV{{SYSTEMD_WANTS}}+="{UNIT}"')
    # Without a stick, and with one for something else, it ends well.
    await machine.run("systemctl", "start", UNIT)
    assert await machine.said("systemctl", "--failed", "--no-legend") == ""

    await machine.sh("mkdir -p /srv/block/sdb/sdb1 /srv/dev; echo 1 >/srv/block/sdb/removable")
    await machine.sh('mknod /srv/dev/sdb1 b 7 "$1"', str(loop))
    await machine.write("/srv/played.py", PLAYED)
    await machine.write(f"/run/systemd/system/{UNIT}.d/played.conf", DROP_IN)
    await machine.run("systemctl", "daemon-reload")
    await machine.run("systemctl", "start", UNIT)
    await until(lambda: _has(machine, "joined lisbon to fleet"), SECONDS, "the journal has the join")
    assert await machine.sh("grep loop /proc/mounts || echo none") == "none"

    async def is_lisbon() -> bool:
        return (await machine.property_of(GATEWAY, "StatusText")).startswith("lisbon: ")

    await until(is_lisbon, SECONDS, "the gateway is the station of its site")
    before = sum("Starting" in line for line in await said(machine))
    await machine.run("systemctl", "start", UNIT)
    await until(lambda: _has(machine, "unmet condition"), SECONDS, "the journal says that it did not look")
    assert sum("Starting" in line for line in await said(machine)) == before


async def _has(machine: Machine, words: str) -> bool:
    return any(words in line for line in await said(machine))
