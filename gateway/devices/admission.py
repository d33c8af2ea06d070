"""Devices are let in: a name, a place and a certificate, all on disk before anybody is told, and then the answer."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from device_agent.errors import OutstationError, Refused
from device_agent.protocol import limits
from device_agent.protocol.messages import Event
from device_agent.trust.claims import TIME_MAX
from device_agent.trust.device_certificate import sign_device_certificate
from device_agent.trust.join import JoinRequest, request_digest
from device_agent.trust.join_answer import ROOT_LISTS, TEXT_CHARACTERS, State, Terms, accept, refuse
from device_agent.trust.site_certificate import SiteCertificate
from gateway.audit.deed import Deed
from gateway.broker.passwords import hash_password, new_password
from gateway.devices.enrolled import BELONGING, Enrolled, Proof, putting
from gateway.devices.enrolled_book import EnrolledBook
from gateway.devices.enrollment_journal import Asker, EnrollmentJournal
from gateway.devices.enrollment_ports import Entrance, GroupKey, Respond, SiteAuthority
from gateway.devices.naming import Names
from gateway.devices.registry import Registry
from gateway.store.writer import Statement

log = logging.getLogger(__name__)

TURNS = 64
USER_CHARACTERS = 128
ANSWERS = 2048
"""Requests and answers that are remembered, so that an accepted device hears at once, and twice the same."""


@dataclass(frozen=True, slots=True)
class Grounds:
    """Why a device is let in: by which proof, by whom, under which name. ``token`` is the id of its join token."""

    proof: Proof
    asker: Asker
    name: str
    token: str = ""
    why: str = ""


class Admission:
    """Lets devices in and answers them. One device at a time is decided about, others meanwhile (``turn``)."""

    def __init__(
        self,
        *,
        site: str,
        authority: SiteAuthority,
        group: GroupKey,
        entrance: Callable[[], Entrance],
        registry: Registry,
        book: EnrolledBook,
        journal: EnrollmentJournal,
    ) -> None:
        self._site = site
        self._authority = authority
        self._group = group
        self._entrance = entrance
        self._registry = registry
        self._book = book
        self._journal = journal
        self._names = Names(self._holder)
        self._turns = [asyncio.Lock() for _ in range(TURNS)]
        self._requests: dict[str, JoinRequest] = {}
        self._unused: list[int] = []
        self._answers: dict[str, tuple[bytes, bytes]] = {}
        self._respond: Respond = _nobody

    def respond_with(self, respond: Respond) -> None:
        """Answer devices through this."""
        self._respond = respond

    def turn(self, did: str) -> asyncio.Lock:
        """Held while a device is decided about; many devices share one."""
        return self._turns[zlib.crc32(did.encode()) % TURNS]

    def _holder(self, name: str) -> str | None:
        return self._book.holder(name)

    # --- what is remembered of requests ----------------------------------------------------------------------------

    def remember(self, request: JoinRequest) -> None:
        """The newest request of a device: an operator's decision can answer it at once."""
        self._requests.pop(request.did, None)
        self._requests[request.did] = request
        if len(self._requests) > ANSWERS:
            del self._requests[next(iter(self._requests))]

    def request_of(self, did: str) -> JoinRequest | None:
        """The newest request of a device, if it is still known."""
        return self._requests.get(did)

    def forget(self, did: str) -> None:
        """Nothing waits for an answer any more."""
        self._requests.pop(did, None)
        self._answers.pop(did, None)

    # --- letting in ------------------------------------------------------------------------------------------------

    async def admit(
        self,
        device: Enrolled,
        grounds: Grounds,
        *,
        beside: Sequence[Statement] = (),
        request: JoinRequest | None = None,
        secret: bytes | None = None,
    ) -> tuple[Enrolled, bytes | None]:
        """Let a device in, and the answer to its request, if there is one. Call it in the device's turn.

        Raises ``Refused`` (``not_joined``, ``full``, ``bad_name``, ``name_taken``, ``bad_key``) and ``StoreFailed``;
        then nothing has happened.
        """
        certificate = self.own_certificate()
        name = device.name or self._names.choose(grounds.name, device.did, device.serial, device.model)
        most = min(certificate.policy.devmax, limits.DEVICES_PER_STATION)
        if device.state not in BELONGING and self._book.belonging >= most:
            raise Refused("full", f"this site has taken the {self._book.belonging} devices that it may have")
        place = self.place_for(device, name)
        now = self._authority.now()
        accepted = replace(
            device,
            state="accepted",
            name=name,
            place=place,
            proof=grounds.proof,
            unproven=device.unproven or grounds.proof == "pattern",
            token=grounds.token,
            accepted_by=(grounds.asker.user or device.did)[:USER_CHARACTERS],
            accepted_at=now,
            detail="",
        )
        answer = None
        try:
            accepted = replace(accepted, certificate=self.certify(accepted, certificate))
            if request is not None:
                accepted, answer = self._answer(accepted, request, secret)
        except Refused:
            self.give_back(device, name, place)
            raise
        self._book.reserve(name, device.did)
        try:
            await self._journal.commit(
                [putting([accepted]), *beside],
                self._accept_events(accepted, grounds),
                [self._accept_deed(accepted, grounds)],
            )
            self._book.put(accepted)
        finally:
            self._book.release(name)
        self.known_to_registry(accepted)
        log.info("device accepted name=%s did=%s proof=%s", accepted.name, accepted.did, accepted.proof)
        if request is not None and request.first_use:
            log.warning("this device believes whoever answers first name=%s did=%s", accepted.name, accepted.did)
        return accepted, answer

    def place_for(self, device: Enrolled, name: str) -> int:
        """Its place, or one that nobody ever had. Raises ``Refused``."""
        if device.place >= 0:
            return device.place
        is_new = self._registry.own_device(name) is None
        place = self._unused.pop() if is_new and self._unused else self._registry.place_for(name)
        if place >= limits.DEVICES_PER_STATION:
            self.give_back(device, name, place)
            raise Refused("full", f"this site has given out the {limits.DEVICES_PER_STATION} places that it has")
        return place

    def give_back(self, device: Enrolled, name: str, place: int) -> None:
        """Nobody was told of this place: whoever asks in vain again and again must not use up those of others."""
        if device.place < 0 and self._registry.own_device(name) is None:
            self._unused.append(place)

    async def answer_again(self, device: Enrolled, request: JoinRequest, secret: bytes | None) -> bytes:
        """Answer a device that belongs here and asks again: same name and place, a fresh password.

        The same request gets the same answer. Raises ``Refused`` for a request that it confirmed before.
        """
        digest = request_digest(request.body)
        if device.has_confirmed(digest):
            raise Refused("replayed", f"a request that {device.label} confirmed before")
        known = self._answers.get(device.did)
        if known is not None and known[0] == digest and device.asked == digest:
            return known[1]
        certificate = self.own_certificate()
        renewed = replace(
            device, kem=request.kem, serial=request.serial, model=request.model, last_seen=self._authority.now()
        )
        renewed = replace(renewed, certificate=self.certify(renewed, certificate))
        renewed, answer = self._answer(renewed, request, secret)
        await self._journal.write([putting([renewed])])
        self._book.put(renewed)
        self.known_to_registry(renewed)
        return answer

    async def recertify(self, device: Enrolled, kem: bytes | None = None) -> Enrolled:
        """Sign a device's certificate anew: the site has another key, or the device another sealing key."""
        certificate = self.own_certificate()
        renewed = replace(device, kem=kem or device.kem)
        renewed = replace(renewed, certificate=self.certify(renewed, certificate))
        await self._journal.write([putting([renewed])])
        self._book.put(renewed)
        self.known_to_registry(renewed)
        return renewed

    def known_to_registry(self, device: Enrolled) -> None:
        """Let the registry know a device that belongs here."""
        self._registry.admit(
            device.name,
            device.place,
            link=device.link,
            state=device.state,
            certificate=device.certificate,
            accepted_by=device.accepted_by,
            accepted_at=device.accepted_at or 0.0,
            seen=device.last_seen,
        )

    # --- answers ---------------------------------------------------------------------------------------------------

    async def send(self, did: str, answer: bytes | None) -> None:
        """Publish an answer. One that does not arrive is asked for again."""
        if answer is None:
            return
        try:
            await self._respond(did, answer)
        except OutstationError as error:
            log.warning("answer not sent, the device asks again device=%s error=%s", did, error.what)

    def nay(self, request: JoinRequest, state: State, text: str) -> bytes:
        """The answer that says why not, or not yet."""
        certificate = self._authority.certificate
        sentence = "".join(character for character in text if character.isprintable())
        return refuse(
            self._authority.signing,
            request_body=request.body,
            device=request.did,
            site=self._site,
            issued=int(self._authority.now()),
            state=state,
            text=sentence[:TEXT_CHARACTERS],
            root_lists=self._authority.anchor.root_lists[-ROOT_LISTS:],
            site_certificate=certificate.body if certificate is not None else b"",
        )

    def _answer(self, device: Enrolled, request: JoinRequest, secret: bytes | None) -> tuple[Enrolled, bytes]:
        certificate, entrance, password = self.own_certificate(), self._entrance(), new_password()
        digest = request_digest(request.body)
        answer = accept(
            self._authority.signing,
            request,
            root_lists=self._authority.anchor.root_lists[-ROOT_LISTS:],
            site_certificate=certificate.body,
            device_certificate=device.certificate,
            site=self._site,
            terms=Terms(
                issued=int(self._authority.now()),
                epoch=self._group.epoch,
                group_key=self._group.key,
                index=device.place,
                password=password,
                port=entrance.port,
                authority=entrance.authority,
                tls_port=entrance.tls_port,
            ),
            secret=secret,
        )
        self._answers.pop(device.did, None)
        self._answers[device.did] = (digest, answer)
        if len(self._answers) > ANSWERS:
            del self._answers[next(iter(self._answers))]
        return replace(device, password_next=hash_password(password), asked=digest), answer

    def own_certificate(self) -> SiteCertificate:
        """The certificate by which this station may let devices in. Raises ``Refused``."""
        certificate = self._authority.certificate
        if certificate is None or not self._authority.may("enrol"):
            raise Refused("not_joined", "this station has no certificate by which it may let devices in")
        return certificate

    def certify(self, device: Enrolled, own: SiteCertificate) -> bytes:
        """Sign a device's certificate."""
        now = int(self._authority.now())
        return sign_device_certificate(
            self._authority.signing,
            site=self._site,
            sig=device.sig,
            kem=device.kem,
            name=device.name,
            issued=now,
            expires=min(max(own.expires, now) + max(own.policy.devttl, 1), TIME_MAX),
            unproven=device.unproven,
        )

    # --- what is told ----------------------------------------------------------------------------------------------

    def _accept_events(self, device: Enrolled, grounds: Grounds) -> list[Event]:
        events = [self._journal.auth(device, "accept")]
        if grounds.asker.door != "device":
            events.insert(0, self._journal.key(device, "accept"))
        return events

    @staticmethod
    def _accept_deed(device: Enrolled, grounds: Grounds) -> Deed:
        return Deed(
            user=grounds.asker.user or device.did,
            door=grounds.asker.door,
            action="keys.accept",
            subject=f"device {device.name} {device.fingerprint}",
            verdict="allow",
            why=grounds.why or f"by {grounds.proof}",
        )


async def _nobody(_did: str, _answer: bytes) -> None:
    """Until there is a link."""
