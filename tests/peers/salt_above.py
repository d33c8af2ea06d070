"""A Salt master's end of a link, in memory: what it is told, and whether it says that it has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from device_agent.errors import OutstationError
from device_agent.questions import Unanswered
from gateway.salt.sender import SaltSender
from upstream.salt.above import confirmed
from upstream.salt.channel import Channel
from upstream.salt.order import SaltOrder, read_order
from upstream.salt.ports import MasterFeed, NotConfirmed, ReturnsOfJob
from upstream.salt.wire import Packed


class SaltAboveDouble:
    """Implements ``SaltAbove``. ``deaf`` takes what it is told and never answers; ``reply`` is what it answers else.

    While ``free`` is not set, answers and events are on their way.
    """

    def __init__(self) -> None:
        self.announced: list[tuple[str, list[str]]] = []
        self.told: list[ReturnsOfJob] = []
        self.posted: list[tuple[str, Mapping[str, Any]]] = []
        self.deaf = False
        self.unannounced = False
        """Announcements are not answered."""
        self.reply: Any = None
        self.not_taken = ""
        """A message with an event of this tag is not confirmed."""
        self.odd: Any = None
        """A message with an answer that is this is not confirmed, if it is anything."""
        self.odd_arguments: Any = None
        """The same for a message with a job with these arguments."""
        self.refusal: OutstationError = NotConfirmed("the master does not confirm _syndic_return", found="''")
        """What becomes of such a message."""
        self.refused: list[int] = []
        """How many answers each of those had."""
        self.looked_at = 0
        """How often it was asked whether it is there."""
        self.stores = True
        """While it is not set, no answer is confirmed, and events are."""
        self.free = asyncio.Event()
        self.free.set()
        self.pillars: dict[str, dict[str, Any]] = {}
        """What it compiles, by id; for an id that is not there it does not answer."""
        self.pillar_refusal: OutstationError | None = None
        """What it says in the place of a pillar."""
        self.asked_pillars: list[dict[str, Any]] = []
        """The grains with which a pillar was asked for."""

    async def announce(self, jid: str, ids: Sequence[str]) -> None:
        self.announced.append((jid, list(ids)))
        if self.unannounced:
            raise Unanswered("the master does not answer")

    async def returns(self, entries: Sequence[ReturnsOfJob]) -> None:
        values = [answer.value for entry in entries for answer in entry.answers.values()]
        jobs = [entry.load["arg"] for entry in entries if entry.load]
        if not self.stores or (self.odd is not None and self.odd in values) or self.odd_arguments in jobs:
            self.refused.append(len(values))
            await asyncio.sleep(0)
            raise self.refusal
        self.told += entries
        await self._answer()

    async def events(self, events: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        if self.not_taken in {tag for tag, _ in events}:
            raise Unanswered("the master does not confirm _minion_event", found="''", allowed="nil")
        self.posted += events
        await self._answer()

    async def register(self, resources: Mapping[str, Sequence[str]], grains: Mapping[str, Packed]) -> bool:
        raise Unanswered(f"{resources} {grains}")

    async def request(self, cmd: str, fields: Mapping[str, Any], *, patience: float) -> Any:
        if cmd != "_file_envs" or self.deaf:
            raise Unanswered(f"{cmd} {fields} {patience}")
        self.looked_at += 1
        return ["base"]

    async def pillar(self, grains: Mapping[str, Any], *, patience: float, **fields: Any) -> dict[str, Any]:
        self.asked_pillars.append(dict(grains))
        if self.pillar_refusal is not None:
            raise self.pillar_refusal
        if grains["id"] not in self.pillars:
            raise Unanswered(f"{grains} {fields} {patience}")
        return self.pillars[grains["id"]]

    async def _answer(self) -> None:
        # As a message on its way: the others of this link get their turn.
        await asyncio.sleep(0)
        await self.free.wait()
        if self.deaf:
            raise Unanswered("the master does not answer")
        confirmed("what it was told", self.reply)

    def answers(self) -> list[tuple[str, str]]:
        """The answers it was told: jid and device, each as often as it came."""
        return sorted((entry.jid, device) for entry in self.told for device in entry.answers)

    @asynccontextmanager
    async def fed(self, feed: MasterFeed, master: str) -> AsyncIterator[None]:
        """Something tells this master what it has to tell, as long as the block lasts."""
        async with asyncio.TaskGroup() as group:
            running = group.create_task(feed.run(self, master))
            try:
                yield
            finally:
                running.cancel()

    @asynccontextmanager
    async def linked(self, sender: SaltSender, master: str) -> AsyncIterator[SaltAboveDouble]:
        """Connected under this name."""
        async with asyncio.TaskGroup() as group:
            running = group.create_task(sender.run(self, master))
            try:
                yield self
            finally:
                running.cancel()


class ChannelDouble(Channel):
    """Requests that are answered at once: nil, or what ``replies`` has for the command."""

    def __init__(self, replies: Mapping[str, Any]) -> None:
        self.replies = replies
        self.fields: Mapping[str, Any] = {}
        """Those of the newest request."""

    async def request(self, cmd: str, fields: Mapping[str, Any], *, patience: float) -> Any:
        self.fields = fields
        await asyncio.sleep(0)
        return self.replies.get(cmd)


def published(jid: str, fun: str | list[str] = "test.ping", arg: Sequence[Any] = (), **more: Any) -> SaltOrder:
    """A job as a master publishes it, for every device."""
    load = {"jid": jid, "fun": fun, "arg": list(arg), "tgt": "*", "tgt_type": "glob", "user": "root", "ret": "", **more}
    return read_order(load)
