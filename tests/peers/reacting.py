"""A station that reacts: rooms on a real file with a reactor, a device that is here, and a link that keeps its jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec

from device_agent.protocol.messages import Hello, Job, decode_job
from device_agent.trust.policy import SitePolicy
from gateway.calls.functions import Function
from gateway.config import StationSettings
from gateway.jobs.seal import Sealer
from gateway.kept_rooms import KeptRooms
from gateway.outlet_rooms import returners_of
from gateway.returners.book import ReturnBook
from gateway.returners.sending import Returners
from gateway.rooms import Rooms
from tests.peers.clock import HandClock
from tests.peers.database import opened_rooms
from tests.peers.office import Link, OpenSealer, policy_of
from tests.peers.waiting import until

SECONDS = 60.0


class Reacting:
    """The rooms, and what is asked of them."""

    def __init__(self, rooms: Rooms, kept: KeptRooms, clock: HandClock) -> None:
        self.rooms = rooms
        self.clock = clock
        self.kept = kept

    async def fire(self, tag: str, **data: Any) -> None:
        """An event of this station."""
        await self.rooms.bus.accept([self.rooms.bus.event(tag, data)])

    async def jobs(self) -> list[Job]:
        """Every job there is, the oldest first."""
        return [decode_job(body) for (body,) in await self.rooms.reader.rows("SELECT body FROM jobs ORDER BY jid")]

    async def jobs_are(self, count: int) -> list[Job]:
        """Wait until there are so many."""

        async def there() -> bool:
            return len(await self.jobs()) >= count

        await until(there, SECONDS, f"{count} jobs")
        return await self.jobs()

    async def event(self, tag: str, state: str = "rendered") -> dict[str, Any]:
        """Wait until an event with this tag is in a state and nothing of it waits; what is told of it."""

        async def there() -> dict[str, Any]:
            for matched in await self.kept.explain._book.newest(tag, 1):
                told: dict[str, Any] = (await self.kept.explain.why(str(matched.id)))["events"][0]
                if told["state"] == state and all(each["state"] != "waiting" for each in told["reactions"]):
                    return told
            return {}

        found: dict[str, Any] = await until(there, SECONDS, f"{tag} is {state}")
        return found

    def counted(self, name: str) -> int:
        """A counter of the station."""
        return self.rooms.metrics.counters[name]


@asynccontextmanager
async def reacting(
    folder: Path,
    reactor: Any,
    *,
    policy: str = "",
    draining: bool = False,
    before: Sequence[Function] = (),
    clock: HandClock | None = None,
    grants: SitePolicy | None = None,
    joined: bool = True,
    **settings: Any,
) -> AsyncIterator[Reacting]:
    """A station with these rules, for as long as the block lasts; in the same folder it goes on where it was.

    ``before`` are runners that it has beside its own when it opens. With ``grants``, or not ``joined``, jobs are signed
    and sealed as the certificate of the site allows; otherwise everything is allowed.
    """
    told = msgspec.convert({"name": "lisbon", "reactor": reactor, **settings}, StationSettings)
    state, clock = folder / "state", clock or HandClock()
    failure: BaseException | None = None
    async with AsyncExitStack() as stack:
        try:
            rooms = await stack.enter_async_context(
                opened_rooms(
                    state, name="lisbon", clock=clock, masters=True, working=True, grants=grants, joined=joined
                )
            )
            if joined and grants is None:
                for room in (rooms.acceptance, rooms.delivery, rooms.branches):
                    room._sealer = cast("Sealer", OpenSealer(clock))
            if policy:
                rooms.policies.policy = policy_of(folder, policy)
            rooms.acceptance.draining = draining
            rooms.downlinks["mqtt"] = Link()
            kept = KeptRooms(rooms, told, state, clock)
            kept.own.functions.add("runner", before)
            # What is to be returned is put down; nobody sends it.
            rooms.acceptance.returning = Returners(
                returners_of(told, kept.renderer),
                book=ReturnBook(writer=rooms.writer, reader=rooms.reader, clock=clock),
                limits=told.returner_limits,
                bus=rooms.bus,
                clock=clock,
            ).wanted
            rooms.registry.hello("mqtt", "cam-1", Hello("0" * 16, "0", {}))
            for part in (kept.files, kept.renderer, kept.own.calls, kept.reactor):
                await stack.enter_async_context(part)
            yield Reacting(rooms, kept, clock)
        except Exception as error:  # noqa: BLE001 - raised below, out of the groups of a dozen parts
            failure = error
    if failure is not None:
        raise failure


def written(folder: Path, files: Mapping[str, str]) -> Path:
    """A folder with these files."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
