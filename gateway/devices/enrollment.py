"""How a device becomes one of this site's: it asks, signed by itself, over a broker that nobody trusts.

Cheap things are looked at first: size, rate, then one signature. What lets it in is a join token, a list of expected
keys, or an operator who compared its fingerprint; without any of these it waits, and only while a join window is open.
Everything is on disk before a device is told. A device that lost its answer asks again and gets another.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from device_agent.clock import Clock
from device_agent.errors import NotFound, OutstationError, Refused
from device_agent.parts import Part
from device_agent.protocol.stations import station_device
from device_agent.trust.join import (
    REQUEST_BYTES,
    JoinRequest,
    is_confirm,
    read_request,
)
from gateway.audit.book import AuditBook
from gateway.bus import Bus
from gateway.devices.admission import Admission
from gateway.devices.allowance import Allowance
from gateway.devices.doors import Doors
from gateway.devices.enrolled import BELONGING, LOAD, Enrolled, from_row
from gateway.devices.enrolled_book import EnrolledBook
from gateway.devices.enrollment_journal import EnrollmentJournal
from gateway.devices.enrollment_ports import EnrollmentBroker, Entrance, GroupKey, Respond, SiteAuthority
from gateway.devices.join_decisions import LINK, JoinDecisions
from gateway.devices.registry import Registry
from gateway.devices.ssh_admission import SshAdmission
from gateway.devices.verdicts import Verdicts
from gateway.metrics import Metrics
from gateway.spool.queue import Spool
from gateway.store.reader import Reader
from gateway.store.writer import Writer

__all__ = ["Enrolled", "Enrollment"]

log = logging.getLogger(__name__)

WAITING = 1000
"""Requests that passed the cheap checks and wait for a worker."""

CONFIRMATIONS = 1000
"""Words that are awaited find so much room beside them: a device whose word is lost stays out for a minute."""

WORKERS = 16
"""Devices that are decided about at once: what they write is committed together."""

REQUESTS_PER_SECOND = 200.0
REQUESTS_BURST = 1000.0
LOOK_SECONDS = 1.0
"""A device is looked at once in so many seconds; asking more often brings no answer sooner."""

LOOKED_AT = 4096
TEND_SECONDS = 1.0
GATHER_SECONDS = 0.05
HEARD_SECONDS = 60.0


class Enrollment(Part):
    """Requests to join are answered here. ``doors`` is what lets devices in, ``verdicts`` what operators decide."""

    name: ClassVar[str] = "enrollment"
    drain_seconds: ClassVar[float] = 1.0
    """Nothing is drained: whoever has no answer yet asks again."""

    def __init__(
        self,
        *,
        site: str,
        authority: SiteAuthority,
        group: GroupKey,
        entrance: Callable[[], Entrance],
        registry: Registry,
        writer: Writer,
        reader: Reader,
        bus: Bus,
        spool: Spool,
        audit: AuditBook,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._site = site
        self._authority = authority
        self._registry = registry
        self._writer = writer
        self._reader = reader
        self._metrics = metrics
        self._clock = clock
        self._book = EnrolledBook(station_device(site))
        self._journal = EnrollmentJournal(writer=writer, bus=bus, spool=spool, audit=audit, goes_by=self._book.goes_by)
        self._admission = Admission(
            site=site,
            authority=authority,
            group=group,
            entrance=entrance,
            registry=registry,
            book=self._book,
            journal=self._journal,
        )
        self.doors = Doors(
            site=site,
            authority=authority,
            entrance=entrance,
            book=self._book,
            journal=self._journal,
            reader=reader,
            clock=clock,
        )
        self._decisions = JoinDecisions(
            site=site,
            authority=authority,
            book=self._book,
            admission=self._admission,
            doors=self.doors,
            journal=self._journal,
            reader=reader,
            metrics=metrics,
            clock=clock,
        )
        self.verdicts = Verdicts(
            registry=registry,
            book=self._book,
            admission=self._admission,
            doors=self.doors,
            journal=self._journal,
            users_changed=self._users_changed,
        )
        self.ssh = SshAdmission(
            site=site,
            authority=authority,
            registry=registry,
            book=self._book,
            admission=self._admission,
            journal=self._journal,
        )
        self._requests: asyncio.Queue[bytes] = asyncio.Queue(maxsize=WAITING + CONFIRMATIONS)
        self._allowance = Allowance(per_second=REQUESTS_PER_SECOND, burst=REQUESTS_BURST, clock=clock)
        self._looked: dict[str, float] = {}
        self._broker: EnrollmentBroker | None = None
        self._broker_due = asyncio.Event()
        self._users_due = False
        self._let_in: bool | None = None

    async def open(self) -> None:
        """Load everything; the registry knows every device that belongs here, seen since or not."""
        for row in await self._reader.rows(LOAD):
            device = from_row(row)
            self._book.put(device)
            if device.place >= 0:
                self._registry.keep_place(device.place)
        for device in self._book.everybody():
            if device.state in BELONGING:
                self._admission.known_to_registry(device)
            elif device.state == "revoked" and self._book.named(device.name) is None:
                # A stop between the revocation and the registry's row.
                self._registry.forget(device.name)
        await self.doors.load()
        for number in range(WORKERS):
            self.spawn(self._work(), f"answer/{number}")
        self.spawn(self._tend(), "tend")
        self.spawn(self._keep_broker(), "broker")

    # --- ports -----------------------------------------------------------------------------------------------------

    def respond_with(self, respond: Respond) -> None:
        """Answer devices through this."""
        self._admission.respond_with(respond)

    async def use_broker(self, broker: EnrollmentBroker) -> None:
        """Tell this broker who may come in, now and whenever that changes; before it opens is soon enough."""
        self._broker, self._let_in = broker, None
        self._users_changed()
        await self._tell_broker()

    async def remove_users(self, dids: Sequence[str]) -> None:
        """Take devices out of the broker's users; returns when their connections are cut."""
        if self._broker is not None:
            out = set(dids)
            await self._broker.set_users({did: each for did, each in self.users().items() if did not in out})

    # --- asked by everybody ----------------------------------------------------------------------------------------

    def by_did(self, did: str) -> Enrolled | None:
        """A device by its identity, in whatever state."""
        return self._book.get(did)

    def by_name(self, name: str) -> Enrolled | None:
        """The device that has this name here."""
        return self._book.named(name)

    def all(self) -> Iterable[Enrolled]:
        """Every device, in whatever state."""
        return list(self._book.everybody())

    def users(self) -> dict[str, str]:
        """Whom the broker lets in: did to password hash."""
        return {device.did: device.password_hash for device in self._book.everybody() if device.active}

    async def renew(self, did: str, kem: bytes | None = None) -> bytes:
        """Sign a device another certificate, for this sealing key if it has another one now.

        Raises ``NotFound`` for one that does not belong here.
        """
        async with self._admission.turn(did):
            device = self._book.get(did)
            if device is None or device.state != "accepted":
                raise NotFound(f"no accepted device {did}", error_id="device.unknown", hint="outstation keys list")
            return (await self._admission.recertify(device, kem)).certificate

    # --- what devices say ------------------------------------------------------------------------------------------

    async def request(self, payload: bytes) -> None:
        """Somebody asks to join, or has taken the answer. What is too much is counted and not looked at."""
        if len(payload) > REQUEST_BYTES:
            self._metrics.refused(LINK, "oversized", "somebody", f"{len(payload)} bytes, at most {REQUEST_BYTES}")
        elif not (self._allowance.take() or self._decisions.awaits(payload)):
            self._metrics.refused(LINK, "rate", "somebody", f"more than {REQUESTS_PER_SECOND:g} requests a second")
        elif self._requests.qsize() >= WAITING and (self._requests.full() or not self._decisions.awaits(payload)):
            self._metrics.refused(LINK, "busy", "somebody", f"{WAITING} requests wait")
        else:
            self._requests.put_nowait(payload)

    async def _work(self) -> None:
        while True:
            payload = await self._requests.get()
            try:
                if is_confirm(payload):
                    await self._decisions.confirm(payload)
                    self._users_changed()
                    self.doors.changed.set()
                else:
                    await self._look_at(read_request(payload))
            except Refused as refusal:
                self._metrics.refused(LINK, refusal.reason, "somebody", refusal.detail)
            except OutstationError as error:
                # Nothing was done; whoever still wants an answer asks again.
                log.error("request to join not answered error=%s", error)
            self._requests.task_done()

    async def settled(self) -> None:
        """Return when every request that was taken in has been decided about."""
        await self._requests.join()

    async def _look_at(self, request: JoinRequest) -> None:
        if not self._first_look(request.did):
            self._metrics.refused(LINK, "too_often", request.did)
            return
        async with self._admission.turn(request.did):
            self._admission.remember(request)
            answer = await self._decisions.decide(request)
        await self._admission.send(request.did, answer)

    def _first_look(self, did: str) -> bool:
        """Whether this device was not looked at a moment ago. Its signature was checked: nobody else uses this up."""
        now = self._clock.monotonic()
        if now - self._looked.get(did, -LOOK_SECONDS) < LOOK_SECONDS:
            return False
        self._looked.pop(did, None)
        self._looked[did] = now
        if len(self._looked) > LOOKED_AT:
            del self._looked[next(iter(self._looked))]
        return True

    # --- loops -----------------------------------------------------------------------------------------------------

    async def _tend(self) -> None:
        """Close what is overdue, let go of secrets, and see whether the enrollment user is still needed."""
        written = self._clock.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TEND_SECONDS):
                    await self.doors.changed.wait()
                # Many devices that join at once change this many times.
                await asyncio.sleep(GATHER_SECONDS)
            self.doors.changed.clear()
            try:
                await self.doors.close_overdue()
                await self.doors.tidy()
                if self._clock.monotonic() - written > HEARD_SECONDS:
                    written = self._clock.monotonic()
                    await self._decisions.write_heard()
            except OutstationError as error:
                log.error("enrollment not tended error=%s", error)
            if self._let_in is not self.doors.wanted:
                self._broker_due.set()

    def _users_changed(self) -> None:
        self._users_due = True
        self._broker_due.set()

    async def _keep_broker(self) -> None:
        while True:
            await self._broker_due.wait()
            self._broker_due.clear()
            try:
                await self._tell_broker()
            except OutstationError as error:
                log.error("the broker does not know who may come in, tried again error=%s", error)
                await asyncio.sleep(TEND_SECONDS)
                self._users_changed()

    async def _tell_broker(self) -> None:
        if self._broker is None:
            return
        if self._users_due:
            self._users_due = False
            await self._broker.set_users(self.users())
        wanted = self.doors.wanted
        if wanted is not self._let_in:
            await self._broker.set_enrollment(wanted)
            self._let_in = wanted
