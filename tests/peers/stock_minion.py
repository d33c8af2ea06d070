"""Stock Salt on booted machines: a master, and a minion as the unit of Salt's own packages starts it.

Salt is what `make bench-peers` has put into an environment with Debian's Python; the machines get its files.
"""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

from tests.peers.machines import Machine
from tests.peers.waiting import until

HERE = Path(__file__).resolve().parents[2] / ".cache" / "bench-peers" / "salt"
THERE = "/opt/salt"
MINION = "salt-minion.service"
READY = "Minion is ready to receive requests!"
SECONDS = 300.0
NOT_SALT = ("pip", "setuptools", "wheel", "_distutils_hack", "distutils-precedence.pth", "pkg_resources")

UNIT = """[Unit]
Description=The Salt {role}
[Service]
Type=notify
NotifyAccess=all
KillMode=process
LimitNOFILE=8192
Environment=PYTHONPATH={there}/packages
ExecStart=/usr/bin/python3 {there}/salt-{role} --log-level=info
[Install]
WantedBy=multi-user.target
"""


class NoStockSalt(Exception):
    """There is no stock Salt on this machine, or it was made with a Python that is not Debian's; what to type."""


def packed() -> bytes:
    """Salt with all that it requires, without what the environment itself brought, as a tar archive."""
    packages = HERE / "lib" / "python3.11" / "site-packages"
    if not (packages / "salt").is_dir():
        raise NoStockSalt(f"no Salt in {packages}; try: packaging/make-bench-peers /usr/bin/python3")
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for entry in sorted(packages.iterdir()):
            if not entry.name.startswith(NOT_SALT):
                archive.add(entry, f"packages/{entry.name}")
        for role in ("master", "minion"):
            archive.add(HERE / "bin" / f"salt-{role}", f"salt-{role}")
    return held.getvalue()


async def unpack(machine: Machine, archive: bytes, role: str, settings: dict[str, object]) -> int:
    """Put Salt onto a machine and start it in a role; how many bytes it takes there."""
    await machine.run("mkdir", "-p", THERE)
    await machine.run("tar", "-x", "-C", THERE, stdin=archive, seconds=SECONDS)
    await machine.write(f"/etc/salt/{role}", json.dumps(settings))
    await machine.write(f"/etc/systemd/system/salt-{role}.service", UNIT.format(role=role, there=THERE))
    await machine.run("systemctl", "daemon-reload")
    taken = await machine.said("du", "--summarize", "--bytes", THERE)
    await machine.run("systemctl", "start", f"salt-{role}")
    return int(taken.split()[0])


async def answers(master: Machine) -> None:
    """Wait until the minion answers to its master."""
    ping = "PYTHONPATH=/opt/salt/packages python3 -c 'import salt.scripts; salt.scripts.salt_main()' '*' test.ping"

    async def answered() -> bool:
        done = await master.run("sh", "-c", ping, check=False, seconds=SECONDS)
        return b"True" in done.stdout

    await until(answered, SECONDS, "the minion's answer")
