"""A gateway below a Salt master, without the link: what is ordered goes through the real ``SaltOrders``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from device_agent.protocol.messages import Hello, OutcomeRecord, decode_item
from device_agent.trust.policy import SitePolicy
from gateway.fleet.rehearsed import RehearsedFleet
from gateway.jobs.open_jobs import OpenJob, Waiting
from gateway.rooms import Rooms
from gateway.salt.asked import JobTable
from gateway.salt.book import SaltBook
from gateway.salt.gateway_facts import GatewayFacts
from gateway.salt.gateway_minion import GatewayMinion
from gateway.salt.kept import KeptOrders
from gateway.salt.orders import SaltOrders
from gateway.salt.resource_inventory import ResourceRules
from gateway.salt.resource_targets import ResourceTargets
from tests.peers.clock import HandClock
from tests.peers.database import FIRST_JID, opened_rooms
from upstream.salt.ports import DeviceAnswer, ReturnsOfJob

MASTER = "192.0.2.9"
OTHER = "192.0.2.10"
JID = str(FIRST_JID)
GATEWAY = "gw-1"


class Told:
    """What was told at once."""

    def __init__(self) -> None:
        self.announced: list[tuple[str, str, list[str]]] = []
        self.entries: list[ReturnsOfJob] = []

    def announce(self, master: str, jid: str, ids: Sequence[str]) -> None:
        self.announced.append((master, jid, list(ids)))

    def tell(self, master: str, entry: ReturnsOfJob) -> None:
        assert master in (MASTER, OTHER)
        self.entries.append(entry)

    def values(self) -> dict[str, Any]:
        """What was told of the devices."""
        found = {device: answer.value for entry in self.entries for device, answer in entry.answers.items()}
        return {device: value for device, value in found.items() if device != GATEWAY}

    def own(self) -> list[tuple[str, DeviceAnswer]]:
        """What was told of the gateway's own id, with the jids."""
        return [(entry.jid, entry.answers[GATEWAY]) for entry in self.entries if GATEWAY in entry.answers]


class Gate:
    """A gateway below a Salt master, without the link."""

    def __init__(
        self,
        rooms: Rooms,
        clock: HandClock,
        kept: KeptOrders | None = None,
        resources: ResourceRules | None = None,
    ) -> None:
        self.rooms, self.told = rooms, Told()
        self.grains: dict[str, Any] = {"id": GATEWAY, "os": "Alpine", "ipv4": ["192.0.2.1"]}
        self.facts = GatewayFacts(lambda: self.grains)
        self.book = SaltBook(rooms.writer, rooms.reader, kept)
        table = JobTable(
            site="lisbon",
            open_jobs=rooms.open_jobs,
            delivery=rooms.delivery,
            audit=rooms.audit,
            book=self.book,
            sealer=rooms.sealer,
            permission=rooms.permission,
        )
        self.orders = SaltOrders(
            site="lisbon",
            acceptance=rooms.acceptance,
            registry=rooms.registry,
            nodegroups=rooms.nodegroups,
            book=self.book,
            table=table,
            audit=rooms.audit,
            spool=rooms.spool,
            writer=rooms.writer,
            sender=self.told,
            resources=ResourceTargets(GATEWAY, resources, rooms.registry.everything),
            own=GatewayMinion(GATEWAY, "lisbon-station", self.facts),
            metrics=rooms.metrics,
            clock=clock,
        )

    def hello(self, *names: str) -> None:
        for name in names:
            self.rooms.registry.hello("mqtt", name, Hello("0" * 16, "1", {"id": name, "os": "Debian"}))

    def job(self) -> OpenJob:
        """The one that was ordered."""
        job = self.rooms.open_jobs.get(JID)
        assert job is not None
        return job

    def waiting(self, device: str) -> Waiting:
        return self.job().waiting[device]

    def cancelled(self) -> bool:
        return self.job().cancelled

    async def outcomes(self) -> dict[str, OutcomeRecord]:
        """The answers that wait in the spool."""
        items = [decode_item(body) for _, body in await self.rooms.spool.read("returns", 0)]
        return {item.id: item for item in items if isinstance(item, OutcomeRecord)}

    async def audited(self) -> list[tuple[str, str, str, str]]:
        return list(await self.rooms.reader.rows("SELECT user, door, action, verdict FROM audit ORDER BY id"))


@asynccontextmanager
async def opened(
    folder: Path, clock: HandClock, *granted: str, resources: ResourceRules | None = None, **most: int
) -> AsyncIterator[Gate]:
    """``most``: how much of what a master ordered is kept, as ``KeptOrders`` has it."""
    if not (folder / "root-lists").exists():
        policy = SitePolicy(org={"salt": granted} if granted else {})
        RehearsedFleet(folder / "fleet", clock).certify(folder, "lisbon", policy)
    async with opened_rooms(folder, clock=clock, masters=True) as rooms:
        yield Gate(rooms, clock, KeptOrders(rooms.writer, rooms.reader, **most), resources)
