"""The rooms of a gateway whose masters are stock Salt masters. Wiring only, no behaviour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from device_agent.clock import Clock
from device_agent.parts import Part
from device_agent.protocol.stations import station_device
from gateway.config import StationSettings
from gateway.files.store import ContentStore
from gateway.rooms import Rooms
from gateway.salt.above import SaltAnswers
from gateway.salt.above_files import SaltFiles
from gateway.salt.above_pillar import SaltPillar
from gateway.salt.asked import JobTable
from gateway.salt.book import SaltBook
from gateway.salt.gateway_facts import GatewayFacts
from gateway.salt.gateway_minion import GatewayMinion
from gateway.salt.orders import SaltOrders
from gateway.salt.resource_targets import ResourceTargets
from gateway.salt.resources import Resources
from gateway.salt.sender import SaltSender
from gateway.salt.serials import SaltSerials
from upstream.salt.uplink import SaltUplink


class SaltRooms:
    """Orders come in by them, answers and events go out."""

    def __init__(
        self, rooms: Rooms, settings: StationSettings, store: ContentStore, state_dir: Path, clock: Clock
    ) -> None:
        upstream = settings.upstream
        rules = upstream.rules(settings.name)
        self._masters = upstream.masters
        book = SaltBook(rooms.writer, rooms.reader)
        station = station_device(settings.name)

        def grains() -> dict[str, Any]:
            """What the gateway tells of itself as a target, under its id at the masters."""
            own = rooms.registry.own_device(station)
            return {**(own.grains if own is not None else {}), "id": rules.id}

        facts = GatewayFacts(grains)
        self.sender = SaltSender(
            spool=rooms.spool,
            book=book,
            reader=rooms.reader,
            metrics=rooms.metrics,
            clock=clock,
            gateway=rules.id,
            masters=lambda: self._masters,
            syndic_tags=settings.events.syndic_tags,
        )
        self.orders = SaltOrders(
            site=settings.name,
            acceptance=rooms.acceptance,
            registry=rooms.registry,
            nodegroups=rooms.nodegroups,
            book=book,
            table=JobTable(
                site=settings.name,
                open_jobs=rooms.open_jobs,
                delivery=rooms.delivery,
                audit=rooms.audit,
                book=book,
                sealer=rooms.sealer,
                permission=rooms.permission,
            ),
            audit=rooms.audit,
            spool=rooms.spool,
            writer=rooms.writer,
            sender=self.sender,
            resources=ResourceTargets(rules.id, upstream.resource_rules(), rooms.registry.everything),
            own=GatewayMinion(rules.id, station, facts),
            metrics=rooms.metrics,
            clock=clock,
        )
        files = SaltFiles(state_dir / "salt" / "files", settings.files.max_bytes_per_second, rooms.metrics, clock)
        files.store = store
        self.uplink = SaltUplink(
            rules=rules,
            masters=self._masters,
            keys_dir=state_dir / "salt",
            serials=SaltSerials(rooms.writer, rooms.reader, clock),
            orders=self.orders,
            feed=self.sender,
            refusals=rooms.metrics,
            clock=clock,
            registering=Resources(
                rules=upstream.resource_rules(),
                devices=rooms.registry.everything,
                revision=lambda: rooms.registry.revision,
                marks=state_dir / "salt" / "resources",
                metrics=rooms.metrics,
                clock=clock,
            ),
            facts=facts,
            asked=SaltAnswers(files, SaltPillar(settings.name, grains, clock)).answer,
        )

    def use_masters(self, masters: list[str]) -> None:
        """Use another list from now on; what waits for a master that is not in it goes to the active one."""
        if masters != self._masters:
            self._masters = masters
            self.uplink.replace_masters(masters)
            self.sender.masters_changed()

    def parts(self) -> list[Part]:
        """What looks for news before the links that tell it."""
        return [self.sender, self.uplink]
