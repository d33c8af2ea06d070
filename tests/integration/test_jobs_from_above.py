"""What a master signed and sealed, at a gateway: held against its definition, and the definition against the policy."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from device_agent.errors import PolicyRefused
from device_agent.protocol.links import Parcel, Sealed
from device_agent.protocol.messages import Hello, Job, encode
from device_agent.trust.keys import SigningKey
from device_agent.trust.signed_job import JobHeader, Order, read_job, seal_for_group
from gateway.fleet.rehearsed import RehearsedFleet
from gateway.fleet.station_files import StationFiles
from gateway.jobs.accept import JobRequest
from gateway.jobs.request import Ordered
from gateway.jobs.seal import is_told_of, public
from gateway.rooms import Rooms
from tests.peers.central import a_record
from tests.peers.clock import HandClock
from tests.peers.database import a_job, opened_rooms
from tests.peers.rope import new_keys

NAME = "cam"


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def master(tmp_path: Path, clock: HandClock) -> SigningKey:
    """The key of a master of the fleet that has certified lisbon."""
    fleet = RehearsedFleet(tmp_path / "lisbon" / "fleet", clock)
    fleet.add_master("central", tmp_path / "central")
    fleet.certify(tmp_path / "lisbon", "lisbon")
    return StationFiles(tmp_path / "central").keys()[0]


@pytest.fixture
async def rooms(tmp_path: Path, clock: HandClock, master: SigningKey) -> AsyncIterator[Rooms]:
    async with opened_rooms(tmp_path / "lisbon", clock=clock, masters=True) as found:
        found.registry.hello("mqtt", NAME, Hello("0" * 16, "1", {"id": NAME}))
        yield found


def sealed(rooms: Rooms, master: SigningKey, job: Job) -> Parcel:
    """A job as this master hands it to lisbon."""
    header = JobHeader(
        sub="all",
        site="lisbon",
        issued=math.floor(job.issued),
        expires=math.ceil(job.expires),
        jid=job.jid,
        seq=int(job.issued * 1000),
        tgt=job.tgt,
        tgt_type=job.tgt_type,
        late=job.late,
        epoch=rooms.epochs.epoch,
    )
    order = Order(fun=job.fun, arg=job.arg, kwarg=job.kwarg, user=job.user, why=job.why)
    body = seal_for_group(master, header, order, rooms.epochs.key, os.urandom(16))
    return Parcel(encode(job), (Sealed("lisbon", "", body),))


async def test_a_repeat_brings_new_seals_and_never_another_job(rooms: Rooms, master: SigningKey) -> None:
    job = a_job(arg=["as it was granted"], fun="test.echo")
    first, again = sealed(rooms, master, job), sealed(rooms, master, job)
    await rooms.acceptance.accept_from_above(first, 300.0, "central")
    opened = rooms.open_jobs.get(job.jid)
    assert opened is not None
    for other in (a_job(fun="cmd.run", arg=["reboot"]), a_job(fun="test.echo", arg=["something else"])):
        await rooms.acceptance.accept_from_above(sealed(rooms, master, other), 300.0, "central")
        assert opened.sealed == list(first.sealed)
    assert rooms.metrics.peers["uplink", "definition_mismatch", "central"] == 2
    await rooms.acceptance.accept_from_above(again, 300.0, "central")
    assert opened.sealed == list(again.sealed)


async def test_a_definition_that_is_not_what_was_sealed_is_refused(rooms: Rooms, master: SigningKey) -> None:
    parcel = sealed(rooms, master, a_job(fun="cmd.run", arg=["reboot"]))
    await rooms.acceptance.accept_from_above(Parcel(encode(a_job()), parcel.sealed), 300.0, "central")
    assert rooms.open_jobs.get(a_job().jid) is None
    assert rooms.metrics.peers["uplink", "definition_mismatch", "central"] == 1


async def test_a_station_without_a_clock_issues_jobs_at_the_time_that_devices_are_told(
    rooms: Rooms, clock: HandClock
) -> None:
    right = clock.wall()
    clock.step_wall(-right)
    clock.move(1000.0)
    jid = await rooms.acceptance.submit(JobRequest(tgt=NAME, fun="test.ping"), "ops")
    opened = rooms.open_jobs.get(jid)
    assert opened is not None
    assert opened.job.issued == rooms.authority.now() == right + 1000.0
    parcel = rooms.sealer.for_devices(opened, [NAME])
    assert parcel is not None
    assert read_job(parcel.sealed[0].body).header.issued == right + 1000.0


def test_a_site_tells_of_a_sealed_job_without_its_arguments() -> None:
    job = a_job(arg=["for the device alone"], sealed=True)
    assert is_told_of(encode(job), encode(job))
    assert is_told_of(encode(job), encode(public(job)))
    assert not is_told_of(encode(job), encode(public(a_job(fun="cmd.run", sealed=True))))
    plain = a_job(arg=["for everybody"])
    assert not is_told_of(encode(plain), encode(a_job()))


async def test_a_job_issued_at_a_relay_is_refused_for_the_devices_of_other_sites(rooms: Rooms) -> None:
    key = new_keys().public
    await rooms.site_keys.judge("porto", key, "192.0.2.1")
    await rooms.site_keys.accept("porto", None)
    await rooms.inbox.commit_records("porto", "0" * 16, [a_record("cam-p", "porto", 1)])
    jid = await rooms.acceptance.submit(JobRequest(tgt="*", fun="test.ping"), "ops")
    opened = rooms.open_jobs.get(jid)
    assert opened is not None
    assert (list(opened.waiting), opened.branches) == ([NAME], {})
    (outcome,), _ = await rooms.views.outcomes(jid, 0, 10)
    assert (outcome["id"], outcome["site"], outcome["outcome"]) == ("cam-p", "porto", "refused")
    assert "its own devices alone" in outcome["why"]


async def test_seals_are_asked_for_ever_more_rarely_while_nobody_answers(
    rooms: Rooms, master: SigningKey, clock: HandClock
) -> None:
    job = a_job()
    parcel = sealed(rooms, master, job)
    await rooms.acceptance.accept_from_above(parcel, 300.0, "central")
    opened = rooms.open_jobs.get(job.jid)
    assert opened is not None
    asked: list[float] = []

    async def ask(site: str, jid: str, reason: str, master: str) -> None:
        assert master == "central"
        asked.append(clock.monotonic() - 1000.0)

    rooms.reseal.ask_above(ask)
    for _ in range(200):
        await rooms.reseal.renew(opened, "lisbon", "stale_epoch")
        clock.move(1.0)
    assert asked == [0.0, 2.0, 6.0, 14.0, 30.0, 62.0, 122.0, 182.0]
    await rooms.acceptance.accept_from_above(sealed(rooms, master, job), 300.0, "central")
    await rooms.reseal.renew(opened, "lisbon", "stale_epoch")
    assert asked[-1] == 200.0


async def test_a_site_whose_certificate_has_ended_says_so_and_issues_nothing(rooms: Rooms, clock: HandClock) -> None:
    clock.move(401 * 86_400.0)
    with pytest.raises(PolicyRefused, match="certificate of this site has ended"):
        await rooms.acceptance.submit(JobRequest(tgt=NAME, fun="test.ping"), "ops")


async def test_another_origin_orders_here_what_was_granted_to_it_and_nothing_else(rooms: Rooms) -> None:
    with pytest.raises(PolicyRefused) as raised:
        await rooms.acceptance.submit(
            JobRequest(tgt=NAME, fun="test.ping"), "ops", ordered=Ordered("salt", a_job().jid)
        )
    assert raised.value.error_id == "policy.not_granted"
    assert "to salt" in str(raised.value.found)
    await rooms.acceptance.submit(JobRequest(tgt=NAME, fun="test.ping"), "ops")
