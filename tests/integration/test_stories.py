"""Jobs told out of a gateway's tables to a master that the spool did not bring them: whole, once, and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from device_agent.protocol import limits
from device_agent.protocol.links import Parcel
from device_agent.protocol.messages import (
    Close,
    Hello,
    JobDefinition,
    Manifest,
    OutcomeRecord,
    Return,
    decode_item,
    encode,
)
from gateway.jobs.record import outcome_statement
from gateway.jobs.story_pages import PAGE_BYTES, Told
from gateway.rooms import Rooms
from tests.peers.central import record
from tests.peers.database import a_job, look, opened_rooms, spooled
from tests.peers.waiting import until
from upstream.story_frames import STORIES_IN_FLIGHT, Story, UnknownJob

MASTER = "north"
NAMES = ["a", "b", "c"]


@dataclass
class Heard:
    """What a gateway says on one link. It is taken at once while ``takes`` is set."""

    rooms: Rooms
    active: bool = False
    takes: bool = True
    frames: list[Story | UnknownJob] = field(default_factory=list)

    async def send(self, frame: Story | UnknownJob) -> None:
        self.frames.append(frame)
        if self.takes:
            self.rooms.stories.taken(MASTER)

    def items(self, jid: str) -> list[object]:
        """All that was told of a job, in order."""
        told = [frame for frame in self.frames if isinstance(frame, Story) and frame.jid == jid]
        return [decode_item(body) for frame in told for body in frame.items]

    def finals(self, jid: str) -> int:
        """How often its story came to an end."""
        return sum(isinstance(frame, Story) and frame.jid == jid and frame.final for frame in self.frames)


@asynccontextmanager
async def linked(rooms: Rooms, *, active: bool = False) -> AsyncIterator[Heard]:
    """A connection to a master, as the rope holds it."""
    heard = Heard(rooms, active)
    async with asyncio.TaskGroup() as group:
        telling = group.create_task(rooms.stories.tell(MASTER, lambda: heard.active, heard.send))
        # It is there when it has begun to wait.
        await until(lambda: MASTER in rooms.stories._links, what="the link")
        yield heard
        telling.cancel()


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Rooms]:
    """A gateway with three devices, whose jobs have issuers that no device is asked to believe."""
    async with opened_rooms(tmp_path / "lisbon", masters=True, working=True) as rooms:
        for name in NAMES:
            rooms.registry.hello("mqtt", name, Hello("0" * 16, "1", {"id": name}))
        yield rooms


async def given(gateway: Rooms, number: int = 0, master: str = MASTER, **changed: object) -> str:
    """A job that this master gave the gateway."""
    now = gateway.sealer.now()
    job = a_job(number, issued=now, expires=now + 300, **changed)
    await gateway.acceptance.accept_from_above(Parcel(encode(job), ()), 300.0, master)
    return job.jid


async def returned(gateway: Rooms, jid: str, *names: str) -> None:
    for name in names:
        message = Return(jid=jid, fun="test.ping", outcome="ok", retcode=0, value=True, executions=1)
        await gateway.collection.returned(name, message, 10)
    await gateway.collection.drain()


async def test_a_job_is_told_as_the_spool_told_it(gateway: Rooms) -> None:
    jid = await given(gateway, master="another")
    await returned(gateway, jid, *NAMES)
    await until(lambda: gateway.open_jobs.get(jid) is None, what="the close")
    async with linked(gateway) as heard:
        gateway.stories.ask(MASTER, jid, anew=True)
        await until(lambda: heard.finals(jid) == 1, what="the end of the story")
    told = heard.items(jid)
    said = [item for item in await spooled(gateway) if isinstance(item, (JobDefinition, OutcomeRecord, Close))]
    assert [item for item in told if not isinstance(item, Manifest)] == said
    assert [(item.ids, item.final) for item in told if isinstance(item, Manifest)] == [(NAMES, True)]
    assert isinstance(told[0], JobDefinition)
    assert isinstance(told[-1], Close)


async def test_a_standby_that_gave_a_job_is_told_on_until_its_close_without_asking(gateway: Rooms) -> None:
    async with linked(gateway) as heard:
        jid = await given(gateway)
        await until(lambda: len(heard.items(jid)) == 2, what="the definition and who answers")
        await returned(gateway, jid, "a")
        await until(lambda: len(heard.items(jid)) == 3, what="the first outcome")
        await returned(gateway, jid, "b", "c")
        await until(lambda: heard.finals(jid) == 1, what="the end of the story")
        assert [type(item).__name__ for item in heard.items(jid)[2:]] == ["OutcomeRecord"] * 3 + ["Close"]


async def test_the_active_master_is_told_what_it_asks_for_and_the_rest_by_the_spool(gateway: Rooms) -> None:
    async with linked(gateway, active=True) as heard:
        jid, other = await given(gateway), await given(gateway, 1)
        await returned(gateway, jid, "a")
        gateway.stories.ask(MASTER, jid, anew=True)
        await until(lambda: len(heard.items(jid)) == 3, what="the story so far")
        gateway.stories.ask(MASTER, other, anew=False)
        await returned(gateway, jid, "b", "c")
        await until(lambda: gateway.open_jobs.get(jid) is None, what="the close")
        # It has missed some of it on the way: asked again, the gateway tells the rest.
        gateway.stories.ask(MASTER, jid, anew=False)
        await until(lambda: heard.finals(jid) == 1, what="the end of the story")
        assert heard.items(other) == []
        # From the moment in which the spool goes elsewhere it is told the job that it asked for.
        heard.active = False
        gateway.stories.role_changed(MASTER)
        await until(lambda: len(heard.items(other)) == 2, what="the other job")


async def test_a_second_master_that_offers_the_same_job_is_told_of_it_and_it_runs_once(gateway: Rooms) -> None:
    jid = await given(gateway, master="another")
    await returned(gateway, jid, *NAMES)
    await until(lambda: gateway.open_jobs.get(jid) is None, what="the close")
    async with linked(gateway, active=True) as heard:
        body = look(gateway.writer._path, "SELECT body FROM jobs WHERE jid = ?", jid)[0][0]
        await gateway.acceptance.accept_from_above(Parcel(body, ()), 300.0, MASTER)
        await until(lambda: heard.finals(jid) == 1, what="the end of the story")
        # Another job under the same jid is refused, and nothing is told of the one that has it.
        await given(gateway, fun="test.echo")
        assert gateway.metrics.peers["uplink", "definition_mismatch", MASTER] == 1
    assert heard.finals(jid) == 1
    assert len(look(gateway.writer._path, "SELECT * FROM outcomes")) == len(NAMES)


async def test_a_job_that_is_not_known_is_said_to_be(gateway: Rooms) -> None:
    async with linked(gateway) as heard:
        gateway.stories.ask(MASTER, "20200101000000000000", anew=False)
        await until(lambda: heard.frames, what="the answer")
    assert heard.frames == [UnknownJob("20200101000000000000")]


async def test_a_master_that_takes_nothing_is_sent_no_more_than_may_be_under_way(gateway: Rooms) -> None:
    jids = [await given(gateway, number, master="another") for number in range(2 * STORIES_IN_FLIGHT)]
    async with linked(gateway) as heard:
        heard.takes = False
        for jid in jids:
            gateway.stories.ask(MASTER, jid, anew=True)
        await until(lambda: len(heard.frames) == STORIES_IN_FLIGHT, what="as many as may be under way")
        gateway.stories.taken(MASTER)
        await until(lambda: len(heard.frames) > STORIES_IN_FLIGHT, what="one more")
        assert len(heard.frames) == STORIES_IN_FLIGHT + 1


async def test_a_job_of_twenty_thousand_outcomes_is_told_in_pages(gateway: Rooms) -> None:
    jid = await given(gateway, master="another", tgt="nobody")
    names = [f"cam-{number:05d}" for number in range(limits.DEVICES_PER_STATION)]
    values = [record(jid, name, value="x" * (200_000 if place < 20 else 50)) for place, name in enumerate(names)]
    await gateway.writer.commit([outcome_statement(values, "")])
    told, heard = Told(), 0
    while True:
        page = await gateway.stories._pages.next(jid, told)
        assert page is not None
        assert len(page.items) <= limits.BATCH_ITEMS
        assert sum(map(len, page.items)) <= PAGE_BYTES + limits.MESSAGE_BYTES
        heard += sum(isinstance(decode_item(body), OutcomeRecord) for body in page.items)
        if page.final:
            break
    assert heard == len(names)
    (plan,) = look(
        gateway.writer._path,
        "EXPLAIN QUERY PLAN SELECT id FROM outcomes WHERE jid = ? AND id > ? AND id <= ? ORDER BY id LIMIT 9",
        jid,
        1,
        2,
    )
    assert "outcomes_jid (jid=? AND rowid>? AND rowid<?)" in plan[3]


# --- a master ------------------------------------------------------------------------------------------------------
