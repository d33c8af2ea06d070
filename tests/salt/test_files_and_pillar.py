"""Files and device pillar that live on a stock Salt master."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.protocol.file_questions import CHUNK, FIND, AskChunk, FileEntry, FindFile, decode, encode
from device_agent.protocol.pillar import OF, PillarOfWanted, PillarTold
from device_agent.trust.policy import SitePolicy
from gateway.metrics import Metrics
from gateway.salt.above import SaltAnswers
from gateway.salt.above_files import SaltFiles
from gateway.salt.above_pillar import SaltPillar
from tests.peers.file_server import Server, server, settled, sha256
from tests.peers.salt_master import SaltMaster
from tests.peers.salt_sockets import SerialsInMemory
from tests.peers.system import whole_system
from tests.peers.waiting import until
from upstream.salt.order import SaltOrder
from upstream.salt.ports import SaltAbove
from upstream.salt.terms import SaltRules
from upstream.salt.uplink import SaltUplink

FIRMWARE = 5 * 1024 * 1024 + 77
PILLAR = """\
all_devices:
  ntp: 192.0.2.1
devices:
  {% for number in range(1, 4) %}
  cam-{{ number }}: {onvif: {user: ops, password: of-cam-{{ number }}}}
  {% endfor %}
of_the_gateway: {{ grains['floor'] }}
"""


class Nothing:
    """No jobs, and nothing to tell."""

    async def take(self, order: SaltOrder, master: str) -> bool:
        raise AssertionError(f"{master} orders {order.fun}")

    async def run(self, above: SaltAbove, master: str) -> None:
        await asyncio.Event().wait()

    def active(self, master: str, active: bool) -> None:
        pass

    async def emptied(self, master: str) -> None:
        pass


async def collected(made: Server, path: str) -> bytes:
    entry = decode(await made.ask(FIND, encode(FindFile(path))), FileEntry)
    data = b""
    while len(data) < entry.size:
        data += await made.ask(CHUNK, encode(AskChunk(entry, len(data))))
    return data


@pytest.mark.short
async def test_files_and_pillar_of_devices_are_those_of_the_master(master: SaltMaster, tmp_path: Path) -> None:
    firmware = settled(master.files / "fw" / "cam.bin", os.urandom(FIRMWARE))
    motd = settled(master.files / "motd", "grüße\n".encode() * 1000)
    settled(master.pillar / "top.sls", b"base:\n  lisbon: [site]\n")
    settled(master.pillar / "site.sls", PILLAR.encode())
    clock, nothing = Clock(), Nothing()
    metrics = Metrics(clock)
    files = SaltFiles(tmp_path / "parts", 0, metrics, clock)
    answers = SaltAnswers(files, SaltPillar("lisbon", lambda: {"id": "lisbon", "floor": 3}, clock))
    uplink = SaltUplink(
        rules=SaltRules(id="lisbon", acceptance_wait_time=0.5),
        masters=[master.address],
        keys_dir=tmp_path / "salt",
        serials=SerialsInMemory(),
        orders=nothing,
        feed=nothing,
        refusals=metrics,
        clock=clock,
        asked=answers.answer,
    )
    async with uplink, server(tmp_path / "site", above=uplink) as made:  # type: ignore[arg-type]  # any port will do
        files.store = made.files.store
        await asyncio.to_thread(master.accept, "lisbon")
        await until(lambda: uplink.status()["state"] == "connected", 60, "the link is up")
        assert await collected(made, "fw/cam.bin") == firmware
        fetched = metrics.counters["files_fetched_bytes"]
        assert await collected(made, "fw/cam.bin") == firmware
        assert metrics.counters["files_fetched_bytes"] == fetched == FIRMWARE
        assert await collected(made, "motd") == motd

        async def listed() -> bool:
            return await made.files.paths("base") == ["fw/cam.bin", "motd"]

        # A master tells for 20 seconds of the files that were there when it was asked before, by another test.
        await until(listed, 60, "both files are listed")
        with pytest.raises(Refused, match="not_found"):
            await collected(made, "nothing")
        assert made.files.store.has(sha256(firmware))
        assert await pillar(uplink, "cam-2") == {"ntp": "192.0.2.1", "onvif": {"user": "ops", "password": "of-cam-2"}}
        assert await pillar(uplink, "cam-9") == {"ntp": "192.0.2.1"}


async def pillar(uplink: SaltUplink, device: str) -> dict[str, Any]:
    question = msgspec.msgpack.encode(PillarOfWanted("lisbon", device, {}))
    return msgspec.msgpack.decode(await uplink.ask(OF, question), type=PillarTold).value()


@pytest.mark.short
def test_devices_behind_a_gateway_read_the_files_and_the_pillar_of_the_master(master: SaltMaster) -> None:
    settled(master.files / "motd", "grüße\n".encode() * 1000)
    settled(master.pillar / "top.sls", b"base:\n  porto: [cams]\n")
    settled(master.pillar / "cams.sls", b"all_devices: {ntp: 192.0.2.1}\ndevices: {cam-00001: {ntp: 192.0.2.2}}\n")
    with whole_system() as system:
        upstream = {"type": "salt", "masters": [master.address], "acceptance_wait_time": 1}
        system.add_gateway("porto", granted=SitePolicy(org={"salt": ("looks", "reads")}), upstream=upstream)
        ids = system.add_swarm(2, "porto")
        master.accept("porto")
        system.present(2, "porto")
        files = system.command("files", "list", station="porto")
        master.until(lambda: "motd" in system.command("files", "list", station="porto").out, f"the files: {files}")
        told = master.salt("-t", "40", "-L", ",".join(ids), "pillar.get", "ntp", "unmask=True")
        assert told.by_device() == {"cam-00000": "192.0.2.1", "cam-00001": "192.0.2.2"}
        read = master.salt("-t", "40", "-L", ",".join(ids), "cp.get_file_str", "salt://motd")
        assert read.by_device() == dict.fromkeys(ids, "grüße\n" * 1000)
