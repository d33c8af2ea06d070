"""What the kinds of broker have in common: its doors, who may come in, and a state to show.

The broker is a second wall: whatever travels is sealed and signed, and is checked by those it is for. The wall keeps
strangers from flooding them and devices from each other's topics.

Changes of who may come in are gathered for a moment and then put in force together: for mosquitto each is a new file
and a reload, in which it judges every connected client again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from device_agent.errors import StationFailed
from device_agent.mqtt import BrokerAddress
from device_agent.parts import Part
from gateway.broker.passwords import hash_password, is_hash
from gateway.broker.rules import ENROLL_PASSWORD, ENROLL_USER, Users, is_did
from gateway.broker.tls import TlsAuthority

log = logging.getLogger(__name__)

GATHER_SECONDS = 0.05
FORCE_SECONDS = 30.0
"""Longest wait for a change to be in force: a failed attempt, the pause after it, and another one."""

RETRY_SECONDS = 5.0
RETRY_CEILING_SECONDS = 300.0
RENEWAL_LOOK_SECONDS = 3600.0


class _Round:
    """Changes that are put in force together."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.failure: str | None = None


class BrokerPart(Part):
    """A broker the station may rely on once it has opened.

    Who may come in can be told before it opens as well; it then opens with that.
    """

    name: ClassVar[str] = "broker"
    log_topic: ClassVar[bool] = False
    """Whether it tells the station who connects on a topic."""

    def __init__(
        self,
        *,
        site: str,
        host: str,
        port: int,
        enroll_port: int,
        tls_port: int | None = None,
        authority: TlsAuthority | None = None,
    ) -> None:
        self.site = site
        self.host = host
        self.port = port
        self.enroll_port = enroll_port
        self.tls_port = tls_port
        self._authority = authority
        self._devices: dict[str, str] = {}
        self._enrollment = False
        self._enroll_hash = hash_password(ENROLL_PASSWORD)
        self._round = _Round()
        self._changed = asyncio.Event()
        self._applying = False
        self._in_force = True
        self._opened = False
        self._behind = False
        self.hear_line: Callable[[str], bool] = _unheard

    # --- what the station asks -----------------------------------------------------------------------------------

    @abstractmethod
    def station_address(self) -> BrokerAddress:
        """Where the station itself connects, once this has opened; it alone may speak and hear everything.

        One connection at a time: its client id is the user's name, so that nobody can take its place.
        """

    async def set_users(self, users: Mapping[str, str]) -> None:
        """These devices may come in and no other: did to password hash. See ``add_user`` for what is raised."""
        for did, password_hash in users.items():
            if self._devices.get(did) != password_hash:
                _check(did, password_hash)
        await self._put(dict(users), self._enrollment)

    async def add_user(self, did: str, password_hash: str) -> None:
        """Let one more device in, or give it another password; returns when that is in force.

        Raises ``ValueError`` for what is no did or no hash, ``StationFailed`` when the broker does not take it; it is
        then tried again until it does.
        """
        _check(did, password_hash)
        await self._put({**self._devices, did: password_hash}, self._enrollment)

    async def remove_user(self, did: str) -> None:
        """Let a device in no longer; returns when its connection, if it had one, is cut."""
        await self._put({name: each for name, each in self._devices.items() if name != did}, self._enrollment)

    async def set_enrollment(self, is_open: bool) -> None:
        """Open or close the enrollment door; closing it cuts the connections of those who were inside."""
        await self._put(self._devices, is_open)

    @staticmethod
    def hash_password(password: str) -> str:
        """What the station keeps of a device's password, and gives to ``add_user``."""
        return hash_password(password)

    @property
    def tls_authority_digest(self) -> bytes | None:
        """SHA-256 over the certificate (DER) that vouches for the TLS door; None without that door."""
        return self._authority.digest if self._authority is not None else None

    @property
    def tls_authority_pem(self) -> str | None:
        """That certificate."""
        return self._authority.pem if self._authority is not None else None

    def expect_end(self) -> None:
        """The station stops; whoever told it so may have told the broker as well."""

    async def silent(self) -> str | None:
        """It has not answered for long: why this whole process must start anew; None where that mends nothing."""
        return None

    @abstractmethod
    def status(self) -> Mapping[str, Any]:
        """As the API shows it."""

    def _status(self, mode: str) -> dict[str, Any]:
        return {
            "mode": mode,
            "host": self.host,
            "port": self.port,
            "enroll_port": self.enroll_port,
            "tls_port": self.tls_port,
            "users": len(self._devices),
            "enrollment": self._enrollment,
        }

    # --- how it is put in force ----------------------------------------------------------------------------------

    @abstractmethod
    async def _apply(self) -> None:
        """Put who may come in in force. Raises ``OSError`` or ``StationFailed`` when that cannot be done now."""

    async def open(self) -> None:
        """Load what vouches for the TLS door. Raises ``ConfigInvalid`` when its file is not one of ours."""
        if self._authority is not None:
            self._authority.load()

    def _start_applying(self) -> None:
        """From now on changes are put in force; what was told before is what it opened with."""
        self._opened = True
        if self._behind:
            self._changed.set()
        self.spawn(self._apply_changes(), "changes")
        if self._authority is not None:
            self.spawn(self._renew_certificate(self._authority), "certificate")

    def _users(self, station: Mapping[str, str]) -> Users:
        """Everybody who may come in now, with the station's own."""
        self._behind = False
        enrolling = {ENROLL_USER: self._enroll_hash} if self._enrollment else {}
        return Users(devices=dict(self._devices), enrolling=enrolling, station=station)

    async def _put(self, devices: dict[str, str], enrollment: bool) -> None:
        same = devices == self._devices and enrollment == self._enrollment
        self._devices, self._enrollment = devices, enrollment
        if not self._opened:
            self._behind = True
            return
        if same and self._in_force and not self._applying and not self._changed.is_set():
            return
        self._changed.set()
        mine = self._round
        try:
            async with asyncio.timeout(FORCE_SECONDS):
                await mine.over.wait()
        except TimeoutError:
            mine.failure = f"nothing happened in {FORCE_SECONDS:g} s"
        if mine.failure is not None:
            raise StationFailed(
                "the broker has not taken who may come in; it is tried again",
                error_id="broker.rules_not_taken",
                found=mine.failure,
            )

    async def _apply_changes(self) -> None:
        taken = self._round
        failures = 0
        try:
            while True:
                await self._changed.wait()
                await asyncio.sleep(GATHER_SECONDS)
                self._changed.clear()
                taken, self._round = self._round, _Round()
                self._applying = True
                try:
                    await self._apply()
                except (OSError, StationFailed) as error:
                    taken.failure = str(error)
                self._applying = False
                self._in_force = taken.failure is None
                taken.over.set()
                if taken.failure is None:
                    failures = 0
                    continue
                pause = min(RETRY_SECONDS * 2.0**failures, RETRY_CEILING_SECONDS)
                failures = min(failures + 1, 16)
                log.error("who may come in is not in force, trying again in %g s: %s", pause, taken.failure)
                # A new change is tried at once.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._changed.wait()
                self._changed.set()
        finally:
            self._opened = False
            for left in (taken, self._round):
                if not left.over.is_set():
                    left.failure = "the broker has stopped"
                    left.over.set()

    async def _renew_certificate(self, authority: TlsAuthority) -> None:
        while True:
            await asyncio.sleep(RENEWAL_LOOK_SECONDS)
            if authority.server_is_due():
                self._changed.set()


def _unheard(_: str) -> bool:
    """Until somebody listens to the broker's log; what is heard there needs no other place."""
    return False


def _check(did: str, password_hash: str) -> None:
    if not is_did(did) or not is_hash(password_hash):
        raise ValueError(f"{did[:40]!r} with this hash is no device that may come in")
