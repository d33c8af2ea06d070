"""Real SQLite files: a store by itself, and the rooms of a station on one, without any link."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq

from device_agent.clock import Clock
from device_agent.protocol.messages import Item, Job, decode_item, encode
from device_agent.trust.policy import SitePolicy
from gateway.config import MasterEntry, StationSettings
from gateway.fleet.rehearsed import RehearsedFleet
from gateway.jobs.recover import recover
from gateway.rooms import Rooms
from gateway.store.migrate import migrate
from gateway.store.reader import Reader
from gateway.store.writer import Writer
from upstream.frames import STREAMS

PUBLIC_KEY = zmq.curve_keypair()[0].decode("ascii")
FIRST_JID = 20261121031500000000


@dataclass
class Store:
    """An open store."""

    path: Path
    epoch: str
    writer: Writer
    reader: Reader

    def look(self, sql: str, *values: Any) -> list[Any]:
        """Rows, by a connection of the test's own: what anybody finds in the file."""
        return look(self.path, sql, *values)


def look(path: Path, sql: str, *values: Any) -> list[Any]:
    """Rows of a file."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


@asynccontextmanager
async def opened_store(folder: Path) -> AsyncIterator[Store]:
    """The store in a folder, made if there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "station.sqlite"
    epoch = migrate(path)
    async with Writer(path) as writer, Reader(path) as reader:
        yield Store(path, epoch, writer, reader)


@asynccontextmanager
async def opened_rooms(
    folder: Path,
    *,
    name: str = "lisbon",
    clock: Clock | None = None,
    masters: bool = False,
    working: bool = False,
    grants: SitePolicy | None = None,
    joined: bool = True,
) -> AsyncIterator[Rooms]:
    """The rooms of a station, recovered; ``masters`` makes its spool keep, ``working`` delivers and collects too.

    Without masters it is one itself, in a fleet of its own; with them it is a gateway with a certificate, which has
    ``grants``. A gateway that is not ``joined`` has no certificate.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Nobody listens there: these rooms have no links.
    above = [MasterEntry(address="tcp://127.0.0.1:1", key=PUBLIC_KEY)] if masters else []
    clock = clock or Clock()
    if joined and not (folder / "root-lists").exists():
        fleet = RehearsedFleet(folder / "fleet", clock)
        fleet.certify(folder, name, grants) if masters else fleet.add_master(name, folder)
    rooms = Rooms("gateway" if masters else "master", StationSettings(name=name, masters=above), folder, clock)
    async with AsyncExitStack() as stack:
        for part in rooms.parts_before_recovery():
            await stack.enter_async_context(part)
        await recover(rooms.open_jobs, rooms.reader, clock)
        await rooms.doubted.end_past()
        if working:
            for part in rooms.parts_after_recovery():
                await stack.enter_async_context(part)
        yield rooms


def a_job(number: int = 0, **changed: Any) -> Job:
    """A job that anybody could have issued."""
    given: dict[str, Any] = {
        "jid": str(FIRST_JID + number),
        "tgt": "*",
        "fun": "test.ping",
        "user": "ops",
        "issued": 1_795_230_900.0,
        "expires": 1_795_231_200.0,
        **changed,
    }
    return Job(**given)


def encoded(*items: Item, first: int = 1) -> list[tuple[int, bytes]]:
    """Items as a site sends them, numbered from ``first``."""
    return [(first + place, encode(item)) for place, item in enumerate(items)]


async def spooled(rooms: Rooms) -> list[Item]:
    """Everything that waits to go up."""
    return [decode_item(body) for stream in STREAMS for _, body in await rooms.spool.read(stream, 0)]
