"""SSH devices become members of the site like agents: a name, a place and a certificate over their pinned host keys.

Such a device never asks for anything. What is for it is sealed to this station's own key: the station verifies it and
opens it in its stead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.protocol.messages import Event
from device_agent.trust import keys
from device_agent.trust.device_certificate import read_device_certificate
from gateway.audit.deed import Deed
from gateway.devices.admission import USER_CHARACTERS, Admission
from gateway.devices.enrolled import Enrolled, Proof, putting
from gateway.devices.enrolled_book import EnrolledBook
from gateway.devices.enrollment_journal import Asker, EnrollmentJournal
from gateway.devices.enrollment_ports import SiteAuthority
from gateway.devices.recertify import LIFE_LEFT
from gateway.devices.registry import Registry
from gateway.devices.ssh_device import LINK, identity
from gateway.store.writer import Statement

BREATH = 32
"""Certificates signed in one turn of the loop."""


@dataclass(frozen=True, slots=True)
class Pin:
    """Which device is meant by a name: its pinned fingerprints, and who vouches for them.

    ``nonce`` makes each pin an identity of its own, also of a device that was removed and comes back.
    """

    name: str
    address: str
    fingerprints: tuple[str, ...]
    nonce: bytes
    proof: Proof


@dataclass(frozen=True, slots=True)
class Beside:
    """What is committed together with an enrollment, and told after it."""

    statements: Sequence[Statement] = ()
    events: Sequence[Event] = ()
    deeds: Sequence[Deed] = ()
    wipes: bool = False


class SshAdmission:
    """Lets SSH devices in and certifies them anew. Whoever calls lets one call end before the next."""

    def __init__(
        self,
        *,
        site: str,
        authority: SiteAuthority,
        registry: Registry,
        book: EnrolledBook,
        admission: Admission,
        journal: EnrollmentJournal,
    ) -> None:
        self._site = site
        self._authority = authority
        self._registry = registry
        self._book = book
        self._admission = admission
        self._journal = journal

    def named(self, name: str) -> Enrolled | None:
        """The device that has this name here, however it is reached."""
        return self._book.named(name)

    def room(self) -> int:
        """How many more devices this site may have. Raises ``Refused`` (``not_joined``)."""
        most = min(self._admission.own_certificate().policy.devmax, limits.DEVICES_PER_STATION)
        return max(0, most - self._book.belonging)

    async def admit(self, pins: Sequence[Pin], asker: Asker, beside: Beside) -> None:
        """Let devices in: all of them on disk, with what is beside, or nothing.

        Raises ``Refused`` (``not_joined``, ``full``, ``name_taken``) and ``StoreFailed``; then nothing has happened.
        """
        if not pins:
            await self._write([], [], beside)
            return
        own = self._admission.own_certificate()
        if len(pins) > self.room():
            most = self._book.belonging + self.room()
            raise Refused("full", f"this site may have {most} devices, and has {self._book.belonging}")
        for pin in pins:
            if (holder := self._book.holder(pin.name)) is not None:
                raise Refused("name_taken", f"{pin.name} is {holder}")
        coming = [self._enrolled(pin, None, asker) for pin in pins]
        for device in coming:
            self._book.reserve(device.name, device.did)
        placed: list[Enrolled] = []
        try:
            for number, device in enumerate(coming, 1):
                here = replace(device, place=self._admission.place_for(device, device.name))
                placed.append(here)
                placed[-1] = replace(here, certificate=self._admission.certify(here, own))
                if not number % BREATH:
                    await asyncio.sleep(0)
            await self._write([], placed, beside)
        except BaseException:
            for device in placed:
                self._admission.give_back(replace(device, place=-1), device.name, device.place)
            raise
        finally:
            for device in coming:
                self._book.release(device.name)
        for device in placed:
            self._admission.known_to_registry(device)

    async def repin(self, did: str, pin: Pin, asker: Asker, beside: Beside) -> None:
        """Give a device another identity, over other host keys; its name and its place stay.

        Raises ``Refused`` (``not_joined``, ``gone``) and ``StoreFailed``; then nothing has happened.
        """
        own = self._admission.own_certificate()
        async with self._admission.turn(did):
            old = self._book.get(did)
            if old is None or old.state != "accepted":
                raise Refused("gone", f"{pin.name} was put out meanwhile")
            fresh = self._enrolled(pin, old, asker)
            fresh = replace(fresh, certificate=self._admission.certify(fresh, own))
            await self._write([old], [fresh], beside)
            self._admission.known_to_registry(fresh)

    async def recertify(self) -> int:
        """Sign those certificates anew that end, or were signed or sealed to with another key; how many."""
        stale = [device for device in self._book.everybody() if self._is_stale(device)]
        fresh = []
        if stale:
            own = self._admission.own_certificate()
            for number, device in enumerate(stale, 1):
                sealed_to = replace(device, kem=self._authority.kem.public)
                fresh.append(replace(sealed_to, certificate=self._admission.certify(sealed_to, own)))
                if not number % BREATH:
                    await asyncio.sleep(0)
            await self._journal.write([putting(fresh)])
            for device in fresh:
                known = self._book.get(device.did)
                # Somebody may have put it out meanwhile.
                if known is not None and known.state == "accepted":
                    self._book.put(device)
                    self._admission.known_to_registry(device)
        return len(fresh)

    def _is_stale(self, device: Enrolled) -> bool:
        if device.link != LINK or device.state != "accepted":
            return False
        try:
            certificate = read_device_certificate(device.certificate)
        except Refused:
            return True
        life = certificate.expires - certificate.issued
        return (
            certificate.issuer != self._authority.signing.kid
            or certificate.kem != self._authority.kem.public
            or self._authority.now() > certificate.expires - life * LIFE_LEFT
        )

    def _enrolled(self, pin: Pin, old: Enrolled | None, asker: Asker) -> Enrolled:
        sig = identity(self._site, pin.name, pin.nonce, pin.fingerprints)
        now = self._authority.now()
        return Enrolled(
            did=keys.did_text(keys.did(sig)),
            state="accepted",
            name=pin.name,
            place=old.place if old is not None else -1,
            sig=sig,
            kem=self._authority.kem.public,
            serial="",
            model="",
            address=pin.address,
            proof=pin.proof,
            unproven=pin.proof != "fingerprint",
            accepted_by=asker.user[:USER_CHARACTERS],
            accepted_at=now,
            confirmed_at=now,
            first_seen=old.first_seen if old is not None else now,
            last_seen=now,
            link=LINK,
        )

    async def _write(self, olds: Sequence[Enrolled], fresh: Sequence[Enrolled], beside: Beside) -> None:
        """The old identity of a device goes before the new one comes: name and place are one device's at a time."""
        gone = [replace(old, state="revoked", place=-1, detail="its host keys were pinned anew") for old in olds]
        events: list[Event] = [self._journal.key(device, "delete") for device in gone]
        for device in fresh:
            events += [self._journal.key(device, "accept"), self._journal.auth(device, "accept")]
        statements, tell = self._journal.telling(
            [*([putting(gone)] if gone else []), *([putting(fresh)] if fresh else []), *beside.statements],
            [*events, *beside.events],
            beside.deeds,
        )
        await self._journal.write(statements, wipes=beside.wipes)
        for device in [*gone, *fresh]:
            self._book.put(device)
        await tell()
