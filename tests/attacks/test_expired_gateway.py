"""Somebody took a gateway's disk, and its certificate has expired since: he answers a device that asks to join.

He knows the token too, and says that it is a day on which he still counted. What the device can hold against him is
what the root holders have signed since, or what it has on its flash. It believes neither the time nor the site; and of
a gateway that counts it believes no time outside its certificate.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from device_agent import RELEASED
from device_agent.identity import Identity, IdentityFile
from device_agent.protocol import topics
from device_agent.trust.chain import Anchor
from device_agent.trust.deliveries import job_delivery
from device_agent.trust.floor import Floor
from device_agent.trust.keys import KemKey, SigningKey, new_private
from tests.peers.agent_process import NAME, AgentProcess
from tests.peers.broker import running_broker
from tests.peers.fleet import YEAR
from tests.peers.played_station import PlayedStation, a_job, commanding_fleet, played_station
from tests.peers.trusted_site import TrustedSite
from tests.peers.waiting import until

DAY = 86_400
IGNORED = "an answer that proves nothing was ignored: "


class YearOn(TrustedSite):
    """A site of a fleet whose newest root list is a year old."""

    def now(self) -> int:
        return super().now() + YEAR


@asynccontextmanager
async def asking(folder: Path, site: TrustedSite) -> AsyncIterator[tuple[PlayedStation, AgentProcess]]:
    """A device with a token that has not been started yet, and whoever has the place of its gateway."""
    async with running_broker(folder) as broker, played_station(broker.address, site) as station:
        agent = AgentProcess(station, folder)
        try:
            yield station, agent
        finally:
            if agent.process is not None and agent.process.returncode is None:
                await agent.end(signal.SIGKILL)


def flash(agent: AgentProcess) -> Identity:
    found = IdentityFile(agent.folder / "state").load()
    assert found is not None
    return found


def has_been_here(agent: AgentProcess, time: int) -> None:
    """The device has belonged nowhere, and has on its flash a time that has certainly passed."""
    identity = Identity(SigningKey(new_private()), KemKey(new_private()), Anchor(None), Floor(time))
    IdentityFile(agent.folder / "state").save(identity.to_bytes())


async def assert_ignored(station: PlayedStation, agent: AgentProcess, said: int, reason: str) -> None:
    """It asks, is told that it is this time, and has nothing of it when its power is cut."""
    station.site.terms["issued"] = said
    floor = flash(agent).floor.value if (agent.folder / "state" / "identity").exists() else RELEASED
    before = len(agent.log) if agent.process is not None else 0
    await agent.start()
    await until(lambda: IGNORED in agent.log[before:], what="what it thinks of the answer")
    assert f"{IGNORED}{reason}" in agent.log[before:]
    await agent.end(signal.SIGKILL)
    kept = flash(agent)
    assert not kept.joined
    assert kept.anchor.root is None
    assert kept.floor.value == floor
    assert station.site.confirmed == []
    assert station.hellos[NAME] == []


async def assert_joins_and_knows_the_time(station: PlayedStation, agent: AgentProcess, marks: Path) -> None:
    """Once its gateway has a certificate of today: what has expired does not run, what is of today does."""
    site = station.site
    del site.terms["issued"]
    site.certificates = [site.fleet.certify_site(issued=site.now(), expires=site.now() + 30 * DAY)]
    await station.publish_bundle()
    await agent.start()
    await station.joined([NAME])
    hour: dict[str, Any] = {"issued": site.now() - 3600, "expires": site.now() - 3300}
    nothing: dict[str, Any] = {}
    for number, times, expected in ((1, hour, "expired"), (2, nothing, "ok")):
        job = a_job(number, fun="cmd.run", arg=[f"/bin/sh -c 'echo {number} >> {marks}'"])
        await station.link.publish(topics.group_job("lisbon"), job_delivery(station.sealed(job, **times), 300.0, None))
        assert (await station.returned(job.jid, NAME))[-1].outcome == expected
    assert marks.read_text() == "2\n"
    assert flash(agent).floor.value <= site.now()


async def test_a_device_that_sees_a_newer_root_list_believes_neither_him_nor_his_time(tmp_path: Path) -> None:
    site = TrustedSite(commanding_fleet("lisbon"))
    now = site.now()
    async with asking(tmp_path, site) as (station, agent):
        site.certificates = [site.fleet.certify_site(issued=now - 60 * DAY, expires=now - 30 * DAY)]
        await station.publish_bundle()
        for said in (now - 40 * DAY, now, now + YEAR):
            await assert_ignored(station, agent, said, "expired")
        # A gateway that counts, and that lies all the same.
        site.certificates = [site.fleet.site_certificate]
        for said in (now - 2 * DAY, now + 31 * DAY):
            await assert_ignored(station, agent, said, "wrong_time")
        await assert_joins_and_knows_the_time(station, agent, tmp_path / "marks")


async def test_a_device_that_knows_a_later_day_believes_neither_him_nor_his_time(tmp_path: Path) -> None:
    site = YearOn(commanding_fleet("lisbon"))
    async with asking(tmp_path, site) as (station, agent):
        has_been_here(agent, site.now())
        assert site.certificates == [site.fleet.site_certificate], "it counted in the month of the root list"
        for said in (site.now() - YEAR + DAY, site.now()):
            await assert_ignored(station, agent, said, "expired")
        await assert_joins_and_knows_the_time(station, agent, tmp_path / "marks")
