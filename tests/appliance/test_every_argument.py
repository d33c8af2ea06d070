"""A class holds for every value on a real machine too: what no entry declares does not change there.

The calls are those of ``tests/attacks/test_every_argument.py``, made on a booted Debian on which an attacker has left a
unit, a template, a script, a package and a secret. The functions are those of the repository, which is lent to it.
"""

from __future__ import annotations

import json
import site

import pytest

from tests.peers.hostile_calls import EVIL
from tests.peers.machine_room import REPOSITORY
from tests.peers.machine_roots import CAMERA
from tests.peers.machines import TestBed
from tests.peers.recording_host import CANARY

UNIT = f"""[Unit]
Description=what an attacker left
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/touch {EVIL}/ran
[Install]
WantedBy=multi-user.target
"""
KNOWN = UNIT.replace(f"/bin/touch {EVIL}/ran", "/bin/true")
SCRIPT = f"#!/bin/sh\n# start|stop|status)\n: >{EVIL}/ran\n"
PACKAGE = """set -e
mkdir -p /evil/deb/DEBIAN /var/lib/outstation
printf 'Package: evil\\nVersion: 1\\nArchitecture: all\\nMaintainer: x\\nDescription: x\\n' >/evil/deb/DEBIAN/control
printf '#!/bin/sh\\n: >/evil/ran\\n' >/evil/deb/DEBIAN/postinst
chmod 755 /evil/deb/DEBIAN/postinst
dpkg-deb --build --root-owner-group /evil/deb /evil/evil.deb >/dev/null
systemctl daemon-reload
systemctl enable --now known.service
"""
SECONDS = 600.0


@pytest.mark.short
async def test_what_every_function_does_stays_in_its_place(bed: TestBed) -> None:
    packages = next(path for path in site.getsitepackages() if path.endswith("site-packages"))
    machine = await bed.machine("cam-7", CAMERA, f"--bind-ro={REPOSITORY}")
    await machine.write(f"{EVIL}/evil.service", UNIT)
    await machine.write(f"{EVIL}/evil", SCRIPT, 0o755)
    await machine.write(f"{EVIL}/secret", f"{CANARY}\n", 0o600)
    await machine.write("/etc/systemd/system/evil@.service", UNIT)
    await machine.write("/etc/systemd/system/known.service", KNOWN)
    await machine.sh(PACKAGE)
    program = 'cd "$1" && PYTHONPATH="$1:$2" exec python3 -B -m tests.peers.calls_on_a_machine "$1"'
    said = await machine.sh(program, str(REPOSITORY), packages, seconds=SECONDS)
    assert said, "a call ended the machine, or the program that makes the calls"
    told = json.loads(said.splitlines()[-1])
    assert told["calls"] > 1000
    assert "\n".join(told["found"]) == ""
