"""A master, a relay below it and a site behind the relay, without links: a test carries the items, or changes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from device_agent.protocol.links import Parcel
from device_agent.protocol.messages import Item, OutcomeRecord, decode_item, encode
from gateway.checks import relayed
from gateway.checks.finding import Finding
from gateway.devices.site_prover import SiteProver
from gateway.fleet.rehearsed import RehearsedFleet
from gateway.jobs.open_jobs import OpenJob
from gateway.jobs.story_pages import Told
from gateway.rooms import Rooms
from gateway.spool.evidence import ENGAGES_SECONDS
from tests.peers.central import EPOCH, a_master, a_record, issued
from tests.peers.clock import HandClock
from tests.peers.database import look, opened_rooms
from upstream.frames import DeviceRecord, Stream

LEAF, RELAY, TOP = "lisbon", "iberia", "central"
Numbered = list[tuple[int, bytes]]


class Relayed:
    """The three stations of one fleet, and what goes up between them."""

    def __init__(self, leaf: Rooms, relay: Rooms, top: Rooms, clock: HandClock) -> None:
        self.leaf, self.relay, self.top, self.clock = leaf, relay, top, clock
        self.prover = SiteProver(LEAF, leaf.authority)
        self._said = 0
        self._revision = 0
        self._read: dict[Stream, int] = {}

    async def issued(self) -> OpenJob:
        """A job of the top that the relay has."""
        opened = await issued(self.top)
        await self.relay.acceptance.accept_from_above(Parcel(opened.body, ()), 300.0, "tcp://top:1")
        return opened

    async def says(self, *items: Item, stream: Stream = "returns", signs: bool = True) -> Numbered:
        """The site says this to the relay; returns it as the relay passes it on."""
        numbered = [(self._said + place, encode(item)) for place, item in enumerate(items, start=1)]
        self._said += len(items)
        if signs:
            numbered = self.prover.items(EPOCH, stream, numbered)
        await self.relay.inbox.commit(LEAF, EPOCH, stream, numbered)
        passed = await self.passed_on(stream)
        # The relay's own events are of no interest here, its own words about a job are.
        return [each for each in passed if stream == "returns" or decode_item(each[1]).site == LEAF]

    async def passed_on(self, stream: Stream = "returns") -> Numbered:
        """What the relay has to send up and was not read yet."""
        items = await self.relay.spool.read(stream, self._read.get(stream, 0))
        self._read[stream] = items[-1][0] if items else self._read.get(stream, 0)
        return items

    async def arrives(self, items: Numbered, stream: Stream = "returns", epoch: str = "") -> None:
        """This comes to the top from the relay."""
        await self.top.inbox.commit(RELAY, epoch or self.relay.spool.epoch, stream, items)

    async def tells_row(self, device: str, *, signs: bool = True, **changed: object) -> list[DeviceRecord]:
        """The site tells a registry row to the relay; returns it as the relay tells it."""
        self._revision += 1
        rows = [a_record(device, LEAF, self._revision, **changed)]
        before = self.relay.registry.revision
        sent = self.prover.records(EPOCH, rows) if signs else rows
        await self.relay.inbox.commit_records(LEAF, EPOCH, sent)
        return await self.relay.registry.records_after(before)

    async def row_arrives(self, rows: list[DeviceRecord]) -> None:
        """Registry rows come to the top from the relay."""
        await self.top.inbox.commit_records(RELAY, self.relay.spool.epoch, rows)

    async def story(self, jid: str) -> list[bytes]:
        """All that the relay tells of a job when it is asked."""
        told, found = Told(), []
        while True:
            page = await self.relay.stories._pages.next(jid, told)
            assert page is not None
            found += page.items
            if not page.more:
                return found

    async def trusted(self) -> None:
        """The site has proven itself at the top, long enough ago."""
        await self.row_arrives(await self.tells_row("a"))
        self.clock.move(ENGAGES_SECONDS)

    async def look(self, opened: OpenJob) -> None:
        """The top looks at a job, as it does when something of it is due."""
        await self.top.delivery._look_at(opened, self.clock.monotonic())

    def known(self, device: str) -> dict[str, object]:
        """The grains of a device of the site, as the top knows them; empty for an unknown one."""
        found = self.top.registry.known(LEAF, device)
        return dict(found.grains) if found is not None else {}

    def refused(self) -> dict[str, int]:
        """What the top refused on its link to the relay, by reason."""
        return {reason: count for (link, reason), count in self.top.metrics.refusals.items() if link == "uplink"}

    async def finding(self) -> Finding:
        """What ``outstation check`` says at the top of the sites behind relays."""
        (finding,) = await relayed.check(self.top.facts)
        return finding

    def outcome(self, jid: str, device: str) -> tuple[str, str]:
        """The outcome of a device of the site on the top's disk, and why."""
        rows = look(
            self.top.writer._path,
            "SELECT outcome, why FROM outcomes WHERE jid = ? AND site = ? AND device = ?",
            jid,
            LEAF,
            device,
        )
        return rows[0] if rows else ("", "")


def outcomes_in(items: Numbered) -> list[int]:
    """The places of the outcomes among items."""
    return [place for place, (_, body) in enumerate(items) if isinstance(decode_item(body), OutcomeRecord)]


@asynccontextmanager
async def relayed_stations(folder: Path) -> AsyncIterator[Relayed]:
    """The three stations on real files, with a certificate for the site."""
    clock = HandClock()
    fleet = RehearsedFleet(folder / "fleet", clock)
    for name in (TOP, RELAY, LEAF):
        (folder / name).mkdir(parents=True)
    fleet.add_master(TOP, folder / TOP)
    fleet.certify(folder / RELAY, RELAY)
    fleet.certify(folder / LEAF, LEAF)
    async with AsyncExitStack() as stack:
        leaf = await stack.enter_async_context(opened_rooms(folder / LEAF, name=LEAF, clock=clock, masters=True))
        relay = await stack.enter_async_context(a_master(folder / RELAY, LEAF, name=RELAY, clock=clock, masters=True))
        top = await stack.enter_async_context(a_master(folder / TOP, RELAY, name=TOP, clock=clock))
        certificate = leaf.authority.certificate
        assert certificate is not None
        top.authority.anchor.take_site_certificate(certificate.body, clock.wall())
        yield Relayed(leaf, relay, top, clock)
