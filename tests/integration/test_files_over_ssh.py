"""A device without an agent has the files of its gateway, asked for in its stead."""

from __future__ import annotations

import os
from pathlib import Path

from gateway.devices.ssh_secrets import Secret
from gateway.files.settings import FilesSettings
from tests.peers.file_server import settled
from tests.peers.ssh_played import PASSWORD, played_device
from tests.peers.ssh_site import ssh_site


async def test_files_go_to_a_device_over_ssh_and_come_from_it(tmp_path: Path) -> None:
    data = settled(tmp_path / "srv/fw.bin", os.urandom(300_000))
    roots, settings = {"base": [str(tmp_path / "srv")]}, FilesSettings(receive=True)
    async with (
        played_device() as camera,
        ssh_site(tmp_path / "site", file_roots=roots, files=settings) as site,
    ):
        await site.add("cam-1", camera.port, camera.host_keys, Secret(password=PASSWORD))
        await site.here("cam-1")
        target = tmp_path / "there/fw.bin"
        arg = ["salt://fw.bin", str(target), "base", True]
        ended = (await site.run("cp.get_file", "cam-1", arg=arg))["cam-1"]
        assert (ended.outcome, ended.value) == ("ok", str(target)), ended
        assert target.read_bytes() == data
        ended = (await site.run("cp.push", "cam-1", arg=[str(target)]))["cam-1"]
        assert (ended.outcome, ended.value) == ("ok", True), ended
        kept = tmp_path / "site/received/cam-1/files" / str(target).lstrip("/")
        assert kept.read_bytes() == data
        ended = (await site.run("cp.get_file", "cam-1", arg=["salt://../secret", str(target)]))["cam-1"]
        assert ended.outcome == "failed"
        assert "bad_path" in (ended.why or "")
        assert target.read_bytes() == data
