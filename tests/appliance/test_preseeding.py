"""What debconf was told before the package came makes a site of the machine, without a question and without a trace."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.peers.machines import Machine, TestBed

SECONDS = 600.0
MASTERS = "tcp://203.0.113.7:4510 rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
TOKEN = "not-a-token-that-any-master-gave"
INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get install --yes -q --reinstall /var/tmp/outstation.deb </dev/null 2>&1"
JOINED = "/etc/outstation/gateway.d/50-join.yaml"
ANSWERS = "/etc/outstation/outstation-join.yaml"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    command = ["env", "OUTSTATION_DEB_FAST=1", str(ROOT / "packaging" / "make-deb"), "amd64", str(folder)]
    subprocess.run(command, timeout=SECONDS, check=True)
    (path,) = folder.glob("outstation_*.deb")
    return path


async def told(machine: Machine, package: Path, **answers: str) -> str:
    """Answer debconf's questions beforehand, and install; what was said."""
    await machine.push(package, "/var/tmp/outstation.deb")
    kinds = {"token": "password"}
    lines = [f"outstation outstation/{name} {kinds.get(name, 'string')} {answers[name]}\n" for name in answers]
    await machine.run("debconf-set-selections", stdin="".join(lines).encode(), check=True)
    return await machine.sh(INSTALL, seconds=SECONDS)


async def known(machine: Machine, name: str) -> str:
    """What debconf has as the answer to a question."""
    return (await machine.sh(f"echo GET outstation/{name} | debconf-communicate outstation", check=False)).strip()


async def test_a_preseeded_machine_is_a_site_and_its_files_win(bed: TestBed, package: Path) -> None:
    machine = await bed.machine("gateway")
    said = await told(machine, package, site="lisbon", masters=MASTERS)
    assert "not joined yet" not in said
    settings = (await machine.read(JOINED)).decode()
    assert re.search(r"^name: ['\"]?lisbon\b", settings, re.MULTILINE)
    assert "203.0.113.7:4510" in settings
    assert await machine.sh(f"test ! -e {ANSWERS} && echo gone") == "gone"
    # An administrator's edit wins over what debconf remembers, now and in every upgrade.
    await machine.write(JOINED, settings.replace("lisbon", "porto"))
    await machine.sh(INSTALL, seconds=SECONDS)
    assert (await machine.read(JOINED)).decode() == settings.replace("lisbon", "porto")
    assert await known(machine, "site") == "0 porto"


async def test_a_token_leaves_debconf_with_the_first_use(bed: TestBed, package: Path) -> None:
    machine = await bed.machine("gateway")
    said = await told(machine, package, site="lisbon", token=TOKEN)
    assert f"try: outstation gateway join --from {ANSWERS}" in said
    assert await known(machine, "token") == "0"
    assert (await machine.sh(f"grep -rlF {TOKEN} /var/cache/debconf /var/log/apt || echo nowhere")) == "nowhere"
    assert (await machine.sh(f"stat -c '%a %U' {ANSWERS}")) == "600 root"
    # Its scripts run again, as after a power cut: debconf has no token any more, and the file keeps it.
    await machine.sh(INSTALL, seconds=SECONDS)
    assert f"token: '{TOKEN}'" in (await machine.read(ANSWERS)).decode()
    # A wrong answer breaks no installation: the gateway runs, and says that it has not joined.
    assert await machine.property_of("outstation-gateway.service", "ActiveState") == "active"
    await machine.sh("apt-get purge --yes outstation", seconds=SECONDS)
    assert (await machine.sh("ls -d /etc/outstation /var/lib/outstation || true")) == ""
    assert await known(machine, "site") == "10 outstation/site doesn't exist"


async def test_without_answers_nothing_is_asked(bed: TestBed, package: Path) -> None:
    machine = await bed.machine("gateway")
    await machine.push(package, "/var/tmp/outstation.deb")
    said = await machine.sh(INSTALL, seconds=SECONDS)
    assert "not joined yet; try" not in said
    assert await machine.sh(f"test ! -e {JOINED} && test ! -e {ANSWERS} && echo none") == "none"
