"""What a site has beside what every station has: its broker, and whom its devices believe and are believed by.

Wiring only, no behaviour, like ``rooms``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from device_agent.clock import Clock
from device_agent.host_port import host_port
from device_agent.own import Custom, NoCustom
from device_agent.parts import Part
from gateway.answers import Answers
from gateway.broker.embedded import EmbeddedBroker
from gateway.broker.external import ExternalBroker
from gateway.broker.mosquitto import Mosquitto
from gateway.broker.part import BrokerPart
from gateway.broker.ruled import RuledBroker
from gateway.broker.service import ServiceBroker
from gateway.broker.start import RUNTIME, SETTINGS
from gateway.config import BrokerSettings, SshSettings
from gateway.devices.client_addresses import ClientAddresses
from gateway.devices.clock_watch import ClockWatch
from gateway.devices.enrollment import Enrollment
from gateway.devices.enrollment_ports import Entrance
from gateway.devices.key_changes import KeyChanges
from gateway.devices.openings import Openings
from gateway.devices.prekeys import Prekeys
from gateway.devices.recertify import Recertification
from gateway.devices.revocation import Revocation
from gateway.devices.sessions import Sessions
from gateway.devices.ssh_book import SshBook
from gateway.downlinks.mqtt import MqttDownlink
from gateway.downlinks.ssh import SshDownlink
from gateway.downlinks.ssh_host import SshHost
from gateway.downlinks.ssh_journal import SshJournals
from gateway.downlinks.ssh_starts import SshStarts
from gateway.rooms import Rooms

ANYWHERE = "0.0.0.0"  # noqa: S104 - the devices of a site are on its network, and what travels is sealed
HERE = "127.0.0.1"


class SiteRooms:
    """The rooms of a gateway that has devices of its own, each given what it needs of the ones before it."""

    custom: Custom = NoCustom()
    """What was brought for its devices without an agent."""

    def __init__(
        self,
        rooms: Rooms,
        answers: Answers,
        settings: BrokerSettings,
        ssh: SshSettings,
        site: str,
        state_dir: Path,
        clock: Clock,
    ) -> None:
        authority, epochs = rooms.authority, rooms.epochs
        writer, reader, metrics, bus = rooms.writer, rooms.reader, rooms.metrics, rooms.bus
        self.broker = broker_for(settings, site, state_dir, clock)
        if isinstance(self.broker, EmbeddedBroker):
            self.broker.count_devices(rooms.registry.present)
        self.prekeys = Prekeys(site=site, authority=authority, writer=writer, reader=reader, clock=clock)
        self.clock_watch = ClockWatch(clock, self.prekeys.start_anew)
        self.enrollment = Enrollment(
            site=site,
            authority=authority,
            group=epochs,
            entrance=self._entrance,
            registry=rooms.registry,
            writer=writer,
            reader=reader,
            bus=bus,
            spool=rooms.spool,
            audit=rooms.audit,
            metrics=metrics,
            clock=clock,
        )
        self.ssh_book = SshBook(site=site, authority=authority, enrollment=self.enrollment, reader=reader, bus=bus)
        self.ssh_journals = SshJournals(writer=writer, reader=reader)
        self._ssh_settings = ssh
        self._hear_addresses()
        self.sessions = Sessions(
            site=site,
            authority=authority,
            by_did=self.enrollment.by_did,
            quarantine=self.enrollment.verdicts.quarantine,
            bus=bus,
            metrics=metrics,
            clock=clock,
        )
        self.revocation = Revocation(
            site=site,
            authority=authority,
            sessions=self.sessions,
            epochs=epochs,
            devices=self.enrollment.all,
            remove_users=self.enrollment.remove_users,
            revoked_above=self._revoked_above,
            writer=writer,
            reader=reader,
            metrics=metrics,
        )
        self.enrollment.verdicts.revoke_with(self.revocation.revoke)
        self.openings = Openings(
            site=site,
            authority=authority,
            prekeys=self.prekeys,
            sessions=self.sessions,
            epochs=epochs,
            revocation=self.revocation,
            raise_sequence=rooms.sequence.raise_to,
            writer=writer,
            reader=reader,
            metrics=metrics,
            clock=clock,
        )
        self.recertification = Recertification(
            authority=authority, sessions=self.sessions, renew=self.enrollment.renew, metrics=metrics
        )
        KeyChanges(site, self.enrollment, self.sessions, self.recertification.bring, metrics, clock).join(answers)
        rooms.enrolled = self.enrollment.by_name
        rooms.ssh = self.ssh_book.by_name
        self._rooms = rooms
        self._answers = answers
        self._site = site
        self._clock = clock

    def _hear_addresses(self) -> None:
        if isinstance(self.broker, RuledBroker):
            # Another's broker tells nobody from where its clients come.
            addresses = self.enrollment.doors.addresses = ClientAddresses()
            self.broker.hear_line = addresses.line

    def parts_before_broker(self) -> list[Part]:
        """What must know its past before a device can say anything."""
        return [self.enrollment, self.ssh_book, self.ssh_journals, self.prekeys]

    def parts_after_broker(self) -> list[Part]:
        """What talks with devices; the downlink comes last, since it brings the first word."""
        downlink = self.downlink = MqttDownlink(
            site=self._site,
            address=self.broker.station_address(),
            notices=self.broker.hear_line if self.broker.log_topic else None,
            authority=self._rooms.authority,
            enrollment=self.enrollment,
            prekeys=self.prekeys,
            sessions=self.sessions,
            openings=self.openings,
            epochs=self._rooms.epochs,
            recertification=self.recertification,
            registry=self._rooms.registry,
            returns=self._rooms.collection,
            reseal=self._rooms.delivery.reseal,
            answers=self._answers,
            metrics=self._rooms.metrics,
            clock=self._clock,
        )
        beacons = self._rooms.time_beacons
        downlink.beacon = beacons.for_devices
        beacons.on_change(downlink.beacon_changed)
        beacons.on_jump(self.prekeys.start_anew)
        return [
            self.sessions,
            self.revocation,
            self.openings,
            self.recertification,
            downlink,
            self.clock_watch,
            self._ssh_downlink(),
        ]

    def _ssh_downlink(self) -> SshDownlink:
        rooms = self._rooms
        ssh = self.ssh = SshDownlink(
            site=self._site,
            settings=self._ssh_settings,
            book=self.ssh_book,
            authority=rooms.authority,
            epochs=rooms.epochs,
            journals=self.ssh_journals,
            registry=rooms.registry,
            returns=rooms.collection,
            reseal=rooms.delivery.reseal,
            answers=self._answers,
            starts_of=self._starts_of,
            host_over=SshHost,
            moved=rooms.delivery.moved,
            bus=rooms.bus,
            metrics=rooms.metrics,
            clock=self._clock,
        )
        ssh.judge.custom = self.custom
        rooms.ssh_link = ssh.view
        return ssh

    def _starts_of(self, device: str) -> SshStarts:
        open_jobs = self._rooms.open_jobs

        def recovered(jid: str) -> bool:
            opened = open_jobs.get(jid)
            return opened is not None and opened.recovered

        return SshStarts(
            self._rooms.doubt,
            device=f"{self._site}/{device}",
            recovered=recovered,
            custom=lambda: self.custom,
            clock=self._clock,
        )

    async def _revoked_above(self, dids: Sequence[str]) -> None:
        await self.enrollment.verdicts.mark_revoked(dids, "revoked by a list from above")

    def _entrance(self) -> Entrance:
        broker = self.broker
        # An address that stands for every interface is none that a device could be told.
        address = "" if broker.host in (ANYWHERE, "::") else host_port(broker.host, broker.enroll_port)
        return Entrance(
            port=broker.port,
            enrollment_port=broker.enroll_port,
            tls_port=broker.tls_port,
            authority=broker.tls_authority_digest,
            address=address,
        )


def broker_for(settings: BrokerSettings, site: str, state_dir: Path, clock: Clock) -> BrokerPart:
    """The broker that the settings ask for."""
    port, enroll_port, tls_port = settings.port, settings.enrollment_port, settings.tls_port
    match settings.mode:
        case "embedded":
            return EmbeddedBroker(site=site, host=settings.host or HERE, port=port, enroll_port=enroll_port)
        case "external":
            return ExternalBroker(
                site=site,
                state_dir=state_dir,
                host=settings.host or HERE,
                port=port,
                enroll_port=enroll_port,
                tls_port=tls_port,
                rules_dir=Path(settings.rules_dir) if settings.rules_dir else None,
                pid_file=Path(settings.pid_file) if settings.pid_file else None,
                username=settings.username,
                password=settings.password,
                clock=clock,
            )
        case "service":
            return ServiceBroker(
                site=site,
                state_dir=state_dir,
                rules_dir=Path(settings.rules_dir) if settings.rules_dir else SETTINGS.parent,
                runtime_dir=Path(settings.pid_file).parent if settings.pid_file else RUNTIME,
                host=settings.host or ANYWHERE,
                port=port,
                enroll_port=enroll_port,
                tls_port=tls_port,
                clock=clock,
            )
        case "managed":
            return Mosquitto(
                site=site,
                state_dir=state_dir,
                host=settings.host or ANYWHERE,
                port=port,
                enroll_port=enroll_port,
                tls_port=tls_port,
                clock=clock,
            )
