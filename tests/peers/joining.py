"""A site that devices ask to join: the real enrollment on a real store, and devices that hold their keys.

The site's authority is real as well, with a certificate by the fleet in ``fleet``; only the broker is a double.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from device_agent.clock import Clock
from device_agent.protocol.messages import decode_stored
from device_agent.trust import join
from device_agent.trust.join_answer import Accepted, NotYet, open_response
from device_agent.trust.keys import KemKey, SigningKey, did_text, fingerprint
from device_agent.trust.policy import SitePolicy
from device_agent.trust.token import JoinToken
from gateway.audit.book import AuditBook
from gateway.bus import Bus
from gateway.devices.authority import Authority
from gateway.devices.doors import TokenWish
from gateway.devices.enrollment import Enrollment
from gateway.devices.enrollment_journal import Asker
from gateway.devices.enrollment_ports import Entrance
from gateway.devices.registry import Registry
from gateway.metrics import Metrics
from gateway.spool.queue import Spool
from gateway.store.migrate import migrate
from gateway.store.reader import Reader
from gateway.store.writer import Statement, Writer
from tests.peers.clock import HandClock
from tests.peers.fleet import Fleet, Party, kem_key, signing_key
from upstream.curve import key_bytes, load_or_make

ALICE = Asker("alice")
ADDRESS = "gateway.example:1885"
_nonces = itertools.count(1)


@dataclass
class JoiningDevice:
    """A device with keys of its own that wants to join."""

    name: str
    key: SigningKey
    kem: KemKey
    serial: str
    model: str = "model-x"
    asked: join.Request | None = None

    @property
    def did(self) -> str:
        return did_text(self.key.did)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.key.public)

    def request(self, token: JoinToken | None = None, **changes: Any) -> bytes:
        """A fresh request, with these changes; the answer is held against it."""
        facts: dict[str, Any] = {"serial": self.serial, "model": self.model, **changes}
        self.asked = join.request(
            self.key,
            self.kem.public,
            nonce=next(_nonces).to_bytes(16, "big"),
            token=(token.id, token.secret) if token is not None else None,
            **facts,
        )
        return self.asked.payload

    def confirmation(self, site: str = "lisbon") -> bytes:
        assert self.asked is not None
        return join.confirm(self.key, site=site, request_body=self.asked.body)

    def opened(self, answer: bytes, fleet: Fleet) -> Accepted | NotYet:
        """What the answer says to us; the fleet's root is pinned."""
        assert self.asked is not None
        return open_response(answer, self.asked, self.kem, site=None, pinned=fleet.fingerprint, floor=fleet.now)


def a_device(name: str = "cam-1", **changes: Any) -> JoiningDevice:
    return JoiningDevice(name, signing_key(name), kem_key(name), **{"serial": name, **changes})


@dataclass
class PlayedBroker:
    """A broker that remembers what it was told."""

    users: dict[str, str] = field(default_factory=dict)
    is_open: bool | None = None
    told: list[bool] = field(default_factory=list)

    async def set_users(self, users: Mapping[str, str]) -> None:
        self.users = dict(users)

    async def set_enrollment(self, is_open: bool) -> None:
        self.is_open = is_open
        self.told.append(is_open)


@dataclass
class Group:
    """A group key in its first epoch."""

    epoch: int = 1
    key: bytes = bytes(range(32))


@dataclass
class JoinSite:
    """The site, and what went out of it."""

    enrollment: Enrollment
    registry: Registry
    authority: Authority
    fleet: Fleet
    path: Path
    writer: Writer
    bus: Bus
    metrics: Metrics
    clock: Clock
    broker: PlayedBroker
    answers: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))

    async def ask(
        self, device: JoiningDevice, token: JoinToken | None = None, **changes: Any
    ) -> Accepted | NotYet | None:
        """Ask to join with a fresh request; the answer, or None when there was none."""
        return await self.hand_in(device, device.request(token, **changes))

    async def hand_in(self, device: JoiningDevice, payload: bytes) -> Accepted | NotYet | None:
        """Hand in a request as it is, later than any before it."""
        if isinstance(self.clock, HandClock):
            self.clock.move(2.0)
        before = len(self.answers[device.did])
        await self.enrollment.request(payload)
        await self.enrollment.settled()
        fresh = self.answers[device.did][before:]
        return device.opened(fresh[-1], self.fleet) if fresh else None

    async def join(self, device: JoiningDevice, token: JoinToken | None = None) -> Accepted:
        """Ask, be accepted, and say so."""
        answer = await self.ask(device, token)
        assert isinstance(answer, Accepted), answer
        await self.confirm(device)
        return answer

    async def confirm(self, device: JoiningDevice) -> None:
        await self.enrollment.request(device.confirmation())
        await self.enrollment.settled()

    async def token(self, **wish: Any) -> JoinToken:
        """A fresh join token, as the device reads it."""
        (made,) = await self.enrollment.doors.new_tokens(TokenWish(**wish), ALICE)
        return JoinToken.from_text(self.enrollment.doors.text(made))

    async def window(self, **changes: Any) -> None:
        """Open a join window."""
        terms: dict[str, Any] = {"seconds": 600.0, "most": 200, "subnet": "", "model": "", **changes}
        await self.enrollment.doors.open_window(asker=ALICE, **terms)

    def look(self, sql: str, *values: Any) -> list[Any]:
        """Rows, by a connection of the test's own: what anybody finds in the file."""
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(sql, values).fetchall()

    def states(self) -> dict[str, str]:
        """The state of each did, as on disk, which is that in memory."""
        found = dict(self.look("SELECT did, state FROM enrolled"))
        assert found == {device.did: device.state for device in self.enrollment.all()}
        return found

    def events(self, tag: str) -> list[dict[str, Any]]:
        """The data of the events under a tag, as on disk."""
        return [decode_stored(body) for (body,) in self.look("SELECT data FROM events WHERE tag = ? ORDER BY id", tag)]

    def deeds(self) -> list[tuple[str, str, str]]:
        """User, action and verdict of the audit, as on disk."""
        return self.look("SELECT user, action, verdict FROM audit ORDER BY id")


def hand(site: JoinSite) -> HandClock:
    """The clock of a site whose clock is moved by hand."""
    assert isinstance(site.clock, HandClock)
    return site.clock


async def told(site: JoinSite, name: str = "cam-1", token: JoinToken | None = None) -> str:
    """The state that a device is told."""
    answer = await site.ask(a_device(name), token)
    assert isinstance(answer, NotYet)
    assert answer.verified
    return answer.state


@asynccontextmanager
async def opened_site(
    folder: Path,
    *,
    site: str = "lisbon",
    clock: Clock | None = None,
    policy: SitePolicy | None = None,
    joined: bool = True,
    before: Sequence[Statement] = (),
) -> AsyncIterator[JoinSite]:
    """The enrollment of a site on the store in a folder; ``before`` is put there first."""
    clock = clock or HandClock()
    fleet = Fleet(site)
    async with AsyncExitStack() as stack:
        path = folder / "station.sqlite"
        epoch = migrate(path)
        writer = await stack.enter_async_context(Writer(path))
        reader = await stack.enter_async_context(Reader(path))
        await writer.commit(before)
        curve = load_or_make(folder / "curve.key")
        authority = Authority(folder, role="gateway", site=site, curve=curve, clock=clock)
        if joined:
            party = Party(site, authority.signing, authority.kem, key_bytes(curve.public))
            certificate = fleet.certify_site(party, policy=policy or SitePolicy())
            await authority.join(fleet.fingerprint, [])
            await authority.install(root_lists=fleet.chain, certificate=certificate)
        metrics = Metrics(clock)
        spool = Spool(writer, reader, epoch, enabled=True)
        bus = Bus(writer, reader, spool, metrics, clock, site)
        registry = Registry(site=site, writer=writer, reader=reader, bus=bus, metrics=metrics, clock=clock)
        await stack.enter_async_context(registry)
        enrollment = Enrollment(
            site=site,
            authority=authority,
            group=Group(),
            entrance=lambda: Entrance(port=1884, enrollment_port=1885, address=ADDRESS),
            registry=registry,
            writer=writer,
            reader=reader,
            bus=bus,
            spool=spool,
            audit=AuditBook(site=site, writer=writer, spool=spool, clock=clock),
            metrics=metrics,
            clock=clock,
        )
        broker = PlayedBroker()
        played = JoinSite(enrollment, registry, authority, fleet, path, writer, bus, metrics, clock, broker)

        async def respond(did: str, answer: bytes) -> None:
            played.answers[did].append(answer)

        enrollment.respond_with(respond)
        await stack.enter_async_context(enrollment)
        await enrollment.use_broker(broker)
        yield played
