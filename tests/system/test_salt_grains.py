"""A machine's grains are those that stock Salt finds on it, by name and by value."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from device_agent.facts import collect
from device_agent.local_host import LocalHost
from tests.house.tree import ROOT
from tests.peers import salt_grains
from tests.peers.salt_release import MINUTES

pytestmark = [pytest.mark.system, pytest.mark.timeout(60 * (MINUTES + 5))]

OF_SALT = {
    "cwd", "master", "package", "pid", "pythonexecutable", "pythonpath", "saltpath", "saltversion", "saltversioninfo",
    "server_id", "zmqversion",
}  # fmt: skip
"""What tells of Salt and of its process."""

OF_NAME_SERVERS = {"fqdn_ip4", "fqdn_ip6", "fqdns"}
NOT_THERE = {"ca_truststore", "efi-secure-boot", "fibre_channel_host", "gpus", "num_gpus", "transactional"}
OURS = {"boot_id", "outstationversion", "timezone"}
OTHERWISE = {"locale_info", "pythonversion", "path", "systempath", "shell"}
"""What is of who asks, who is another here."""


def asked(python: Path, folder: Path) -> dict[str, Any]:
    """Salt's."""
    words = [str(python), "-P", "-W", "ignore", salt_grains.__file__, str(folder)]
    told: dict[str, Any] = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return told


async def test_the_grains_of_a_machine_are_those_of_salt(salt: Path, tmp_path: Path) -> None:
    theirs = asked(salt, tmp_path)
    ours = json.loads(json.dumps(await collect(LocalHost({}), "cam-7", str(tmp_path / "none"))))
    assert theirs.keys() - ours.keys() <= OF_SALT | OF_NAME_SERVERS | NOT_THERE
    assert ours.keys() - theirs.keys() <= OURS
    left = (ours.keys() & theirs.keys()) - OTHERWISE
    assert len(left) > 40
    assert {name: ours[name] for name in left} == {name: theirs[name] for name in left}


def test_the_page_names_what_is_not_there() -> None:
    page = (ROOT / "docs" / "devices.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in NOT_THERE)
