"""Held jobs: nothing of them starts until somebody else has released them, whatever happens to the station."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_agent.protocol.links import Parcel
from device_agent.protocol.messages import Return, encode
from gateway.devices.policy import Operator, Role
from gateway.jobs.request import JobRequest
from tests.peers.calling import events
from tests.peers.clock import HandClock
from tests.peers.database import a_job, look
from tests.peers.office import Office, an_office
from tests.peers.reacting import reacting
from tests.peers.waiting import until

POLICY = """\
tokens: {ada: admin, anna: operator, carol: approver, both: [operator, approver]}
rules:
  operator:
    - functions: [test.*]
      hold: true
"""
CENTRE = "tokens: {carol: approver}\ncentre: [{functions: [test.*], hold: true}]\n"


async def held(office: Office, user: str = "anna", **changed: Any) -> str:
    """Issue a job that is held; its jid."""
    heard = await office.run(user, **changed)
    assert (heard.status, heard.json()["held"], heard.json()["state"]) == (201, True, "open"), heard.body
    jid: str = heard.json()["jid"]
    return jid


async def release(office: Office, jid: str, user: str = "carol") -> int:
    return (await office.ask(user, "POST", f"/jobs/{jid}/release")).status


async def nothing_sent(office: Office) -> None:
    """Whatever the delivery looks at now, it sends nothing."""
    for opened in office.rooms.open_jobs:
        await office.rooms.delivery._look_at(opened, office.rooms.delivery._clock.monotonic())
    assert (office.devices.delivered, office.sites.delivered) == ([], [])


async def test_a_held_job_starts_nowhere_until_it_is_released_and_then_everywhere(tmp_path: Path) -> None:
    async with an_office(tmp_path, POLICY, "porto") as office:
        office.here("cam-1", "cam-2")
        await office.rooms.site_book.site_up("porto", "0", "192.0.2.1")
        jid = await held(office, late="run")
        await office.rooms.branches.site_up("porto")
        office.rooms.delivery.moved("cam-1")
        await nothing_sent(office)
        assert look(office.rooms.writer._path, "SELECT 1 FROM deliveries") == []
        (listed,) = (await office.ask("ada", "GET", "/jobs?state=held")).json()["jobs"]
        assert (listed["jid"], listed["waiting"]) == (jid, {"queued": 2})
        told = [f"salt/job/{jid}/new"]
        assert [event.tag for event in await office.rooms.bus.history("salt/job/*", 9)] == told
        assert await release(office, jid) == 200
        await until(lambda: len(office.devices.delivered) == 2 and office.sites.delivered, what="the job is sent")
        told += [f"salt/job/{jid}/publish"]
        assert [event.tag for event in await office.rooms.bus.history("salt/job/*", 9)][:2] == told
        assert sorted(office.devices.delivered) == [(jid, "cam-1"), (jid, "cam-2")]
        assert (await office.ask("ada", "GET", "/jobs?state=held")).json()["jobs"] == []
        rows = look(office.rooms.writer._path, "SELECT user, action, verdict, jid FROM audit ORDER BY id")
        assert rows == [("anna via api", "run", "hold", jid), ("carol", "release", "allow", jid)]


async def test_it_is_still_held_after_a_restart_and_its_release_too_is_not_forgotten(tmp_path: Path) -> None:
    clock = HandClock()
    async with an_office(tmp_path, POLICY, clock=clock) as office:
        office.here("cam-1")
        jid = await held(office, late="run")
    async with an_office(tmp_path, POLICY, clock=clock) as office:
        office.here("cam-1")
        opened = office.rooms.open_jobs.get(jid)
        assert opened is not None
        assert opened.held
        await nothing_sent(office)
        # Nobody works on it yet: what is released is on disk before it is sent.
        office.devices.delivered.clear()
        assert await release(office, jid) == 200
        await until(lambda: office.devices.delivered, what="the job is sent")
    async with an_office(tmp_path, POLICY, clock=clock) as office:
        opened = office.rooms.open_jobs.get(jid)
        assert opened is not None
        assert not opened.held
        office.here("cam-1")
        office.rooms.delivery.moved("cam-1")
        await until(lambda: office.devices.delivered, what="the job is sent again")
        await office.rooms.collection.returned(
            "cam-1", Return(jid=jid, fun="test.ping", outcome="ok", value=True, executions=1), 100
        )
        await until(lambda: office.rooms.open_jobs.get(jid) is None, what="the job is closed")
        assert (await office.rooms.views.one(jid))["counts"] == {"ok": 1}


async def test_what_nobody_releases_ends_as_expired_on_devices_and_at_sites(tmp_path: Path) -> None:
    clock = HandClock()
    async with an_office(tmp_path, POLICY, "porto", clock=clock) as office:
        office.here("cam-1")
        await office.rooms.site_book.site_up("porto", "0", "192.0.2.1")
        from tests.peers.central import a_record

        await office.rooms.inbox.commit_records("porto", "0" * 16, [a_record("cam-p", "porto", 1)])
        jid = await held(office, expires_seconds=60)
        clock.move(59)
        office.rooms.delivery.kick()
        await nothing_sent(office)
        clock.move(1)
        opened = office.rooms.open_jobs.get(jid)
        assert opened is not None
        opened.look_at = 0.0
        office.rooms.delivery.kick()
        await until(lambda: office.rooms.open_jobs.get(jid) is None, what="the job is closed")
        outcomes, _ = await office.rooms.views.outcomes(jid, 0, 9)
        assert {(each["id"], each["outcome"], each["why"]) for each in outcomes} == {
            (device, "expired", "it was held, and nobody released it before its expiry")
            for device in ("cam-1", "cam-p")
        }
        assert await release(office, jid) == 404
        assert (office.devices.delivered, office.sites.delivered) == ([], [])


async def test_one_that_is_cancelled_starts_nowhere(tmp_path: Path) -> None:
    async with an_office(tmp_path, POLICY, "porto") as office:
        office.here("cam-1")
        jid = await held(office)
        assert (await office.ask("anna", "POST", f"/jobs/{jid}/cancel")).status == 200
        await until(lambda: office.rooms.open_jobs.get(jid) is None, what="the job is closed")
        assert (await office.rooms.views.one(jid))["counts"] == {"cancelled": 1}
        assert office.devices.delivered == []


async def test_who_is_not_there_at_the_release_is_unreachable_unless_the_job_is_for_the_late(tmp_path: Path) -> None:
    async with an_office(tmp_path, POLICY) as office:
        office.here("cam-1", "cam-2")
        dropped, late = await held(office), await held(office, late="run")
        from device_agent.protocol.messages import Gone

        office.rooms.registry.gone("cam-2", Gone(f"{1:016d}"))
        for jid in (dropped, late):
            assert await release(office, jid) == 200
        await until(lambda: len(office.devices.delivered) == 2, what="both jobs are sent")
        outcomes: list[dict[str, Any]] = []

        async def ended() -> bool:
            nonlocal outcomes
            outcomes, _ = await office.rooms.views.outcomes(dropped, 0, 9)
            return bool(outcomes)

        await until(ended, what="the absent device has its outcome")
        (outcome,) = outcomes
        assert (outcome["id"], outcome["outcome"]) == ("cam-2", "unreachable")
        assert outcome["why"] == "not connected when the job was released"
        opened = office.rooms.open_jobs.get(late)
        assert opened is not None
        assert set(opened.waiting) == {"cam-1", "cam-2"}


@pytest.mark.parametrize(
    ("user", "status", "error_id"),
    [
        ("anna", 403, "policy.role"),
        ("both", 403, "policy.own_job"),
        ("nobody", 403, "policy.role"),
        ("carol", 200, None),
        ("ada", 200, None),
    ],
)
async def test_a_release_is_for_approvers_and_never_for_who_asked(
    user: str, status: int, error_id: str | None, tmp_path: Path
) -> None:
    async with an_office(tmp_path, POLICY) as office:
        office.here("cam-1")
        jid = await held(office, "both")
        heard = await office.ask(user, "POST", f"/jobs/{jid}/release")
        assert heard.status == status
        if error_id is None:
            again = await office.ask(user, "POST", f"/jobs/{jid}/release")
            assert (again.status, again.error["id"]) == (404, "job.not_held")
            return
        assert heard.error["id"] == error_id
        await nothing_sent(office)
        (row,) = look(office.rooms.writer._path, "SELECT user FROM audit WHERE verdict = 'deny'")
        assert row == (user,)


async def test_a_site_holds_what_comes_from_above_until_its_own_approver_releases_it(tmp_path: Path) -> None:
    async with an_office(tmp_path, CENTRE) as office:
        office.here("cam-1")
        # Whoever has the same name at the centre is somebody else.
        job = a_job(user="carol")
        await office.rooms.acceptance.accept_from_above(Parcel(encode(job), ()), 300.0, "tcp://above:1")
        view = await office.rooms.views.one(job.jid)
        assert (view["held"], view["waiting"]) == (True, {"queued": 1})
        await nothing_sent(office)
        assert await release(office, job.jid) == 200
        await until(lambda: office.devices.delivered == [(job.jid, "cam-1")], what="the job is sent")


async def test_what_is_published_names_its_returners_also_when_it_was_held_over_a_restart(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "policy": POLICY,
        "rawfile_json": {"filename": str(tmp_path / "returns.json")},
        "returner": {"sqlite3": {"database": str(tmp_path / "returns.db")}},
    }
    anna, ada = Operator("anna", frozenset[Role]({"operator"})), Operator("ada", frozenset[Role]({"admin"}))
    wanted = JobRequest(tgt="cam-1", fun="test.ping", ret="sqlite, file,sqlite3", late="run")
    async with reacting(tmp_path, [], **settings) as station:
        at_once = await station.rooms.acceptance.submit(wanted, "ada", ada)
        held = await station.rooms.acceptance.submit(wanted, "anna", anna)
        ((_, told),) = await events(station, "salt/job/*/publish")
        assert (told["jid"], told["ret"]) == (at_once, "sqlite3,rawfile_json")
    async with reacting(tmp_path, [], **settings) as station:
        await station.rooms.delivery.release(held)
        _, (_, told) = await events(station, "salt/job/*/publish")
        assert (told["jid"], told["ret"]) == (held, "rawfile_json,sqlite3")
