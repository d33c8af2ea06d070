"""A master's rooms on a real file, and all that its sites can say, as a test says it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from device_agent.protocol.messages import Close, Event, Item, OutcomeRecord, encode_value
from device_agent.protocol.outcomes import Outcome
from gateway.jobs.accept import JobRequest
from gateway.jobs.expect import pages
from gateway.jobs.open_jobs import OpenJob
from gateway.rooms import Rooms
from tests.peers.clock import STARTED_WALL, HandClock
from tests.peers.database import look, opened_rooms
from upstream.frames import DeviceRecord

EPOCH, OTHER_EPOCH = "0123456789abcdef", "fedcba9876543210"


def an_event(number: int, size: int = 0) -> Event:
    return Event(tag=f"test/{number}", data={"x": "y" * size}, stamp=1.0, site="lisbon")


@asynccontextmanager
async def a_master(
    folder: Path, *sites: str, name: str = "central", clock: HandClock | None = None, masters: bool = False
) -> AsyncIterator[Rooms]:
    """The rooms of a master that has accepted these sites, by keys that no test looks at."""
    async with opened_rooms(folder, name=name, clock=clock or HandClock(), masters=masters) as rooms:
        for number, site in enumerate(sites):
            key = f"{number:040d}"
            if not rooms.site_keys.known(key):
                await rooms.site_keys.judge(site, key, "192.0.2.1")
                await rooms.site_keys.accept(site, None)
        yield rooms


async def issued(rooms: Rooms, **changed: Any) -> OpenJob:
    """A job of this station's own that its sites have been sent."""
    request = {"tgt": "*", "fun": "test.ping", **changed}
    jid = await rooms.acceptance.submit(JobRequest(**request), "ops")
    opened = rooms.open_jobs.get(jid)
    assert opened is not None
    return opened


def record(jid: str, device: str, outcome: Outcome = Outcome.OK, **changed: Any) -> OutcomeRecord:
    given: dict[str, Any] = {"site": "lisbon", "fun": "test.ping", "ended": STARTED_WALL, **changed}
    return OutcomeRecord(jid=jid, id=device, outcome=outcome, **given)


def answer(jid: str, *devices: str, site: str = "lisbon") -> list[Item]:
    """All that a site says of a job that is ok everywhere."""
    return [
        *pages(jid, site, list(devices), 1, final=True),
        *(record(jid, device, site=site) for device in devices),
        Close(jid=jid, site=site, counts={"ok": len(devices)}),
    ]


def outcomes(rooms: Rooms, jid: str) -> dict[tuple[str, str], str]:
    """The outcomes on disk by site and device."""
    rows = look(rooms.writer._path, "SELECT site, device, outcome FROM outcomes WHERE jid = ?", jid)
    found = {(site, device): outcome for site, device, outcome in rows}
    assert len(found) == len(rows)
    return found


def a_record(device: str, site: str, revision: int, **changed: Any) -> DeviceRecord:
    given: dict[str, Any] = {
        "link": "mqtt",
        "agent": "0.1.0",
        "grains": encode_value({"site": site}),
        "present": True,
        "first_seen": 1.0,
        "last_seen": 2.0,
        **changed,
    }
    return DeviceRecord(id=device, site=site, revision=revision, **given)
