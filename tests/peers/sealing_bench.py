"""A device that changes its sealing key, and the station's side of it, in memory; what the device keeps is on disk."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from device_agent import identity
from device_agent.errors import Refused
from device_agent.guard import Guard
from device_agent.protocol.messages import Certificate
from device_agent.questions import PATIENCE_SECONDS, Unanswered
from device_agent.sealing_rotation import SealingRotation
from device_agent.trust.key_change import ABOUT
from device_agent.trust.sealing_keys import SealingKeys
from device_agent.trust.signed_job import open_single, read_job
from gateway.devices.enrolled import Enrolled
from gateway.devices.key_changes import KeyChanges
from gateway.devices.sessions import Sessions
from gateway.metrics import Metrics
from tests.peers.guarded import Guarded

DAY = 86_400
YEAR = 365 * DAY


class Station:
    """Implements the device's ``Station`` and the members and sessions of the real ``KeyChanges``."""

    def __init__(self, device: Guarded) -> None:
        self.device = device
        self.answers: Callable[[], None] = lambda: None
        """Called before an answer goes out; what it raises is the answer."""
        self.brings = True
        self.heard: list[bytes] = []
        self.metrics = Metrics(device.clock)
        self.changes = KeyChanges(
            device.site.site,
            self,
            cast("Sessions", self),
            self._bring,
            self.metrics,
            device.clock,
        )

    @property
    def kem(self) -> bytes:
        """The key that the station and the masters seal to."""
        return self.device.site.requests[self.device.did].kem

    def by_name(self, name: str) -> Enrolled | None:
        identity = self.device.identity
        return Enrolled(
            did=identity.did,
            state="accepted",
            name=name,
            sig=identity.sig.public,
            kem=self.kem,
            serial="",
            model="",
            certificate=self.device.site.certify(identity.did, "cam-7"),
            first_seen=0.0,
            last_seen=0.0,
        )

    def find(self, did: str) -> object:
        """The session of a device, as ``Sessions.find`` has it."""
        session = self.device.site.sessions.get(did)
        return SimpleNamespace(session=session) if session is not None else None

    async def renew(self, did: str, kem: bytes | None = None) -> bytes:
        site = self.device.site
        site.requests[did] = replace(site.requests[did], kem=kem or site.requests[did].kem)
        return site.certify(did, "cam-7")

    def _bring(self, did: str) -> None:
        if self.brings:
            self.bring()

    def bring(self) -> None:
        """The certificate goes out to the device."""
        device = self.device
        frame = device.site.frame(device.did, Certificate(device.site.certify(device.did, "cam-7")))
        device.tell_me(frame)

    async def ask(self, about: str, body: bytes = b"", *, patience: float = PATIENCE_SECONDS) -> bytes:
        assert about == ABOUT
        self.heard.append(body)
        self.answers()
        return await self.changes.answer("cam-7", body)


class SealingBench:
    """The device with its folder, and the station."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.device = Guarded()
        self.station = Station(self.device)
        self.file = identity.IdentityFile(folder)
        self.file.save(self.device.identity.to_bytes())
        self.device.identity.changed = False
        self.start()

    @property
    def keys(self) -> SealingKeys:
        return self.device.identity.sealing

    def start(self, folder: Path | None = None) -> None:
        """The agent starts from what is on its flash, connects, and has a session."""
        device = self.device
        if folder is not None:
            self.file = identity.IdentityFile(folder)
        loaded = self.file.load()
        assert loaded is not None
        device.identity = loaded
        device.guard = Guard(
            loaded,
            marks={},
            publish=lambda topic, payload: device.said.append((topic, payload)),
            clock=device.clock,
            counters=device.counters,
            randomness=random.Random(7),
        )
        device.live()
        self.rotation = SealingRotation(device.guard, self.station, self.keep, device.clock)

    async def keep(self) -> None:
        self.file.save(self.device.identity.to_bytes(), self.keys.to_bytes())

    async def look(self, interval: int = YEAR) -> None:
        """One look of the rotation, and the write that the agent makes of what has changed."""
        await self.rotation.look(interval)
        await self.write_changes()

    async def write_changes(self) -> None:
        if self.device.identity.changed:
            await self.keep()
            self.device.identity.changed = False

    def pass_time(self, seconds: float) -> None:
        """Time passes; the device has another session then, as each lasts a day, and the site another certificate."""
        site = self.device.site
        self.device.clock.move(seconds)
        site.certificates = [site.fleet.certify_site(issued=site.now(), expires=site.now() + 30 * DAY)]
        site.sessions.clear()
        self.device.guard.lost()
        self.device.live()

    def recorded(self, number: int = 1) -> bytes:
        """A job for this device alone, as it is sealed now."""
        return self.device.site.sealed(number, to=self.device.did)

    def opens(self, job: bytes, folder: Path | None = None) -> bool:
        """Whether what is on this flash opens the seal of a job."""
        stolen = identity.IdentityFile(folder or self.folder).load()
        assert stolen is not None
        read = read_job(job)
        try:
            open_single(read.verified(self.device.site.fleet.a.key.public), *stolen.kems)
        except Refused:
            return False
        return True

    def copy(self, name: str) -> Path:
        """The flash as it is now."""
        return Path(shutil.copytree(self.folder, self.folder.parent / name))


def not_answered() -> None:
    raise Unanswered("nobody answered")
