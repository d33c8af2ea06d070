"""Work that lives only in the gateway's store does not run twice after a copy or a rollback of the state folder.

A copy of the folder is put back, or runs beside the original. Each test has its counterpart: after an ordinary restart
the same work goes on, though no master is heard.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import PolicyRefused
from gateway.calls.call import CallRequest
from gateway.calls.functions import Function
from gateway.calls.running import Running
from gateway.checks import twins
from gateway.devices.ssh_secrets import Secret
from gateway.downlinks.ssh_marker import FOLDER
from gateway.rooms import Rooms
from gateway.store.trust_state import StoreTrust, keeping
from tests.peers.broker import free_port
from tests.peers.calling import ADA
from tests.peers.clock import HandClock
from tests.peers.orchestrating import orchestrating
from tests.peers.reacting import reacting, written
from tests.peers.ssh_played import PASSWORD, PlayedDevice, new_key, played_device
from tests.peers.ssh_site import SshSite, ssh_site
from tests.peers.waiting import until

LOGIN = Secret(password=PASSWORD)
NAME = "cam-1"
HOW = ["fenced", "restored", "went back", "ordinary restart", "power cut"]
GOES_ON = ("ordinary restart", "power cut")
"""Starts that put nothing in doubt. No master is heard in any of them."""

FENCE = "another gateway runs with a copy of this store and was connected since"
RESTORED = StoreTrust(state="restored", at=1795230900.0, reason="the gateway was restored from a backup", told=True)
WENT_BACK = StoreTrust(
    state="went_back", at=1795230900.0, reason="the store lacks commits that were on disk", told=True
)


async def fence(rooms: Rooms) -> None:
    """The master says that another gateway with a copy of this store is connected."""
    await rooms.marks.fenced(rooms.masters()[0].key, b"m" * 16, FENCE)


async def cut(folder: Path, rooms: Rooms, how: str) -> Path:
    """Prepare the next start of a station in this folder: put its store in doubt, or cut the power. Its folder then."""
    if how == "fenced":
        await fence(rooms)
    elif how == "restored":
        await rooms.writer.commit([keeping(RESTORED)])
    elif how == "went back":
        await rooms.writer.commit([keeping(WENT_BACK)])
    elif how == "power cut":
        # What is on the disk at this moment, with the log of the store that nobody closed.
        return Path(shutil.copytree(folder, folder.with_name(f"{folder.name}-cut")))
    return folder


async def welcome(rooms: Rooms) -> None:
    """The master lets this gateway in."""
    await rooms.marks.welcomed(rooms.masters()[0].key, "central")


# --- jobs on SSH devices ---------------------------------------------------------------------------------------------


class Camera:
    """An SSH device that is away at first, and a job that waits for it in the store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state, self.copy = folder / "state", folder / "copy"
        self.home = folder / "home"
        self.home.mkdir()
        self.runs = folder / "runs"
        self.key, self.port = new_key(), free_port()
        self.jid = ""

    @property
    def ran(self) -> int:
        """How often the command ran on the device."""
        return len(self.runs.read_text().splitlines()) if self.runs.exists() else 0

    def device(self) -> AbstractAsyncContextManager[PlayedDevice]:
        """The device, for as long as the block lasts."""
        return played_device(key=self.key, port=self.port, home=self.home)

    async def wait_in_store(self) -> None:
        """Order the job while the device is away, and copy the state folder of the stopped gateway."""
        keys = (" ".join(self.key.export_public_key("openssh").decode().split()[:2]),)
        async with ssh_site(self.state) as site:
            await site.add(NAME, self.port, keys, LOGIN)
            await site.away(NAME, "connection_refused")
            self.jid = await site.start("cmd.run", NAME, arg=[f"echo ran >>{self.runs}"], late="run")
        shutil.copytree(self.state, self.copy)

    async def end(self, site: SshSite) -> tuple[str, str]:
        """How the job ended at a gateway, and why."""
        ended = (await site.outcomes(self.jid))[NAME]
        return ended.outcome, ended.why or ""


async def test_an_ssh_job_does_not_run_again_when_an_older_copy_is_put_back_and_no_master_is_heard(
    tmp_path: Path,
) -> None:
    camera = Camera(tmp_path)
    await camera.wait_in_store()
    async with camera.device():
        async with ssh_site(camera.state) as site:
            assert await camera.end(site) == ("ok", "")
        assert camera.ran == 1
        async with ssh_site(camera.copy) as site:
            outcome, why = await camera.end(site)
            assert outcome == "unknown"
            assert "the device has the marker of this job" in why
            assert (await site.run("cmd.run", NAME, arg=["echo next"]))[NAME].value == "next"
    assert camera.ran == 1


@pytest.mark.parametrize("told", ["fenced", "no master"])
async def test_an_ssh_job_runs_on_one_of_two_gateways_with_copies_of_one_store(tmp_path: Path, told: str) -> None:
    camera = Camera(tmp_path)
    await camera.wait_in_store()
    async with ssh_site(camera.state) as site, ssh_site(camera.copy) as copy:
        if told == "fenced":
            await fence(copy.rooms)
            [finding] = await twins.check(copy.rooms.facts)
            assert finding.finding.startswith("this gateway is fenced")
            outcome, why = await camera.end(copy)
            assert (outcome, "This gateway is fenced" in why) == ("unknown", True)
            with pytest.raises(PolicyRefused) as refused:
                await copy.start("cmd.run", NAME, arg=["true"])
            assert refused.value.error_id == "station.fenced"
        async with camera.device():
            ends = sorted([(await camera.end(site))[0], (await camera.end(copy))[0]])
            assert ends == ["ok", "unknown"]
            await copy.here(NAME)
    assert camera.ran == 1


async def test_an_ssh_job_that_was_fenced_stays_ended_after_a_restart_and_after_unfence(tmp_path: Path) -> None:
    camera = Camera(tmp_path)
    await camera.wait_in_store()
    async with ssh_site(camera.copy) as copy:
        await fence(copy.rooms)
    async with camera.device(), ssh_site(camera.copy) as copy:
        assert (await camera.end(copy))[0] == "unknown"
        with pytest.raises(PolicyRefused):
            await copy.start("cmd.run", NAME, arg=["true"])
        await welcome(copy.rooms)
        await copy.here(NAME)
        assert (await copy.run("cmd.run", NAME, arg=["echo next"]))[NAME].value == "next"
    async with camera.device(), ssh_site(camera.copy) as copy:
        await copy.here(NAME)
        assert (await copy.run("cmd.run", NAME, arg=["echo next"]))[NAME].value == "next", "it is not fenced any more"
    assert camera.ran == 0


@pytest.mark.parametrize(
    ("how", "words"), [("restored", "restored from a backup"), ("went back", "older than what it acknowledged")]
)
async def test_an_ssh_job_that_was_open_starts_nowhere_from_a_store_that_is_older(
    tmp_path: Path, how: str, words: str
) -> None:
    camera = Camera(tmp_path)
    await camera.wait_in_store()
    async with ssh_site(camera.copy) as copy:
        await cut(camera.copy, copy.rooms, how)
    async with camera.device(), ssh_site(camera.copy) as copy:
        outcome, why = await camera.end(copy)
        assert (outcome, words in why) == ("unknown", True)
        await copy.here(NAME)
        assert (await copy.run("cmd.run", NAME, arg=["echo next"]))[NAME].value == "next"
    assert camera.ran == 0


async def test_an_ssh_job_that_waits_ends_when_a_master_shows_that_the_store_went_back(tmp_path: Path) -> None:
    camera = Camera(tmp_path)
    await camera.wait_in_store()
    async with ssh_site(camera.copy) as copy:
        await welcome(copy.rooms)
        await copy.rooms.spool.went_back("a master knows more of this store than is in it")
        outcome, why = await camera.end(copy)
        assert (outcome, "older than what it acknowledged" in why) == ("unknown", True)
        async with camera.device():
            await copy.here(NAME)
            assert (await copy.run("cmd.run", NAME, arg=["echo next"]))[NAME].value == "next"
    assert camera.ran == 0


async def test_a_device_that_holds_no_marker_runs_what_only_the_store_knows_when_a_master_was_heard(
    tmp_path: Path,
) -> None:
    camera = Camera(tmp_path)
    await camera.wait_in_store()
    camera.home.rmdir()
    camera.home.write_text("no folder can be made here")
    async with camera.device(), ssh_site(camera.copy) as copy:
        outcome, why = await camera.end(copy)
        assert (outcome, "holds no marker" in why) == ("unknown", True)
        assert (await copy.run("cmd.run", NAME, arg=["echo next"]))[NAME].value == "next", "a new job is in no doubt"
    assert camera.ran == 0
    async with ssh_site(camera.state) as site:
        await welcome(site.rooms)
        async with camera.device():
            assert await camera.end(site) == ("ok", "")
    assert camera.ran == 1


async def test_a_job_that_changes_nothing_leaves_no_marker(tmp_path: Path) -> None:
    async with played_device() as camera, ssh_site(tmp_path) as site:
        await site.add(NAME, camera.port, camera.host_keys, LOGIN)
        await site.here(NAME)
        assert (await site.run("cmd.which", NAME, arg=["sh"]))[NAME].outcome == "ok"
        assert not (camera.home / FOLDER).exists()
        jid = await site.start("cmd.run", NAME, arg=["true"])
        assert (await site.outcomes(jid))[NAME].outcome == "ok"
        assert [each.name.partition(".")[0] for each in (camera.home / FOLDER).iterdir()] == [jid]


# --- what the station starts by itself -------------------------------------------------------------------------------

PING = "ping: {local.test.ping: [{tgt: cam-1}]}\n"


@pytest.mark.parametrize("how", HOW)
async def test_a_reaction_that_waits_in_the_store(tmp_path: Path, how: str) -> None:
    said = [{"site/*": str(written(tmp_path, {"a.sls": PING}) / "a.sls")}]
    async with reacting(tmp_path, said, draining=True) as station:
        await station.fire("site/a")
        await until(lambda: station.counted("reactor_events_matched") == 1, what="it matched")
        folder = await cut(tmp_path, station.rooms, how)
    async with reacting(folder, said) as station:
        if how in GOES_ON:
            assert len(await station.jobs_are(1)) == 1
            return
        told = await station.event("site/a", "dropped")
        assert told["why"].startswith("unknown: it may have run before")
        await station.fire("site/b")
        if how == "fenced":
            (made,) = (await station.event("site/b"))["reactions"]
            assert (made["state"], "is fenced" in made["why"]) == ("refused", True)
            assert await station.jobs() == []
        else:
            assert len(await station.jobs_are(1)) == 1


@pytest.mark.parametrize("how", HOW)
async def test_a_scheduled_run_that_waits_in_the_store_and_one_that_was_missed(tmp_path: Path, how: str) -> None:
    entry = {"function": "test.ping", "target": "*", "when": "04:00", "run_missed": True, "maxrunning": 2}
    settings: dict[str, Any] = {"schedule": {"rare": entry}, "timezone": "UTC"}
    clock = HandClock()
    async with reacting(tmp_path, [], clock=clock, draining=True, **settings) as station:
        async with station.kept.schedule as schedule:
            await schedule.run_now("rare")
        folder = await cut(tmp_path, station.rooms, how)
    # The time of the entry passes while the gateway is down.
    clock.move(2 * 3600.0)
    async with reacting(folder, [], clock=clock, **settings) as station, station.kept.schedule as schedule:
        if how in GOES_ON:
            assert len(await station.jobs_are(2)) == 2
            return
        # Before the schedule has had its first turn.
        due = schedule._turns.next_fire("rare")
        assert due is not None
        assert due > clock.wall(), "the missed run is not made up for"
        (ran,) = await schedule.book.of_entry("rare", 10)
        assert (ran.state, ran.why.startswith("unknown: it may have run before")) == ("failed", True)
        # A day later it is due again.
        clock.move(86_400.0)
        if how == "fenced":
            await until(lambda: station.counted("schedule_left_out") == 1, what="it is left out")
            assert await station.jobs() == []
        else:
            assert len(await station.jobs_are(1)) == 1


@pytest.mark.parametrize("how", HOW)
async def test_a_runner_that_was_cut_off(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    going = asyncio.Event()

    async def slow(call: Running) -> str:
        ran.append(call.jid)
        await going.wait()
        return "done"

    again = Function("slow.slow", slow, again=True)
    async with reacting(tmp_path, [], before=[again]) as station:
        calls = station.kept.own.calls
        monkeypatch.setattr(calls, "drain_seconds", 0.05)
        jid = await calls.submit(CallRequest(fun="slow.slow"), ADA)
        await until(lambda: len(ran) == 1, what="it runs")
        folder = await cut(tmp_path, station.rooms, how)
    going.set()
    async with reacting(folder, [], before=[again]) as station:
        calls = station.kept.own.calls
        ended = await calls.wait(jid)
        if how in GOES_ON:
            assert (ended.state, ran) == ("ok", [jid, jid])
            return
        assert (ended.state, ran) == ("interrupted", [jid])
        assert str(ended.value).startswith("unknown: it may have run before")
        if how == "fenced":
            with pytest.raises(PolicyRefused) as refused:
                await calls.submit(CallRequest(fun="slow.slow"), ADA)
            assert refused.value.error_id == "station.fenced"
            assert await calls.submit(CallRequest(fun="jobs.list_jobs"), ADA), "what only looks is answered"


ONE = """\
one: {salt.function: [{name: test.ping}, {tgt: '*'}]}
two: {salt.function: [{name: test.echo}, {tgt: '*'}, {arg: [x]}]}
"""


@pytest.mark.parametrize("how", HOW)
async def test_an_orchestration_that_was_cut_off(tmp_path: Path, how: str) -> None:
    async with orchestrating(tmp_path, {"a.sls": ONE}, {}) as station:
        jid = await station.begin("a")

        async def given() -> bool:
            return len(await station.jobs()) == 1

        await until(given, what="the first step has its job")
        folder = await cut(tmp_path, station.station.rooms, how)
    async with orchestrating(folder, {}) as station:
        ended = await station.end(jid)
        jobs = [job.fun for job in await station.jobs()]
        if how in GOES_ON:
            assert (ended.state, jobs) == ("ok", ["test.ping", "test.echo"])
            return
        assert (ended.state, jobs) == ("interrupted", ["test.ping"])
        assert str(ended.value).startswith("unknown: it may have run before")


async def test_an_orchestration_under_way_gives_no_job_once_the_gateway_is_fenced(tmp_path: Path) -> None:
    answers: dict[str, tuple[str, object]] = {}
    async with orchestrating(tmp_path, {"a.sls": ONE}, answers) as station:
        jid = await station.begin("a")

        async def given() -> bool:
            return len(await station.jobs()) == 1

        await until(given, what="the first step has its job")
        await fence(station.station.rooms)
        answers["test.ping"] = ("ok", True)
        await station.station.fire("salt/job/0/new")
        ended = await station.end(jid)
        assert ended.state == "failed"
        assert "this gateway is fenced" in str(ended.value)
        assert [job.fun for job in await station.jobs()] == ["test.ping"]
