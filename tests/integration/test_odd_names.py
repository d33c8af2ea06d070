"""Names of mount points, interfaces and processes with blanks and line ends that only Python knows, on this kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.peers.odd_names import INTERFACES, PLACES, PROCESS

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount and add interfaces in a namespace")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("mounts")
    apart = ["unshare", "--mount", "--propagation", "private", "--net"]
    done = subprocess.run(
        [*apart, sys.executable, "-m", "tests.peers.odd_names", folder], capture_output=True, check=True, timeout=60
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {"folder": str(folder)}


@pytest.mark.parametrize("way", ["mount.active", "extended"])
def test_every_mount_point_is_listed_with_its_whole_name(answers: dict[str, Any], way: str) -> None:
    for name in PLACES:
        found = answers[way][f"{answers['folder']}/{name}"]
        assert (found["fstype"], found["device"]) == ("tmpfs", "")


def test_a_full_card_is_told_whatever_its_name_is(answers: dict[str, Any]) -> None:
    assert {each.get("mount") for each in answers["diskusage"]} == {f"{answers['folder']}/{name}" for name in PLACES}
    assert all(each["diskusage"] > 90 for each in answers["diskusage"])


def test_every_interface_is_listed_with_its_whole_name(answers: dict[str, Any]) -> None:
    for number, name in enumerate(INTERFACES):
        assert answers["status.netdev"][name]["iface"] == name
        assert answers["network.interfaces"][name]["inet"][0]["address"] == f"192.0.2.{16 * number + 1}"
        assert name in {each["interface"] for each in answers["network.routes"]}


def test_a_process_cannot_put_its_name_in_the_place_of_another(answers: dict[str, Any]) -> None:
    (program,) = {each["program"] for each in answers["network.netstat"] if each["local-address"].endswith(":4242")}
    assert program.partition("/")[2] == PROCESS.decode()
