"""Our side of ``bench spool``: a gateway's end and a master's end, each in a process of its own.

They are made of the rooms and the parts that a station is made of: bus, spool, store, uplink, sites, inbox. Only what
has no part in it is left out: devices, jobs, the API, and the certificates by which two ends come to know each other.

Lines of JSON on standard input ask, and lines of JSON on standard output answer, as with ``trust_product``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, cast

import uvloop

from device_agent.clock import Clock
from device_agent.errors import OutstationError
from device_agent.parts import leaves
from device_agent.protocol.messages import encode, encode_value
from gateway.bench.spool_tenths import tenths
from gateway.config import MasterEntry, SpoolSettings, StationSettings
from gateway.fleet.rehearsed import RehearsedFleet
from gateway.rooms import Rooms
from gateway.spool.queue import Spool
from gateway.store.space import LOG_BYTES, WORTH_PAGES, WORTH_PART
from upstream.curve import load_or_make
from upstream.frames import Stream
from upstream.ports import Outgoing
from upstream.sites import Sites
from upstream.uplink import Uplink

MASTER = "central"
SITE = "bench"
STREAM: Stream = "events"
BUDGET_MEGABYTES = 1_000_000
ECHO_SECONDS = 5.0
LOOKS = 500
"""Looks at the counters. The quickest tenth counts: the others met something else that the machine does."""
SHRINK_SECONDS = 120.0
LOOK_SECONDS = 0.05


class Counted:
    """The spool on its way to the uplink; when it was first read, and what was let go when."""

    def __init__(self, spool: Spool, items: int) -> None:
        self._spool = spool
        self._items = items
        self.begun = 0.0
        self.marks: list[tuple[float, int]] = []
        self.emptied = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spool, name)

    async def read(self, stream: Stream, after: int, most_bytes: int) -> list[tuple[int, bytes]]:
        """The first one is the beginning."""
        self.begun = self.begun or time.perf_counter()
        return await self._spool.read(stream, after, most_bytes)

    async def confirm(self, stream: Stream, sequence: int, master: str) -> None:
        """Deleted, and on disk, when this returns."""
        await self._spool.confirm(stream, sequence, master)
        self.marks.append((time.perf_counter(), sequence))
        if sequence >= self._items:
            self.emptied.set()


class Gateway:
    """A gateway's end."""

    def __init__(self, stack: contextlib.AsyncExitStack) -> None:
        self._stack = stack
        self._rooms: Rooms
        self._path: Path
        self._accepted = 0

    async def open(self, folder: str, address: str, key: str) -> Mapping[str, Any]:
        """Its rooms, with a master to spool for."""
        state = Path(folder) / SITE
        settings = StationSettings(
            name=SITE,
            masters=[MasterEntry(address=address, key=key)],
            spool=SpoolSettings(events_megabytes=BUDGET_MEGABYTES),
        )
        self._path = state / "station.sqlite"
        self._rooms = Rooms("gateway", settings, state, Clock())
        for part in self._rooms.parts_before_recovery():
            await self._stack.enter_async_context(part)
        event = self._rooms.bus.event(*_said(0, 0))
        return {"tag": len(event.tag), "data": len(encode_value(event.data)), "body": len(encode(event))}

    async def accept(self, count: int, producers: int, together: int) -> Mapping[str, Any]:
        """So many events by so many who each say some together, and wait for their commit before they say the next."""
        numbers = iter(range(count))
        bus, writer = self._rooms.bus, self._rooms.writer
        commits = writer.commits

        async def produce(producer: int) -> None:
            while said := [bus.event(*_said(producer, number)) for number in islice(numbers, together)]:
                await bus.fire(said)

        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for producer in range(producers):
                group.create_task(produce(producer))
        seconds = time.perf_counter() - begun
        self._accepted += count
        pending = await self._rooms.spool.pending()
        return {
            "ok": count if pending == self._accepted else pending,
            "seconds": seconds,
            "commits": writer.commits - commits,
            "bytes": _size(self._path),
        }

    async def status(self) -> Mapping[str, Any]:
        """How long the counters take to be read."""
        took = []
        for _ in range(LOOKS):
            begun = time.perf_counter()
            await self._rooms.spool.entries()
            took.append(time.perf_counter() - begun)
        return {"ok": await self._rooms.spool.pending(), "seconds": sorted(took)[LOOKS // 10]}

    async def drain(self) -> Mapping[str, Any]:
        """Everything that waits goes up: until the last item is confirmed and deleted; then until the file is small."""
        counted = Counted(self._rooms.spool, self._accepted)
        before = _size(self._path)
        uplink = Uplink(
            site=SITE,
            keys=self._rooms.keys,
            masters=self._rooms.masters(),
            echo_seconds=ECHO_SECONDS,
            outgoing=cast("Outgoing", counted),
            roll=self._rooms.registry,
            intake=self._rooms.intake,
            refusals=self._rooms.metrics,
            clock=Clock(),
        )
        async with uplink:
            await counted.emptied.wait()
        pending = await self._rooms.spool.pending()
        ended = counted.marks[-1][0]
        await self._settle()
        return {
            "ok": self._accepted - pending,
            "seconds": ended - counted.begun,
            "tenths": tenths(counted.begun, counted.marks, self._accepted),
            "bytes_before": before,
            "bytes_after": _size(self._path),
        }

    async def _settle(self) -> None:
        """Wait until the store has given back what it is going to; not for ever."""
        for _ in range(int(SHRINK_SECONDS / LOOK_SECONDS)):
            names = ("freelist_count", "page_count", "page_size")
            free, pages, each = [(await self._rooms.reader.rows(f"PRAGMA {name}"))[0][0] for name in names]
            if free <= max(WORTH_PAGES, pages // WORTH_PART) and _size(self._path) <= pages * each + LOG_BYTES:
                return
            await asyncio.sleep(LOOK_SECONDS)


class Master:
    """A master's end."""

    def __init__(self, stack: contextlib.AsyncExitStack) -> None:
        self._stack = stack
        self._rooms: Rooms

    async def open(self, folder: str) -> Mapping[str, Any]:
        """Its rooms and its door, which lets in the one site."""
        below, above = Path(folder) / SITE, Path(folder) / MASTER
        fleet = RehearsedFleet(Path(folder) / "fleet")
        fleet.add_master(MASTER, above)
        fleet.certify(below, SITE)
        rooms = self._rooms = Rooms("master", StationSettings(name=MASTER), above, Clock())
        for part in rooms.parts_before_recovery():
            await self._stack.enter_async_context(part)
        await rooms.site_keys.judge(SITE, load_or_make(below / "curve.key").public, "127.0.0.1")
        await rooms.site_keys.accept(SITE, None)
        sites = Sites(
            station=MASTER,
            listen="tcp://127.0.0.1:*",
            keys=rooms.keys,
            admission=rooms.site_keys,
            inbox=rooms.inbox,
            watch=rooms.site_book,
            refusals=rooms.metrics,
            clock=Clock(),
        )
        await self._stack.enter_async_context(sites)
        return {"address": sites.address, "key": rooms.keys.public}

    async def count(self) -> Mapping[str, Any]:
        """What is on its disk, by its own count."""
        await self._rooms.writer.drain()
        rows = await self._rooms.reader.rows("SELECT received, refused FROM site_received WHERE class = 'events'")
        ((position,),) = await self._rooms.reader.rows(
            "SELECT coalesce(max(sequence), 0) FROM site_positions WHERE stream = ?", (STREAM,)
        )
        received = sum(came - refused for came, refused in rows)
        return {"ok": received if received == position else min(received, position)}


def _said(producer: int, number: int) -> tuple[str, dict[str, object]]:
    """An event of a beacon, as a device says it: tag and data."""
    name = f"cam-{producer:04d}"
    return f"salt/beacon/{name}/temperature/", {"id": name, "celsius": 41.5, "limit": 70, "number": number}


def _size(path: Path) -> int:
    """Of a store and its log."""
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


async def run(role: str) -> None:
    """Talk to whoever started this until its lines end."""
    async with contextlib.AsyncExitStack() as stack:
        end = Gateway(stack) if role == "gateway" else Master(stack)
        while line := await asyncio.to_thread(sys.stdin.readline):
            asked = json.loads(line)
            answer = await getattr(end, asked.pop("do"))(**asked)
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


def main() -> int:
    """The program; returns the exit status."""
    # It ends when its lines end; Ctrl-C is for whoever started it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        uvloop.run(run(sys.argv[1]))
    except (OutstationError, BaseExceptionGroup) as error:
        sys.stdout.write(json.dumps({"error": "; ".join(str(leaf) for leaf in leaves(error))}) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
