"""The station as a target on a real store: what it lost with its journal it does not run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_agent.errors import Refused
from device_agent.heard import Delivery
from device_agent.own import NoCustom
from device_agent.protocol.jid import JidMaker
from device_agent.protocol.messages import Job
from device_agent.protocol.several import SEVERAL
from gateway.own.target import StationTarget, _Granted
from gateway.store.damage import ROW, Damage, encode
from tests.peers.database import a_job
from tests.peers.ssh_site import SshSite, ssh_site

AT = 1_763_000_000.0


class Paper(Delivery):
    """A job that was proven, as far as this test goes."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.jid, job.tgt, job.tgt_type, b"", 1)
        self._job = job

    def open(self) -> tuple[Job, float]:
        return self._job, 60.0


@pytest.mark.parametrize("calls", [["test.ping", "grains.set"], ["grains.set", "test.ping"]])
def test_its_settings_have_to_grant_each_of_several_functions(calls: list[str]) -> None:
    job = a_job(1, fun=SEVERAL, arg=[[fun, [], {}] for fun in calls])
    assert _Granted(Paper(job), ["looks", "changes"], NoCustom()).open() == (job, 60.0)
    for grants in (["looks"], ["changes"], ["_several.*", "test.*"], []):
        with pytest.raises(Refused, match=r"station\.grants"):
            _Granted(Paper(job), grants, NoCustom()).open()


async def found(site: SshSite, folder: Path, seconds: float) -> bool:
    """Whether a station that opens now takes a job of that time (from when its store was damaged) for a known one."""
    target: StationTarget = site.kept.station_target("gateway", folder)
    async with target:
        return target._journal.find(JidMaker().next(AT + seconds)) is not None


@pytest.mark.parametrize("damaged", [True, False])
async def test_with_a_restored_store_and_no_journal_it_runs_nothing_that_is_older(
    tmp_path: Path, damaged: bool
) -> None:
    async with ssh_site(tmp_path / "site") as site:
        if damaged:
            row = (ROW, encode(Damage(at=AT, reason="a backup", aside="nowhere")))
            await site.rooms.writer.commit([("INSERT OR REPLACE INTO station VALUES (?, ?)", [row])])
        (tmp_path / "state").mkdir()
        assert await found(site, tmp_path / "state", -60.0) is damaged
        assert await found(site, tmp_path / "state", -60.0) is damaged, "also after another start"
        assert await found(site, tmp_path / "state", 60.0) is False
        device = site.device("lisbon-station")
        assert (device.link, device.present, device.place) == ("station", True, None)
