"""Whether a device may join that asks now, and what it is told: by a token, as an expected one, or to wait.

Its request was read: it holds the key that it names, and nothing else of what it says is known to be true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.protocol.messages import Event
from device_agent.trust.join import JoinRequest, is_confirm, read_confirm, tag_fits
from device_agent.trust.join_answer import STATES, State
from gateway.audit.deed import Deed
from gateway.devices.admission import Admission, Grounds
from gateway.devices.allowance import Allowance
from gateway.devices.doors import Doors
from gateway.devices.enrolled import SPENT_BYTES, Enrolled, dropping, putting, seen
from gateway.devices.enrolled_book import PENDING_DEVICES, EnrolledBook
from gateway.devices.enrollment_journal import Asker, EnrollmentJournal
from gateway.devices.enrollment_ports import SiteAuthority
from gateway.devices.join_tokens import MadeToken
from gateway.devices.naming import DEFAULT_TEMPLATE
from gateway.metrics import Metrics
from gateway.store.reader import Reader
from gateway.store.writer import Statement, StoreFailed

LINK = "enrollment"
"""What refusals are counted under."""

DENIALS_PER_SECOND = 1 / 60
DENIALS_BURST = 50.0
"""Refusals that become an event and a row of the audit; the metrics count the others."""

PROVEN = frozenset({"bad_name", "name_taken", "not_joined"})
"""Why a device with a good token waits nevertheless: for an operator, whether or not a window is open."""

UNSUITABLE = frozenset({"full", "bad_key"})
"""Why a device does not even wait."""

WAITS = "the request waits for an operator, who compares the fingerprint of this device"

FIRST_USE = "it believes whoever answers first (trust_on_first_use)"
"""What an operator sees beside such a device: another gateway may have had it, and this one proves nothing to it."""


class JoinDecisions:
    """Decides about one request at a time for each device; whoever calls holds the device's turn."""

    def __init__(
        self,
        *,
        site: str,
        authority: SiteAuthority,
        book: EnrolledBook,
        admission: Admission,
        doors: Doors,
        journal: EnrollmentJournal,
        reader: Reader,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._site = site
        self._authority = authority
        self._book = book
        self._admission = admission
        self._doors = doors
        self._journal = journal
        self._reader = reader
        self._metrics = metrics
        self._denials = Allowance(per_second=DENIALS_PER_SECOND, burst=DENIALS_BURST, clock=clock)
        self._heard: dict[str, Enrolled] = {}
        self._named: dict[str, str] = {}
        """What devices that wait went by when their last ``pend`` was told."""

    async def decide(self, request: JoinRequest) -> bytes | None:
        """The answer to a request; None when there is nothing to say. Raises ``Refused`` for what is only counted."""
        known = self._book.get(request.did)
        if known is not None and known.state == "accepted":
            secret = self._secret(request)
            return await self._admission.answer_again(known, request, secret)
        if known is not None and known.state != "pending":
            return await self._turn_away(known, request)
        device = self._seen_now(known, request)
        try:
            answer = await self._by_proof(device, request)
        except Refused as refusal:
            return await self._wait(known, device, request, refusal)
        return answer if answer is not None else await self._wait(known, device, request, None)

    def _seen_now(self, known: Enrolled | None, request: JoinRequest) -> Enrolled:
        """A device that waits or begins to, as its request says it is."""
        now = self._authority.now()
        if known is None:
            known = Enrolled(
                did=request.did,
                state="pending",
                sig=request.sig,
                kem=b"",
                serial="",
                model="",
                first_seen=now,
                last_seen=now,
            )
        return replace(
            known,
            kem=request.kem,
            serial=request.serial,
            model=request.model,
            address=self._doors.address_of(request.did),
            last_seen=now,
        )

    async def _by_proof(self, device: Enrolled, request: JoinRequest) -> bytes | None:
        """Let a device in that is expected or has a token, and the answer; None for one that has neither.

        Raises ``Refused`` for a token that does not count, and for a device that cannot be let in although it does.
        """
        secret = self._secret(request)
        entry = self._doors.expected.of(request.did, request.sig)
        if entry is not None:
            grounds = Grounds("expected", Asker(entry.added_by, "device"), entry.name or DEFAULT_TEMPLATE)
            taking = self._doors.expected.taking(entry)
            _, answer = await self._admission.admit(device, grounds, beside=[taking], request=request, secret=secret)
            self._doors.expected.drop(entry)
            self._doors.changed.set()
            return answer
        if request.token_id is None:
            return None
        token = self._doors.tokens.judge(request.token_id, self._authority.now())
        if secret is None:
            raise Refused("bad_tag", f"its request does not fit the token {token.id}, which stays unused")
        self._doors.tokens.check_serial(token, request.serial)
        return await self._by_token(device, request, token)

    async def _by_token(self, device: Enrolled, request: JoinRequest, token: MadeToken) -> bytes | None:
        """Take one use of a token in the transaction that lets the device in: whoever comes too late fails there."""
        why = f"by the token {token.id}"
        grounds = Grounds("token", Asker(token.made_by, "device"), token.name, token=token.id, why=why)
        taking = self._doors.tokens.take(token)
        on_disk = spent = False
        try:
            _, answer = await self._admission.admit(
                device, grounds, beside=[taking], request=request, secret=token.secret
            )
            on_disk = True
        except StoreFailed:
            rows = await self._reader.rows("SELECT left FROM join_tokens WHERE id = ?", (token.id,))
            spent = rows == [(0,)]
            if spent:
                raise Refused("token_used", f"the token {token.id} was used {token.uses} times already") from None
            raise
        finally:
            self._doors.tokens.taken(token, on_disk=on_disk)
            if spent:
                self._doors.tokens.exhausted(token)
        self._doors.changed.set()
        return answer

    def _secret(self, request: JoinRequest) -> bytes | None:
        """The secret of the token that a request came with, if it fits: the answer is tagged with it."""
        secret = self._doors.tokens.secret(request.token_id) if request.token_id is not None else None
        return secret if secret is not None and tag_fits(request, secret) else None

    async def _wait(
        self, known: Enrolled | None, device: Enrolled, request: JoinRequest, refusal: Refused | None
    ) -> bytes:
        """Let a device wait for an operator, if it may, and the answer that says so."""
        reason = refusal.reason if refusal is not None else "pending"
        if refusal is not None:
            self._metrics.refused(LINK, reason, device.did, refusal.detail)
        if reason in UNSUITABLE:
            assert refusal is not None
            return self._admission.nay(request, _state(reason), refusal.detail)
        told = refusal.detail if refusal is not None else ""
        waits = replace(device, detail=told or (FIRST_USE if request.first_use else ""))
        denied = reason in STATES and reason != "pending" and (known is None or known.detail != waits.detail)
        through: list[Statement] = []
        if known is None and reason not in PROVEN:
            try:
                self._doors.check(request.model, waits.address)
            except Refused as closed:
                self._metrics.refused(LINK, closed.reason, device.did, closed.detail)
                if denied:
                    await self._commit_denial(waits, [])
                return self._admission.nay(request, _state(reason if denied else closed.reason), told or closed.detail)
            through = self._doors.coming_through()
        if known is None:
            await self._begin_to_wait(waits, through, denied)
        elif self._is_renamed(known, waits) and self._denials.take():
            # Who judged its name before judges it anew.
            events, deeds = self._denial(waits) if denied else ([], [])
            await self._journal.commit([putting([waits])], [*events, self._journal.auth(waits, "pend")], deeds)
            self._book.put(waits)
            self._told(waits)
        elif _visible(known) != _visible(waits):
            if denied:
                await self._commit_denial(waits, [putting([waits])])
            else:
                await self._journal.write([putting([waits])])
            self._book.put(waits)
        else:
            self._heard[waits.did] = waits
            self._book.put(waits)
        return self._admission.nay(request, _state(reason), told or WAITS)

    async def _begin_to_wait(self, device: Enrolled, through: Sequence[Statement], denied: bool) -> None:
        """Put a device among those that wait; when there are too many, the one heard longest ago gives way."""
        out = self._book.crowded_out(device.did)
        statements = [*through, putting([device])]
        if out is not None:
            self._book.drop(out.did)
            self._heard.pop(out.did, None)
            self._admission.forget(out.did)
            self._metrics.refused(LINK, "pending_full", out.did, f"{self._book.waiting} others wait")
            statements.append(dropping([out.did]))
        self._book.put(device)
        events, deeds = self._denial(device) if denied else ([], [])
        try:
            await self._journal.commit(statements, [*events, self._journal.auth(device, "pend")], deeds)
        except StoreFailed:
            self._book.drop(device.did)
            if out is not None:
                self._book.put(out)
            if through:
                self._doors.not_through()
            raise
        self._told(device)

    def _is_renamed(self, known: Enrolled, device: Enrolled) -> bool:
        """Whether a device that waits goes by another name now: it says another, or the one that it says is free."""
        if known.did not in self._named:
            self._told(known)
        return self._named[known.did] != self._book.goes_by(device)

    def _told(self, device: Enrolled) -> None:
        self._named.pop(device.did, None)
        self._named[device.did] = self._book.goes_by(device)
        if len(self._named) > PENDING_DEVICES:
            del self._named[next(iter(self._named))]

    async def _turn_away(self, known: Enrolled, request: JoinRequest) -> bytes:
        """Answer a device about which an operator has decided."""
        heard = replace(known, last_seen=self._authority.now())
        self._heard[heard.did] = heard
        self._book.put(heard)
        self._metrics.refused(LINK, known.state, known.did, known.label)
        await self._commit_denial(heard, [])
        if known.state == "revoked":
            return self._admission.nay(request, "revoked", "this identity was revoked: the device needs a new one")
        return self._admission.nay(request, "rejected", "an operator must decide again before this device may join")

    async def _commit_denial(self, device: Enrolled, statements: Sequence[Statement]) -> None:
        await self._journal.commit(statements, *self._denial(device))

    def _denial(self, device: Enrolled) -> tuple[list[Event], list[Deed]]:
        """What is told of a refusal; nothing when that has been told too often."""
        if not self._denials.take():
            return [], []
        deed = Deed(
            user=device.did,
            door="device",
            action="keys.join",
            subject=f"device {device.label} {device.fingerprint}",
            verdict="deny",
            why=device.detail or device.state,
        )
        return [self._journal.auth(device, "denied")], [deed]

    def awaits(self, payload: bytes) -> bool:
        """Whether this claims to be the word of a device that was accepted and has not given it yet.

        Its signature is not checked. It names a request by its digest, which only its sender and this station know, so
        that strangers who ask without end cannot keep the word of a device away.
        """
        if not is_confirm(payload):
            return False
        try:
            word = read_confirm(payload, site=self._site)
        except Refused:
            return False
        device = self._book.get(word.did)
        return device is not None and device.asked != b"" and word.digest == device.asked

    async def confirm(self, payload: bytes) -> None:
        """A device has its answer: from now on the broker knows its new password. Raises ``Refused``."""
        word = read_confirm(payload, site=self._site)
        async with self._admission.turn(word.did):
            device = self._book.get(word.did)
            if device is None or device.state != "accepted":
                raise Refused("unknown_device", word.did)
            if not device.asked or word.digest != device.asked:
                raise Refused("not_asked", f"{device.label} confirms what it was not answered")
            word.verified(device.sig)
            now = self._authority.now()
            confirmed = replace(
                device,
                password_hash=device.password_next,
                password_next="",
                asked=b"",
                spent=(device.spent + word.digest)[-SPENT_BYTES:],
                confirmed_at=now,
                last_seen=now,
            )
            await self._journal.write([putting([confirmed])])
            self._book.put(confirmed)
            self._admission.forget(word.did)
        self._metrics.add("enrollment_confirmed")

    async def write_heard(self) -> None:
        """Keep when devices were heard last about which nothing else has changed."""
        heard, self._heard = self._heard, {}
        await self._journal.write([seen(list(heard.values()))])


def _state(reason: str) -> State:
    """What a device is told: the reason of a refusal, where there is a word for it, else that it waits."""
    return next((state for state in STATES if state == reason), "pending")


def _visible(device: Enrolled) -> tuple[object, ...]:
    return device.kem, device.serial, device.model, device.address, device.detail
