"""The group key of this site: made here, counted in epochs, sealed to each device and to each master.

It gives privacy only; who ordered a job is what a signature says. It changes on every revocation, when a master is
dropped, and every thirty days.
The count belongs to the site's signing key: another key begins again with its first epoch.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

from device_agent.errors import Refused
from device_agent.mqtt import NotConnected
from device_agent.parts import Part
from device_agent.protocol import topics
from device_agent.trust import hpke
from device_agent.trust.epochs import GROUP_KEY_BYTES, PREVIOUS_SECONDS, seal_epoch
from gateway.devices.authority import Authority
from gateway.devices.enrolled import Enrolled
from gateway.devices.sessions import Send, nowhere
from gateway.metrics import Metrics
from gateway.store.reader import Reader
from gateway.store.writer import Statement, StoreFailed, Writer

log = logging.getLogger(__name__)

ROTATE_SECONDS = 30 * 86_400.0
LOOK_SECONDS = 60.0
TURN = 16
"""Keys sealed before everything else gets its turn: each costs a third of a millisecond."""

MASTER_INFO = b"os1 epm"


@dataclass(frozen=True, slots=True)
class _Epoch:
    number: int
    key: bytes
    made: float
    revocation: bool


class Epochs(Part):
    """The newest group key and the one before, and who still has to be told of the newest."""

    name: ClassVar[str] = "epochs"

    def __init__(
        self,
        *,
        site: str,
        authority: Authority,
        writer: Writer,
        reader: Reader,
        metrics: Metrics,
    ) -> None:
        self._site = site
        self._authority = authority
        self._writer = writer
        self._reader = reader
        self._metrics = metrics
        self._kid = b""
        self._held: dict[int, _Epoch] = {}
        self._masters: set[bytes] = set()
        self._rotating = asyncio.Lock()
        self._owed: dict[str, None] = {}
        self._owed_wake = asyncio.Event()
        self._present: Callable[[], list[str]] = list
        self._may_know: Callable[[str], Enrolled] = _is_unknown
        self._send: Send = nowhere
        self._on_change: Callable[[], None] = _nobody

    async def open(self) -> None:
        """Load the keys of this site's signing key, or make the first."""
        rows = await self._reader.rows(
            "SELECT epoch, key, made, revocation FROM epochs WHERE kid = ?", (self._authority.signing.kid,)
        )
        self._kid = self._authority.signing.kid
        self._held = {number: _Epoch(number, key, made, bool(flag)) for number, key, made, flag in rows}
        self._masters = self._counting_masters()
        await self.look()
        self._authority.on_change(self._look)
        self.spawn(self._run(), "rotate")
        self.spawn(self._tell(), "tell")

    def tell_with(self, *, present: Callable[[], list[str]], may_know: Callable[[str], Enrolled], send: Send) -> None:
        """Tell devices: who is here, who may know (raises ``Refused``), and by what way. Until then nobody is told."""
        self._present, self._may_know, self._send = present, may_know, send

    def on_change(self, call: Callable[[], None]) -> None:
        """Call after there is another epoch: masters must be told, and jobs sealed anew."""
        self._on_change = call

    # --- what is known ---------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The newest epoch."""
        return max(self._held)

    @property
    def key(self) -> bytes:
        """The newest group key."""
        return self._held[self.epoch].key

    @property
    def made(self) -> float:
        """When the newest was made, in wall seconds."""
        return self._held[self.epoch].made

    def key_of(self, epoch: int) -> bytes | None:
        """The key of the newest epoch or the one before, for jobs that are under way."""
        held = self._held.get(epoch)
        return held.key if held is not None else None

    def counting(self, epoch: int) -> bytes:
        """The key of an epoch that counts now, as a device holds it. Raises ``Refused`` as ``GroupKeys.key`` does."""
        newest, held = self._held[self.epoch], self._held.get(epoch)
        if epoch > newest.number:
            raise Refused("unknown_epoch", f"{epoch}, known is {newest.number}")
        is_recent = not newest.revocation and 0 <= self._authority.now() - newest.made < PREVIOUS_SECONDS
        if held is None or (held is not newest and not is_recent):
            raise Refused("stale_epoch", f"{epoch}, newest is {newest.number}")
        return held.key

    def group_key(self, site: str) -> tuple[int, bytes] | None:
        """The newest epoch and key, for whoever asks by site."""
        return (self.epoch, self.key) if site == self._site and self._held else None

    def sealed_for(self, device: Enrolled) -> bytes:
        """The newest group key for one device."""
        newest = self._held[self.epoch]
        return seal_epoch(
            self._authority.signing,
            device=device.did,
            site=self._site,
            issued=int(self._authority.now()),
            epoch=newest.number,
            revocation=newest.revocation,
            group_key=newest.key,
            kem_public=device.kem,
        )

    def for_masters(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        """The newest epoch, and its key sealed to each master of the root list, by the master's kid."""
        root = self._authority.anchor.root
        info = master_info(self._site, self._authority.signing.kid, self.epoch)
        return self.epoch, [
            (master.kid, hpke.seal(master.kem, info, self.key)) for master in (root.masters if root else ())
        ]

    # --- another one -----------------------------------------------------------------------------------------------

    async def rotate(self, *, revocation: bool = False, above: int = 0) -> int:
        """Make another group key, on disk before it counts, and tell every device that is here. Raises ``StoreFailed``.

        ``revocation``: devices let go of the one before at once. Its number is higher than ``above``.
        """
        async with self._rotating:
            kid, now = self._authority.signing.kid, self._authority.now()
            held = self._held if kid == self._kid else {}
            number = max(above, max(held, default=0)) + 1
            before = [epoch for epoch in held.values() if epoch.number == number - 1]
            # A device may have missed the one before, and its flag with it.
            urgent = any(epoch.revocation and now - epoch.made < PREVIOUS_SECONDS for epoch in before)
            fresh = _Epoch(number, secrets.token_bytes(GROUP_KEY_BYTES), now, revocation or urgent)
            await self._writer.commit(_replacing(kid, fresh), wipes=True)
            self._kid = kid
            self._held = {epoch.number: epoch for epoch in (*before, fresh)}
        self.owe(self._present())
        self._on_change()
        log.info("group key changed epoch=%d revocation=%s", number, fresh.revocation)
        return number

    async def go_above(self, known: int) -> None:
        """A master knows this epoch of this site, and takes none but a higher one. Raises ``StoreFailed``.

        It can be above our own when our store was lost or is an older one. What is above the time in seconds is no
        count of keys: nobody may use the numbers up.
        """
        if self.epoch < known <= self._authority.now():
            await self.rotate(above=known)

    async def look(self) -> None:
        """Make another key where one is due: the site's signing key changed, a master was dropped, this one is old."""
        before, masters = self._masters, self._counting_masters()
        is_ours = self._held and self._kid == self._authority.signing.kid
        is_old = not is_ours or not -ROTATE_SECONDS < self._authority.now() - self.made < ROTATE_SECONDS
        if is_old or before - masters:
            await self.rotate()
        self._masters = masters

    def _counting_masters(self) -> set[bytes]:
        return {master.kid for master in self._authority.anchor.masters}

    async def _look(self) -> None:
        try:
            await self.look()
        except StoreFailed as error:
            log.error("group key not changed, tried again error=%s", error)

    def owe(self, dids: Iterable[str]) -> None:
        """These devices lack the newest key."""
        self._owed.update(dict.fromkeys(dids))
        self._owed_wake.set()

    async def _tell(self) -> None:
        while True:
            await self._owed_wake.wait()
            turn = [did for did, _ in zip(self._owed, range(TURN), strict=False)]
            for did in turn:
                del self._owed[did]
            if not self._owed:
                self._owed_wake.clear()
            bodies = []
            for did in turn:
                try:
                    bodies.append((topics.device_ep(self._site, did), self.sealed_for(self._may_know(did))))
                except Refused:
                    # Put out meanwhile: then it must not be told.
                    self._metrics.add("epoch_keys_withheld")
            try:
                await self._send(bodies)
                self._metrics.add("epoch_keys_sent", len(bodies))
            except NotConnected:
                # Who connects again says which epoch it knows.
                self._metrics.add("mqtt_not_sent", len(bodies))
            await asyncio.sleep(0)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self._look()


def master_info(site: str, kid: bytes, epoch: int) -> bytes:
    """What the seal of a group key to a master binds: whose it is, and which."""
    return MASTER_INFO + kid + epoch.to_bytes(4, "big") + site.encode()


def _replacing(kid: bytes, fresh: _Epoch) -> list[Statement]:
    """The new epoch in; the one before it stays, all others are overwritten where they stand and go."""
    gone = [(kid, fresh.number - 1)]
    return [
        ("UPDATE epochs SET key = zeroblob(32) WHERE kid <> ? OR epoch < ?", gone),
        ("DELETE FROM epochs WHERE kid <> ? OR epoch < ?", gone),
        (
            "INSERT INTO epochs (kid, epoch, key, made, revocation) VALUES (?, ?, ?, ?, ?)",
            [(kid, fresh.number, fresh.key, fresh.made, int(fresh.revocation))],
        ),
    ]


def _nobody() -> None:
    """Until somebody asks to be told."""


def _is_unknown(did: str) -> Enrolled:
    raise Refused("unknown_device", did)
