"""The devices that are reached over SSH: where they are, by which host keys they are known, what opens their doors.

An operator adds them. One that no agent speaks for becomes a member of the site of its own; one whose name is that of
an enrolled agent is the same device, by a second way. What changes is on disk first; then whoever connects is told.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from device_agent.errors import NotFound, OutstationError, PolicyRefused, Refused, UsageInvalid
from device_agent.host_port import host_port
from device_agent.parts import Part
from device_agent.protocol import tags
from device_agent.protocol.messages import Event
from gateway.audit.deed import Deed
from gateway.bus import Bus
from gateway.devices.authority import Authority
from gateway.devices.enrolled import Enrolled, Proof
from gateway.devices.enrollment import Enrollment
from gateway.devices.enrollment_journal import Asker
from gateway.devices.ssh_admission import Beside, Pin
from gateway.devices.ssh_device import (
    LINK,
    LOAD,
    Entry,
    Login,
    SshDevice,
    dropping,
    from_row,
    host_key_fingerprint,
    identity,
    putting,
)
from gateway.devices.ssh_secrets import NONCE_BYTES, Sealed, Sealing, Secret, SecretLost
from gateway.fleet.join_words import JOIN
from gateway.store.reader import Reader
from gateway.store.writer import Statement

__all__ = ["Login", "Secret", "SshBook", "SshDevice"]

log = logging.getLogger(__name__)

LOOK_SECONDS = 3600.0
RETRY_SECONDS = 30.0


class Wanted(Struct, frozen=True):
    """A device as it is to be; None for a secret leaves it as it is. ``proof``: who vouches for its fingerprints."""

    device: SshDevice
    secret: Secret | None
    proof: Proof = "fingerprint"


class Sorted(Struct, frozen=True):
    """What an inventory would do: names of devices that come, that change, and that are so already."""

    added: list[str]
    changed: list[str]
    left: list[str]


class SshBook(Part):
    """All SSH devices by name, in memory and on disk. ``on_change`` tells of each that came, changed or went."""

    name: ClassVar[str] = "ssh-book"
    drain_seconds: ClassVar[float] = 1.0
    """Nothing is drained: what was asked for is on disk, or was answered with why not."""

    def __init__(self, *, site: str, authority: Authority, enrollment: Enrollment, reader: Reader, bus: Bus) -> None:
        self._authority = authority
        self._enrollment = enrollment
        self._reader = reader
        self._bus = bus
        self._site = site
        self._sealing = Sealing(authority.signing.private)
        self._entries: dict[str, Entry] = {}
        self._calls: list[Callable[[str], None]] = []
        self._changing = asyncio.Lock()
        self._look = asyncio.Event()

    async def open(self) -> None:
        """Load every device."""
        for row in await self._reader.rows(LOAD):
            entry = from_row(row)
            self._entries[entry.device.name] = entry
        self._enrollment.verdicts.leave_with(self._leaving, self._left)
        self._authority.on_change(self._look_again)
        self._look.set()
        self.spawn(self._recertify(), "recertify")

    # --- asked by everybody ----------------------------------------------------------------------------------------

    def on_change(self, call: Callable[[str], None]) -> None:
        """Call with a device's name whenever it came, changed or went."""
        self._calls.append(call)

    def all(self) -> list[SshDevice]:
        """Every device."""
        return [entry.device for entry in self._entries.values()]

    def by_name(self, name: str) -> SshDevice | None:
        """The device that has this name."""
        entry = self._entries.get(name)
        return entry.device if entry is not None else None

    def secret(self, name: str) -> Secret:
        """What opens a device's door. Raises ``NotFound`` and ``SecretLost``."""
        entry = self._entry(name)
        return self._opened(entry)

    def lost(self) -> list[str]:
        """Those whose secrets cannot be opened with the keys that this station has."""
        found = []
        for name in self._entries:
            try:
                self.secret(name)
            except SecretLost:
                found.append(name)
        return found

    def identity(self, name: str) -> Enrolled | None:
        """Its enrollment, or that of the agent of the same name (``link`` says which); None when it is out."""
        device, entry = self._enrollment.by_name(name), self._entries.get(name)
        if device is None or device.state != "accepted":
            return None
        # Its certificate is signed, its row is not: pins that somebody wrote into the store do not count.
        forged = device.link == LINK and entry is not None and device.sig != self._identity(entry)
        return None if forged else device

    def sort(self, wanted: Sequence[Wanted]) -> Sorted:
        """What ``put`` would do."""
        found = Sorted([], [], [])
        for each in wanted:
            name = each.device.name
            known = self._entries.get(name)
            if known is None:
                found.added.append(name)
            elif self._differs(known, each):
                found.changed.append(name)
            else:
                found.left.append(name)
        return found

    def room(self) -> int:
        """How many more devices this site may have. Raises ``PolicyRefused``."""
        try:
            return self._enrollment.ssh.room()
        except Refused as refusal:
            raise in_words(refusal) from None

    # --- changed by operators --------------------------------------------------------------------------------------

    async def put(self, wanted: Sequence[Wanted], asker: Asker) -> Sorted:
        """Add devices and change those that are known, in one commit. What is pinned stays: see ``accept_key``.

        Raises ``PolicyRefused``, ``UsageInvalid`` and ``StoreFailed``; then nothing has happened.
        """
        async with self._changing:
            found = self.sort(wanted)
            moving = {*found.added, *found.changed}
            entries, pins, events, deeds = [], [], [], []
            for each in wanted:
                name = each.device.name
                if name not in moving:
                    continue
                known = self._entries.get(name)
                entry = self._entry_of(known, each)
                entries.append(entry)
                act = "added" if known is None else "changed"
                events.append(self._event(entry.device, act))
                deeds.append(self._deed(asker, "devices.add" if known is None else "devices.set", entry.device, each))
                if known is None and self._enrollment.by_name(name) is None:
                    pins.append(_pin(entry, each.proof))
            if entries:
                beside = Beside([putting(entries)], events, deeds, wipes=bool(found.changed))
                try:
                    await self._enrollment.ssh.admit(pins, asker, beside)
                except Refused as refusal:
                    raise in_words(refusal) from None
            for entry in entries:
                self._entries[entry.device.name] = entry
        self._tell(entry.device.name for entry in entries)
        return found

    async def accept_key(self, name: str, fingerprints: Sequence[str], host_keys: Sequence[str], asker: Asker) -> None:
        """Pin other host keys, which an operator has named. Raises ``NotFound``, ``PolicyRefused``, ``StoreFailed``."""
        async with self._changing:
            entry = self._entry(name)
            device = replace(entry.device, fingerprints=tuple(fingerprints), host_keys=tuple(host_keys))
            fresh = self._sealed(device, secrets.token_bytes(NONCE_BYTES), self._opened(entry))
            why = f"was {', '.join(entry.device.fingerprints)}"
            deed = self._deed(asker, "devices.key", device, why=why)
            beside = Beside([putting([fresh])], [self._event(device, "key")], [deed], wipes=True)
            known = self._enrollment.by_name(name)
            try:
                if known is not None and known.link == LINK:
                    await self._enrollment.ssh.repin(known.did, _pin(fresh, "fingerprint"), asker, beside)
                else:
                    await self._enrollment.ssh.admit([], asker, beside)
            except Refused as refusal:
                raise in_words(refusal) from None
            self._entries[name] = fresh
        self._tell([name])

    async def met(self, name: str, host_key: str) -> None:
        """A host showed the key of a pinned fingerprint: from now on it is known itself. Raises ``Refused``."""
        fingerprint = host_key_fingerprint(host_key)
        line = " ".join(host_key.split()[:2])
        async with self._changing:
            entry = self._entries.get(name)
            if entry is None or fingerprint not in entry.device.fingerprints:
                raise Refused("host_key", f"{name} showed {fingerprint}, which is not pinned")
            if line in entry.device.host_keys:
                return
            fresh = replace(entry, device=replace(entry.device, host_keys=(*entry.device.host_keys, line)))
            await self._enrollment.ssh.admit([], Asker("station"), Beside([putting([fresh])]))
            self._entries[name] = fresh

    async def remove(self, name: str, why: str, asker: Asker) -> SshDevice:
        """Put a device out at once, with what opened its door; an agent of the same name stays.

        Raises ``NotFound``, ``UsageInvalid`` for one through which others are reached, and ``StoreFailed``.
        """
        device = self._entry(name).device
        behind = sorted(other.name for other in self.all() if other.jump == name)
        if behind:
            raise UsageInvalid(
                f"other devices are reached through {name}",
                error_id="ssh.jump",
                found=", ".join(behind[:10]) + (" …" if len(behind) > 10 else ""),
                allowed="a device that is nobody's jump host",
                hint=f"outstation devices set {behind[0]} --jump OTHER   (or --jump '' for none)",
            )
        known = self._enrollment.by_name(name)
        if known is not None and known.link == LINK:
            await self._enrollment.verdicts.revoke(known.did, why, asker)
            return device
        async with self._changing:
            deed = self._deed(asker, "devices.remove", device, why=why)
            beside = Beside(dropping([name]), [self._event(device, "removed")], [deed], wipes=True)
            await self._enrollment.ssh.admit([], asker, beside)
            self._entries.pop(name, None)
        self._tell([name])
        return device

    # --- inside ----------------------------------------------------------------------------------------------------

    def _leaving(self, device: Enrolled) -> list[Statement]:
        """What goes with a device that is revoked, however it was reached."""
        return dropping([device.name]) if device.name in self._entries else []

    def _left(self, device: Enrolled) -> None:
        if self._entries.pop(device.name, None) is not None:
            self._tell([device.name])

    def _entry(self, name: str) -> Entry:
        entry = self._entries.get(name)
        if entry is None:
            raise NotFound(f"no SSH device {name[:130]!r}", error_id="device.unknown", hint="outstation devices list")
        return entry

    def _entry_of(self, known: Entry | None, wanted: Wanted) -> Entry:
        if known is None:
            device = replace(wanted.device, added=self._authority.now())
            return self._sealed(device, secrets.token_bytes(NONCE_BYTES), wanted.secret or Secret())
        pinned = known.device
        device = replace(
            wanted.device,
            fingerprints=pinned.fingerprints,
            host_keys=pinned.host_keys,
            added=pinned.added,
            added_by=pinned.added_by,
        )
        if wanted.secret is None:
            return Entry(device, known.nonce, known.sealed)
        return self._sealed(device, known.nonce, wanted.secret)

    def _identity(self, entry: Entry) -> bytes:
        return identity(self._site, entry.device.name, entry.nonce, entry.device.fingerprints)

    def _sealed(self, device: SshDevice, nonce: bytes, secret: Secret) -> Entry:
        entry = Entry(device, nonce, Sealed())
        return replace(entry, sealed=self._sealing.seal(self._identity(entry), secret))

    def _opened(self, entry: Entry) -> Secret:
        return self._sealing.open(entry.device.name, self._identity(entry), entry.sealed)

    def _differs(self, known: Entry, wanted: Wanted) -> bool:
        if self._entry_of(known, replace(wanted, secret=None)).device != known.device:
            return True
        if wanted.secret is None:
            return False
        try:
            return self._opened(known) != wanted.secret
        except OutstationError:
            # What cannot be opened is replaced.
            return True

    def _event(self, device: SshDevice, act: str) -> Event:
        data: dict[str, object] = {
            "id": device.name,
            "act": act,
            "address": device.address,
            "login": device.login,
            "jump": device.jump,
            "fingerprints": list(device.fingerprints),
        }
        return self._bus.event(tags.device_ssh(device.name), data)

    @staticmethod
    def _deed(asker: Asker, action: str, device: SshDevice, wanted: Wanted | None = None, why: str = "") -> Deed:
        if wanted is not None:
            login = f"by {device.login}" if wanted.secret is None else f"by a new {device.login}"
            through = f" through {device.jump}" if device.jump else ""
            why = f"ssh {device.address} {login}{through}, host key by {wanted.proof.replace('_', ' ')}"
        return Deed(
            user=asker.user,
            door=asker.door,
            action=action,
            subject=f"device {device.name} {', '.join(device.fingerprints)}",
            verdict="allow",
            why=why,
        )

    def _tell(self, names: Iterable[str]) -> None:
        for name in names:
            for call in self._calls:
                call(name)

    async def _look_again(self) -> None:
        self._look.set()

    async def _recertify(self) -> None:
        """Certificates of devices without an agent are renewed here: nobody asks for them."""
        while True:
            self._look.clear()
            wait = LOOK_SECONDS
            try:
                async with self._changing:
                    renewed = await self._enrollment.ssh.recertify()
                if renewed:
                    log.info("certificates of SSH devices renewed devices=%d", renewed)
            except OutstationError as error:
                log.error("certificates of SSH devices not renewed, tried again error=%s", error.what)
                wait = RETRY_SECONDS
            try:
                async with asyncio.timeout(wait):
                    await self._look.wait()
            except TimeoutError:
                continue


def in_words(refusal: Refused) -> OutstationError:
    """Why devices cannot be let in, for the operator."""
    if refusal.reason == "not_joined":
        return PolicyRefused(
            "this gateway belongs to no fleet yet, so it lets no devices in",
            error_id="station.not_joined",
            hint=JOIN,
        )
    if refusal.reason == "name_taken":
        return UsageInvalid(refusal.detail, error_id="keys.name_taken", hint="outstation devices list")
    return PolicyRefused(refusal.detail or refusal.reason, error_id=f"keys.{refusal.reason}", hint="outstation check")


def _pin(entry: Entry, proof: Proof) -> Pin:
    return Pin(
        name=entry.device.name,
        address=host_port(entry.device.host, entry.device.port),
        fingerprints=entry.device.fingerprints,
        nonce=entry.nonce,
        proof=proof,
    )
