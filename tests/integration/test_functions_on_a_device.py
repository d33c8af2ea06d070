"""The functions that change a device, on machines that are thrown away afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gateway.downlinks.ssh_host import SshHost
from tests.peers.function_stories import STORIES
from tests.peers.function_story import OnHost, Story, play
from tests.peers.rooted import SEPARATE, Kind, Rooted
from tests.peers.ssh_beds import dropbear

TOLD = [pytest.param(story, kind, id=f"{story.name}-{kind}") for story in STORIES for kind in story.kinds]


def separate() -> bool:
    """This account may make namespaces with mounts of their own."""
    return os.geteuid() == 0 and subprocess.run([*SEPARATE, "true"], check=False, capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(not separate(), reason="takes root, for namespaces to throw away")


@pytest.mark.parametrize(("story", "kind"), TOLD)
async def test_what_salt_promises_is_so(story: Story, kind: str, tmp_path: Path) -> None:
    if kind == "busybox-full" and "OUTSTATION_TEST_BUSYBOX" not in os.environ:
        pytest.skip("OUTSTATION_TEST_BUSYBOX names no BusyBox with adduser")
    if kind == "busybox-ssh":
        with dropbear(tmp_path) as bed:
            async with await bed.connect("root") as connection:
                await play(story, OnHost(SshHost(connection, {})))
        return
    if kind != "debian" and not shutil.which("busybox"):
        pytest.skip("there is no busybox; packaging/debian-packages installs busybox-static")
    shape: Kind = "debian" if kind == "debian" else "busybox"
    async with Rooted(shape, tmp_path / "machine") as machine:
        await play(story, machine)
