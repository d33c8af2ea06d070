"""What operators decide about devices: accept, reject, revoke, and what they let in by a list or by a pattern.

To accept one device its fingerprint is compared here, before anything is written, whatever the program in front of the
operator has compared already. A pattern over serial numbers proves nothing; what it lets in is marked for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from device_agent.errors import NotFound, OutstationError, PolicyRefused, Refused, UsageInvalid
from device_agent.protocol.globs import compile_glob
from device_agent.trust.join import JoinRequest, tag_fits
from device_agent.trust.keys import same_fingerprint
from gateway.audit.deed import Deed
from gateway.devices.admission import Admission, Grounds
from gateway.devices.doors import Doors
from gateway.devices.enrolled import BELONGING, Enrolled, putting
from gateway.devices.enrolled_book import EnrolledBook
from gateway.devices.enrollment_journal import Asker, EnrollmentJournal
from gateway.devices.enrollment_ports import PutOut
from gateway.devices.naming import DEFAULT_TEMPLATE, check_template
from gateway.devices.registry import Registry
from gateway.devices.windows import check_terms
from gateway.store.writer import Statement

log = logging.getLogger(__name__)

AT_ONCE = 64
"""Devices that are let in at once; what they write is committed together."""

ACCEPTABLE = ("pending", "rejected", "quarantined")

Leaving = Callable[[Enrolled], Sequence[Statement]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of letting many devices in: who is in, and why the others still wait, by did."""

    accepted: list[Enrolled]
    waiting: dict[str, str]


class Verdicts:
    """The operators' side of the enrollment."""

    def __init__(
        self,
        *,
        registry: Registry,
        book: EnrolledBook,
        admission: Admission,
        doors: Doors,
        journal: EnrollmentJournal,
        users_changed: Callable[[], None],
    ) -> None:
        self._registry = registry
        self._book = book
        self._admission = admission
        self._doors = doors
        self._journal = journal
        self._users_changed = users_changed
        self._put_out: PutOut = self._put_out_here
        self._leaving: list[Leaving] = []
        self._left: list[Callable[[Enrolled], None]] = []

    def revoke_with(self, put_out: PutOut) -> None:
        """Revoke through this: it commits our statements together with the site's list of revoked devices."""
        self._put_out = put_out

    def leave_with(self, leaving: Leaving, left: Callable[[Enrolled], None]) -> None:
        """What else goes with a device that is revoked: statements for the same transaction, and whom to tell then."""
        self._leaving.append(leaving)
        self._left.append(left)

    def find(self, text: str) -> list[Enrolled]:
        """Devices by name, did, fingerprint, or the serial number that they claim."""
        return self._book.find(text)

    # --- accept ----------------------------------------------------------------------------------------------------

    async def accept(self, text: str, fingerprint: str | None, name: str | None, asker: Asker) -> Enrolled:
        """Let the device in that has this fingerprint. Raises ``NotFound``, ``UsageInvalid`` and ``PolicyRefused``."""
        template = check_template(name) if name else DEFAULT_TEMPLATE
        chosen = self._choose(text, fingerprint)
        async with self._admission.turn(chosen.did):
            # Asked again: whoever had the turn before may have decided.
            current = self._book.get(chosen.did)
            if current is None or current.state not in ACCEPTABLE or current.sig != chosen.sig:
                raise UsageInvalid(
                    f"the device {chosen.did} has changed meanwhile",
                    found=current.state if current is not None else "it is gone",
                    hint="outstation keys list",
                )
            grounds = Grounds("fingerprint", asker, template, why="the fingerprint was compared")
            try:
                accepted, answer = await self._admit(current, grounds)
            except Refused as refusal:
                raise _in_words(refusal, chosen) from None
        await self._admission.send(accepted.did, answer)
        self._after()
        return accepted

    def _choose(self, text: str, fingerprint: str | None) -> Enrolled:
        found = self._book.find(text)
        candidates = [device for device in found if device.state in ACCEPTABLE]
        if not candidates:
            raise self._nobody_to_accept(text, found)
        if not fingerprint:
            raise UsageInvalid(
                "the fingerprint of a device is needed: it alone says which device asks",
                error_id="keys.fingerprint_needed",
                where="--fingerprint",
                allowed="what the device itself shows: on its screen, its console, or its label",
                hint=f"outstation keys accept {text} --fingerprint FINGERPRINT",
            )
        fitting = [device for device in candidates if same_fingerprint(fingerprint, device.fingerprint)]
        if not fitting:
            shown = ", ".join(device.fingerprint for device in candidates)
            raise UsageInvalid(
                "this is not the fingerprint of the device: it may be another one that pretends",
                error_id="keys.fingerprint_differs",
                where="--fingerprint",
                found=f"typed {fingerprint[:60]}; {text} has {shown}",
                allowed="the fingerprint that the device itself shows",
                hint=f"outstation keys show {text}   or, if it is a stranger: outstation keys reject {text}",
            )
        return fitting[0]

    @staticmethod
    def _nobody_to_accept(text: str, found: Sequence[Enrolled]) -> OutstationError:
        states = {device.state: device for device in found}
        if "accepted" in states:
            return UsageInvalid(f"the device {states['accepted'].label} is accepted already", error_id="keys.accepted")
        if "revoked" in states:
            return UsageInvalid(
                f"the device {states['revoked'].label} is revoked, and that is for ever",
                error_id="keys.revoked",
                hint="let it make a new identity (on the device: delete the file `identity`), and it asks anew",
            )
        return NotFound(f"no device {text[:130]!r} waits to be accepted", hint="outstation keys list")

    async def accept_matching(self, serial: str, name: str | None, only: Sequence[str] | None, asker: Asker) -> Outcome:
        """Let in every device that came in the open window and says that it has such a serial number.

        ``only`` names those (by did) that the operator has seen and confirmed. Raises ``PolicyRefused`` without a
        window, and ``UsageInvalid`` when more match than the window is for.
        """
        template = check_template(name) if name else DEFAULT_TEMPLATE
        wanted = set(only or ())
        chosen = [device for device in self.matching(serial) if device.did in wanted]
        return await self._admit_all(
            [(device, Grounds("pattern", asker, template, why=f"unproven, serial {serial}")) for device in chosen]
        )

    def matching(self, serial: str) -> list[Enrolled]:
        """Whom a pattern over serial numbers means. Raises ``PolicyRefused`` and ``UsageInvalid``."""
        window = self._doors.window.open
        if window is None:
            raise PolicyRefused(
                "a pattern proves nothing, so it needs an open join window that counts",
                error_id="window.closed",
                hint="outstation keys window open --for 10m --max N",
            )
        found, matches = [], compile_glob(serial)
        for device in self._book.pending():
            if matches(device.serial) and device.last_seen > window.opened:
                with contextlib.suppress(Refused):
                    check_terms(window, device.model, device.address)
                    found.append(device)
        if len(found) > window.most:
            raise UsageInvalid(
                "more devices match than the join window is for",
                error_id="window.count",
                found=f"{len(found)} devices",
                allowed=f"{window.most}",
                hint="outstation keys list --state pending",
            )
        return found

    async def expect(self, listed: Sequence[tuple[str, str]], asker: Asker) -> Outcome:
        """Expect keys, and let in those of them that wait already. Raises ``UsageInvalid`` and ``PolicyRefused``."""
        await self._doors.expect(listed, asker)
        chosen = []
        for device in list(self._book.pending()):
            entry = self._doors.expected.of(device.did, device.sig)
            if entry is not None:
                grounds = Grounds("expected", asker, entry.name or DEFAULT_TEMPLATE, why="its key is expected")
                chosen.append((device, grounds))
        return await self._admit_all(chosen)

    async def accept_unproven(self, names: Mapping[str, str], why: str, asker: Asker) -> Outcome:
        """Let these in that wait, by did, without a fingerprint, under a name or, where it is empty, their own."""
        chosen = [(each, names[each.did] or DEFAULT_TEMPLATE) for each in self._book.pending() if each.did in names]
        return await self._admit_all([(each, Grounds("pattern", asker, name, why=why)) for each, name in chosen])

    async def _admit_all(self, chosen: Sequence[tuple[Enrolled, Grounds]]) -> Outcome:
        outcome = Outcome([], {})
        turns = asyncio.Semaphore(AT_ONCE)

        async def admit(device: Enrolled, grounds: Grounds) -> None:
            async with turns, self._admission.turn(device.did):
                current = self._book.get(device.did)
                if current is None or current.state != "pending":
                    return
                try:
                    accepted, answer = await self._admit(current, grounds)
                except (Refused, OutstationError) as error:
                    outcome.waiting[device.did] = error.detail if isinstance(error, Refused) else error.what
                    return
            outcome.accepted.append(accepted)
            await self._admission.send(accepted.did, answer)

        async with asyncio.TaskGroup() as group:
            for device, grounds in chosen:
                group.create_task(admit(device, grounds))
        self._after()
        return outcome

    async def _admit(self, device: Enrolled, grounds: Grounds) -> tuple[Enrolled, bytes | None]:
        request = self._admission.request_of(device.did)
        entry = self._doors.expected.of(device.did, device.sig)
        beside = [self._doors.expected.taking(entry)] if entry is not None else []
        accepted, answer = await self._admission.admit(
            device, grounds, beside=beside, request=request, secret=self._secret(request)
        )
        if entry is not None:
            self._doors.expected.drop(entry)
        return accepted, answer

    def _secret(self, request: JoinRequest | None) -> bytes | None:
        """A device that has a token believes only an answer tagged with it, whoever let it in."""
        if request is None or request.token_id is None:
            return None
        secret = self._doors.tokens.secret(request.token_id)
        return secret if secret is not None and tag_fits(request, secret) else None

    # --- reject and revoke -----------------------------------------------------------------------------------------

    async def reject(self, text: str, fingerprint: str | None, asker: Asker) -> list[Enrolled]:
        """Turn devices away that wait. Raises ``NotFound`` and ``UsageInvalid``."""
        found = self._book.find(text)
        candidates = [device for device in found if device.state == "pending"]
        if fingerprint:
            candidates = [device for device in candidates if same_fingerprint(fingerprint, device.fingerprint)]
        if not candidates and any(device.state in BELONGING for device in found):
            raise UsageInvalid(
                f"the device {text[:130]} belongs here: it is not rejected but revoked",
                error_id="keys.accepted",
                hint=f"outstation keys revoke {text}",
            )
        if not candidates:
            raise NotFound(f"no device {text[:130]!r} waits to be rejected", hint="outstation keys list")
        if len(candidates) > 1 and not fingerprint:
            raise UsageInvalid(
                f"several devices say that they are {text}",
                error_id="keys.several",
                found=", ".join(device.fingerprint for device in candidates),
                hint=f"outstation keys reject {text} --fingerprint {candidates[0].fingerprint}",
            )
        return [await self._reject(device, asker) for device in candidates]

    async def _reject(self, device: Enrolled, asker: Asker) -> Enrolled:
        async with self._admission.turn(device.did):
            # Asked again: whoever had the turn before may have let it in.
            current = self._book.get(device.did) or device
            if current.state != "pending":
                raise UsageInvalid(
                    f"the device {device.did} has changed meanwhile", found=current.state, hint="outstation keys list"
                )
            rejected = replace(current, state="rejected")
            await self._journal.commit(
                [putting([rejected])],
                [self._journal.key(rejected, "reject"), self._journal.auth(rejected, "reject")],
                [self._deed(asker, "keys.reject", rejected)],
            )
            self._book.put(rejected)
            request = self._admission.request_of(device.did)
            self._admission.forget(device.did)
        if request is not None:
            await self._admission.send(
                device.did, self._admission.nay(request, "rejected", "an operator rejected this device")
            )
        self._after()
        return rejected

    async def revoke(self, text: str, why: str, asker: Asker) -> Enrolled:
        """Put a device out for good. Raises ``NotFound``, ``UsageInvalid`` and ``StoreFailed``."""
        found = self._book.find(text)
        candidates = [device for device in found if device.state in BELONGING]
        if not candidates:
            known = ", ".join(f"{device.label} ({device.state})" for device in found)
            raise NotFound(f"no accepted device {text[:130]!r}", found=known or None, hint="outstation keys list")
        if len(candidates) > 1:
            raise UsageInvalid(
                f"several devices say that they are {text}",
                error_id="keys.several",
                found=", ".join(device.name for device in candidates),
                hint=f"outstation keys revoke {candidates[0].name}",
            )
        # Nobody has a private key to the identity of an SSH device: no list has to tell others of it.
        put_out = self._put_out if candidates[0].link == "mqtt" else self._put_out_here
        return await self._revoke(candidates[0].did, why, asker, put_out)

    async def mark_revoked(self, dids: Sequence[str], why: str) -> None:
        """Write down that devices are revoked by a list that came from elsewhere."""
        for did in dids:
            device = self._book.get(did)
            if device is not None and device.state in BELONGING:
                await self._revoke(did, why, Asker("a master", "above"), self._put_out_here)

    async def _revoke(self, did: str, why: str, asker: Asker, put_out: PutOut) -> Enrolled:
        async with self._admission.turn(did):
            device = self._book.get(did)
            if device is None or device.state not in BELONGING:
                raise NotFound(f"no accepted device {did}", hint="outstation keys list")
            revoked = replace(device, state="revoked", password_hash="", password_next="", asked=b"", detail=why)
            events = [self._journal.key(revoked, "delete"), self._journal.auth(revoked, "revoke")]
            statements, tell = self._journal.telling(
                [putting([revoked]), *(statement for leaving in self._leaving for statement in leaving(revoked))],
                events,
                [self._deed(asker, "keys.revoke", revoked, why)],
            )
            # It counts at once; what is on disk follows, or it counts no more.
            self._book.put(revoked)
            # Its successor may ask already under the same name: it waits until the registry has let go of this one.
            self._book.reserve(device.name, did)
            self._admission.forget(did)
        # Not in the device's turn: who carries it out may itself wait for one.
        try:
            await put_out([did], statements)
            self._registry.forget(device.name)
        except OutstationError:
            async with self._admission.turn(did):
                self._book.put(device)
            raise
        finally:
            self._book.release(device.name)
        for left in self._left:
            left(revoked)
        await tell()
        self._after()
        log.warning("device revoked name=%s did=%s by=%s why=%s", device.name, did, asker.user, why)
        return revoked

    async def quarantine(self, did: str, why: str) -> None:
        """Put a device out until an operator accepts it again, or revokes it."""
        async with self._admission.turn(did):
            device = self._book.get(did)
            if device is None or device.state != "accepted":
                return
            held = replace(device, state="quarantined", detail=why)
            deed = Deed(
                user="station",
                door="device",
                action="keys.quarantine",
                subject=f"device {held.name} {held.fingerprint}",
                verdict="deny",
                why=why,
            )
            await self._journal.commit([putting([held])], [self._journal.auth(held, "denied")], [deed])
            self._book.put(held)
            self._admission.known_to_registry(held)
        self._after()

    async def _put_out_here(self, _dids: Sequence[str], statements: Sequence[Statement]) -> None:
        await self._journal.write(statements, wipes=True)

    def _after(self) -> None:
        self._users_changed()
        self._doors.changed.set()

    @staticmethod
    def _deed(asker: Asker, action: str, device: Enrolled, why: str = "") -> Deed:
        return Deed(
            user=asker.user,
            door=asker.door,
            action=action,
            subject=f"device {device.label} {device.fingerprint}",
            verdict="allow",
            why=why,
        )


def _in_words(refusal: Refused, device: Enrolled) -> OutstationError:
    """Why a device cannot be let in although its fingerprint fits, for the operator."""
    error_id = f"keys.{refusal.reason}"
    if refusal.reason in ("bad_name", "name_taken"):
        return UsageInvalid(
            refusal.detail,
            error_id=error_id,
            where="--name",
            hint=f"outstation keys accept {device.did} --fingerprint {device.fingerprint} --name NAME",
        )
    return PolicyRefused(refusal.detail or refusal.reason, error_id=error_id, hint="outstation check")
