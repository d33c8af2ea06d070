"""The gateway's end of the rope over a line, or above a disk, that is slower than what waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.peers.ports import Below
from tests.peers.rope import SILENT_SECONDS, PlayedMaster, connected, played_master, uplink_part
from tests.peers.slow_line import slow_line
from tests.peers.waiting import until
from upstream import failover, frames
from upstream.ports import SendStory
from upstream.story_frames import Story
from upstream.uplink import MasterAddress

pytestmark = pytest.mark.timeout(300)

BYTES_PER_SECOND = 250_000
QUICK: dict[str, Any] = {"echo_seconds": 0.6, "master_alive_interval": 2.0}
"""That silence is less than a full batch takes on that line."""


class Teller:
    """Implements ``StoryTeller``: it tells a job for ever."""

    async def tell(self, master: str, active: Callable[[], bool], send: SendStory) -> None:
        while True:
            await send(Story("20260101000000000001", [bytes(1000)]))

    def ask(self, master: str, jid: str, *, anew: bool) -> None:
        pass

    def taken(self, master: str) -> None:
        pass

    def role_changed(self, master: str) -> None:
        pass


async def test_what_a_master_is_told_of_jobs_takes_of_the_same_budget() -> None:
    below = Below()
    async with played_master() as master, uplink_part(below, master.address, stories=Teller(), max_bytes_per_second=1):
        await until(lambda: any(isinstance(frame, Story) for frame in master.heard), what="the first page")
        below.add(b"one")
        echoes = asked(master)
        await until(lambda: asked(master) >= echoes + 3, what="some time")
    assert sum(isinstance(frame, Story) for frame in master.heard) == 1
    assert master.batches() == []


async def test_a_line_on_which_a_full_batch_takes_longer_than_a_master_may_be_silent_is_drained() -> None:
    below = Below()
    below.add(*[bytes(10_000)] * 150)
    async with (
        played_master() as master,
        slow_line(master.address.address, BYTES_PER_SECOND) as near,
        uplink_part(below, MasterAddress(near, master.address.key), **QUICK) as uplink,
    ):
        await until(lambda: not below.items, what="all of it", seconds=120)
        hellos = master.hellos
        below.add(*[bytes(10_000)] * 150)
        await until(lambda: not below.items, what="as much again", seconds=120)
        assert connected(uplink)
        assert master.hellos == hellos, "it knows the line by then"


async def test_an_alarm_passes_what_waits_for_a_slow_line() -> None:
    below = Below()
    below.add(*[bytes(10_000)] * 300, stream="events")
    async with (
        played_master() as master,
        slow_line(master.address.address, BYTES_PER_SECOND) as near,
        uplink_part(below, MasterAddress(near, master.address.key), **QUICK),
    ):
        await until(lambda: len(below.streams["events"]) < 250, what="some of it", seconds=120)
        below.add(b"fire", stream="urgent")
        before = len(below.streams["events"])
        await until(lambda: not below.streams["urgent"], what="the alarm", seconds=120)
        assert before - len(below.streams["events"]) < before / 2, "what is under way, and not all that waits"


async def test_a_gateway_whose_own_disk_is_slow_does_not_take_its_master_for_lost() -> None:
    """While it deals with what a master said it hears nothing, which is no silence of the master's."""
    below = Below()
    async with played_master() as master, uplink_part(below, master.address, **QUICK) as uplink:
        await until(lambda: connected(uplink), what="the link")
        below.taking.clear()
        await master.say(frames.SiteJob(b"one", 300.0), frames.SiteJob(b"two", 300.0))
        echoes = asked(master)
        await until(lambda: asked(master) >= echoes + failover.SILENT_ECHOES + 2, what="more time than a master has")
        below.taking.set()
        await until(lambda: len(below.jobs) == 2, what="both jobs")
        assert (master.hellos, uplink.status()["last_error"]) == (1, "")


async def test_a_gateway_that_is_stuck_with_what_its_master_said_begins_anew() -> None:
    below = Below()
    async with (
        played_master() as master,
        uplink_part(below, master.address, master_alive_interval=SILENT_SECONDS) as uplink,
    ):
        await until(lambda: connected(uplink), what="the link")
        below.taking.clear()
        hellos = master.hellos
        await master.say(frames.SiteJob(b"one", 300.0))
        await until(lambda: master.hellos > hellos, what="another link")


def asked(master: PlayedMaster) -> int:
    """The echoes that came to a master."""
    return sum(isinstance(frame, frames.Echo) for frame in master.heard)
