"""What a Salt master must hear at once: no announcement waits behind answers, and what is not told is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gateway.salt import line
from gateway.salt.pace import CHUNK
from tests.peers.database import FIRST_JID
from tests.peers.salt_above import SaltAboveDouble
from tests.peers.salt_sending import ONE, Sending
from tests.peers.salt_sockets import PlayedMaster
from tests.peers.salt_uplink_bed import SaltBed
from tests.peers.waiting import until
from upstream.salt.channel import CONNECTIONS
from upstream.salt.ports import DeviceAnswer, ReturnsOfJob

MORE = str(FIRST_JID + 77)
DROPPED = "salt_prompt_dropped"
Prompt = Callable[[Sending, int], None]


class Deliberate(SaltAboveDouble):
    """Announcements as well are on their way until ``free`` is set."""

    async def announce(self, jid: str, ids: Sequence[str]) -> None:
        await super().announce(jid, ids)
        await self.free.wait()


def busy(number: int) -> ReturnsOfJob:
    """An answer to a probe, which nobody needs later."""
    return ReturnsOfJob(str(FIRST_JID + number), "saltutil.find_job", {"cam-1": DeviceAnswer({})})


async def test_an_announcement_waits_neither_for_answers_nor_for_what_waits_behind_them(
    gate: Sending, tmp_path: Path
) -> None:
    names = [f"cam-{number:04}" for number in range(CONNECTIONS * CHUNK)]
    bed = SaltBed(tmp_path)
    async with PlayedMaster() as master:
        await gate.answered(await gate.ordered(1, master.address), *names)
        stored = master.slow["_syndic_return"] = asyncio.Event()
        async with bed.uplink(master, feed=gate.sender):
            await until(lambda: master.asked["_syndic_return"] == CONNECTIONS, what="answers on every connection")
            gate.sender.tell(master.address, busy(2))
            gate.sender.announce(master.address, MORE, ["cam-2"])

            def announced() -> list[str]:
                told = [load for load in master.loads if load["cmd"] == "_minion_event" and "events" in load]
                return [event["tag"] for load in told for event in load["events"]]

            await until(lambda: MORE in announced(), what="the announcement")
            assert master.asked["_syndic_return"] == CONNECTIONS, "the answers are not stored yet"
            stored.set()
            await until(gate.emptied)
            await until(lambda: master.loads[-1]["load"][0]["fun"] == "saltutil.find_job", what="the answer to a probe")
        assert bed.refusals.reasons == {}
    assert announced().count(MORE) == 1
    assert gate.rooms.metrics.counters[DROPPED] == 0


PROMPTS: dict[str, Prompt] = {
    "announcements": lambda gate, number: gate.sender.announce(ONE, str(FIRST_JID + number), ["cam-1"]),
    "answers": lambda gate, number: gate.sender.tell(ONE, busy(number)),
}


def told(one: SaltAboveDouble, kind: str) -> list[str]:
    return [jid for jid, _ in one.announced] if kind == "announcements" else [entry.jid for entry in one.told]


@pytest.mark.parametrize("kind", PROMPTS)
async def test_what_finds_no_room_is_dropped_and_counted_and_the_rest_is_told_in_its_order(
    gate: Sending, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "PROMPT", 3)
    one = Deliberate()
    one.free.clear()
    async with one.linked(gate.sender, ONE):
        await until(lambda: ONE in gate.sender._lines)
        PROMPTS[kind](gate, 0)
        await until(lambda: told(one, kind), what="the first on its way")
        for number in range(1, 6):
            PROMPTS[kind](gate, number)
        assert gate.rooms.metrics.counters[DROPPED] == 2
        one.free.set()
        await until(lambda: len(told(one, kind)) == 4)
    assert told(one, kind) == [str(FIRST_JID + number) for number in range(4)]
    assert gate.rooms.metrics.counters[DROPPED] == 2


@pytest.mark.parametrize("kind", PROMPTS)
async def test_what_still_waits_when_the_link_ends_is_counted_as_dropped(gate: Sending, kind: str) -> None:
    one = Deliberate()
    one.free.clear()
    async with one.linked(gate.sender, ONE):
        await until(lambda: ONE in gate.sender._lines)
        PROMPTS[kind](gate, 0)
        await until(lambda: told(one, kind), what="the first on its way")
        for number in range(1, 6):
            PROMPTS[kind](gate, number)
        assert gate.rooms.metrics.counters[DROPPED] == 0
    await until(lambda: ONE not in gate.sender._lines)
    assert gate.rooms.metrics.counters[DROPPED] == 5, "the one on its way was told, as far as anybody knows"


async def test_a_master_that_did_not_answer_is_told_nothing_more_and_what_was_for_it_is_counted(gate: Sending) -> None:
    await gate.answered(await gate.ordered(1, ONE), "cam-1")
    one = SaltAboveDouble()
    one.free.clear()
    async with asyncio.TaskGroup() as group:
        group.create_task(gate.not_answered(one))
        await until(lambda: one.told)
        one.unannounced = True
        gate.sender.announce(ONE, MORE, ["cam-2"])
        await until(lambda: gate.sender._lines[ONE].leaving, what="the end of that link")
        for prompt in PROMPTS.values():
            prompt(gate, 5)
        assert gate.rooms.metrics.counters[DROPPED] == len(PROMPTS)
        one.free.set()
    assert [jid for jid, _ in one.announced][-1] == MORE
    assert [entry.fun for entry in one.told] == ["test.echo"]
