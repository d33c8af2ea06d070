"""Code that nobody released: whoever serves files, carries them, orders devices or writes on their disks brings none.

A real agent judges. What is released is bounded too: by its class, which the release list says and nobody else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from device_agent.agent import Agent
from device_agent.custom.modules import CustomModules
from device_agent.custom.sync import Synced, sync
from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.protocol.messages import Return
from device_agent.trust import codec
from device_agent.trust.keys import SigningKey
from device_agent.trust.policy import SitePolicy
from device_agent.trust.root_list import MASTER_ROLES
from tests.peers.agent_process import NAME, agent_settings, joined
from tests.peers.broker import running_broker
from tests.peers.fleet import Fleet, signing_key
from tests.peers.played_station import PlayedStation, a_job, played_station
from tests.peers.released import DOOR, RELEASE_KEY, FolderSource, lay, release
from tests.peers.trusted_site import TrustedSite
from tests.peers.waiting import until


class Attack:
    """An agent, what is served to it, and who orders it."""

    def __init__(self, station: PlayedStation, agent: Agent, folder: Path) -> None:
        self.station = station
        self.agent = agent
        self.root = lay(folder / "served", {"_modules/door.py": DOOR})
        self.kept = folder / "state" / "custom"
        self._number = 0

    async def bring(self) -> Synced:
        """The agent brings what is served."""
        return await sync(self.agent.custom, FolderSource(base=self.root), ["modules"], ["base"])

    async def order(self, fun: str, key: SigningKey | None = None) -> Return:
        """The answer to one call, by master A unless another key signs it."""
        self._number += 1
        job = a_job(self._number, fun=fun)
        await self.station.deliver(job, key=key)
        [told] = await self.station.returned(job.jid, NAME)
        return told


@asynccontextmanager
async def attacked(folder: Path, *roles: str, brought: bool = True, **policy: Any) -> AsyncIterator[Attack]:
    fleet = Fleet("lisbon")
    masters = (fleet.a.as_master([*MASTER_ROLES, *roles]), fleet.b.as_master())
    fleet.next_root(masters=masters, releases=(RELEASE_KEY.public,))
    fleet.site_certificate = fleet.certify_site(policy=SitePolicy(**policy))
    async with (
        running_broker(folder) as broker,
        played_station(broker.address, TrustedSite(fleet)) as station,
        joined(station, agent_settings(station, folder)) as agent,
    ):
        attack = Attack(station, agent, folder)
        release(attack.root)
        if brought:
            assert (await attack.bring()).refused == {}
        yield attack


async def test_a_master_without_the_role_runs_of_what_was_released_what_is_no_shell(tmp_path: Path) -> None:
    async with attacked(tmp_path, fun=("looks", "door.*")) as attack:
        assert (await attack.order("door.status")).outcome == "ok"
        told = await attack.order("door.open")
        assert (told.outcome, told.why) == ("refused", "not_granted: door.open needs a master with the role root-shell")
        # Nor does its site, whatever it was granted by that master.
        site = attack.station.site.key
        assert (await attack.order("door.status", site)).outcome == "ok"
        assert "root-shell" in (await attack.order("door.open", site)).why


async def test_a_job_that_waits_until_its_function_is_brought_needs_the_role_all_the_same(tmp_path: Path) -> None:
    """What a device does not know needs no role, for it does not run there; so it must not run there later either."""
    async with attacked(tmp_path, brought=False) as attack:
        busy = [a_job(100 + number, fun="test.sleep", arg=[10]) for number in range(limits.DEVICE_RUNNING)]
        waiting = {name: a_job(200 + number, fun=f"door.{name}") for number, name in enumerate(("open", "status"))}
        for job in [*busy, *waiting.values()]:
            await attack.station.deliver(job)
        device = attack.agent._device
        assert device is not None
        await until(lambda: len(device.jobs.under_way()) == len(busy) + 2, what="that they wait")
        assert (await attack.bring()).refused == {}
        told = {name: (await attack.station.returned(job.jid, NAME))[0] for name, job in waiting.items()}
        assert (told["open"].outcome, told["open"].why.partition(":")[0]) == ("refused", "not_granted")
        assert told["status"].outcome == "ok"


@pytest.mark.parametrize(("granted", "runs"), [("looks", ["status"]), ("door.*", ["status", "open"]), ("reads", [])])
async def test_a_gateway_orders_what_was_brought_within_its_grants(
    tmp_path: Path, granted: str, runs: list[str]
) -> None:
    async with attacked(tmp_path, "root-shell", fun=(granted,)) as attack:
        site = attack.station.site.key
        told = {name: await attack.order(f"door.{name}", site) for name in ("status", "open")}
        assert [name for name, each in told.items() if each.outcome == "ok"] == runs
        assert all(each.why.startswith("not_granted") for name, each in told.items() if name not in runs)


@pytest.mark.parametrize("signer", ["master", "site", "stranger"])
async def test_who_has_every_key_but_a_release_key_releases_nothing(tmp_path: Path, signer: str) -> None:
    async with attacked(tmp_path, "root-shell") as attack:
        site = attack.station.site
        key = {"master": site.fleet.a.key, "site": site.key, "stranger": signing_key("stranger")}[signer]
        lay(attack.root, {"_modules/door.py": DOOR.replace("shut", "forced")})
        release(attack.root, 99, key)
        brought = await attack.bring()
        assert {path: refusal.reason for path, refusal in brought.refused.items()} == {
            "_release": "unknown_release_key",
            "_modules/door.py": "altered",
        }
        assert (await attack.order("door.status")).value == {"door": "shut", "times": 1}


async def test_who_writes_into_the_folder_of_a_device_gets_nothing_to_run(tmp_path: Path) -> None:
    async with attacked(tmp_path, "root-shell") as attack:
        assert (await attack.order("door.status")).outcome == "ok"
        forced = DOOR.replace("shut", "forced")
        lay(attack.kept, {"_modules/door.py": forced, "_modules/evil.py": forced})
        assert (await attack.order("door.status")).why.startswith("module_refused: altered")
        assert (await attack.order("evil.status")).why.startswith("module_refused: unsigned")
        # With a list of his own in the place of ours, for another process.
        other = lay(tmp_path / "other", {"_modules/door.py": forced})
        body = release(other, 9, signing_key("stranger"))
        (attack.kept / "list").write_bytes(codec.encode([body, []]))
        restarted = CustomModules(attack.kept, lambda: attack.agent.identity.anchor.root)
        with pytest.raises(Refused, match="unknown_release_key"):
            await restarted.function("door.status")


async def test_an_older_list_brings_back_no_file_that_a_newer_one_has_left_behind(tmp_path: Path) -> None:
    async with attacked(tmp_path, "root-shell") as attack:
        old = (attack.root / "_release").read_bytes()
        lay(attack.root, {"_modules/door.py": DOOR.replace("shut", "mended")})
        release(attack.root, 2)
        await attack.bring()
        (attack.root / "_release").write_bytes(old)
        lay(attack.root, {"_modules/door.py": DOOR})
        brought = await attack.bring()
        assert {path: refusal.reason for path, refusal in brought.refused.items()} == {
            "_release": "rollback",
            "_modules/door.py": "altered",
        }
        told = await attack.order("door.status")
        assert told.value["door"] == "mended"


async def test_what_a_dropped_release_key_has_signed_runs_no_more(tmp_path: Path) -> None:
    async with attacked(tmp_path, "root-shell") as attack:
        assert (await attack.order("door.status")).outcome == "ok"
        attack.station.site.fleet.next_root(releases=(), revoked=(RELEASE_KEY.kid,))
        await attack.station.publish_bundle()

        def is_known() -> bool:
            root = attack.agent.identity.anchor.root
            return root is not None and not root.releases

        await until(is_known, what="the new root list")
        told = await attack.order("door.status")
        assert told.why.startswith("module_refused: release_key_revoked")
        release(attack.root, 99)
        assert (await attack.bring()).refused["_release"].reason == "release_key_revoked"
