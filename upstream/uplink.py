"""The gateway's end of the rope: a DEALER to one master at a time, driven by the spool.

It does not keep anything: what must survive is in the spool and the registry, and a master's confirmation is what lets
the spool forget. Which master comes next is decided by ``failover``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import zmq
import zmq.asyncio

from device_agent import __version__
from device_agent.backoff import Backoff
from device_agent.clock import Clock
from device_agent.errors import OutstationError, Refused
from device_agent.parts import Part
from device_agent.protocol.links import Parcel
from device_agent.protocol.messages import Cancel
from upstream import failover, frames
from upstream.curve import CurveKeys
from upstream.dealer import LinkLost, connected_dealer
from upstream.item_sender import ItemSender
from upstream.ports import JobIntake, Outgoing, Refusals, Roll, StoryTeller, TrustAbove
from upstream.story_frames import AskJob, StoryTaken

log = logging.getLogger(__name__)

HELLO_SECONDS = 5.0
"""A master that does not answer a hello in this time is not there."""

PENDING_SECONDS = 20.0
"""How long to stay with a master that knows us but has not accepted our key, before asking the next one."""

SILENT_ECHOES = 3
ROUND_CEILING_SECONDS = 30.0
SEND_SECONDS = 10.0
RESEALS_QUEUED = 256
"""Jobs that wait to be asked new seals for; one more is asked for when its devices ask again."""


@dataclass(frozen=True)
class MasterAddress:
    """One master: where it listens and its CURVE public key (Z85)."""

    address: str
    key: str


class Uplink(Part):
    """Holds on to a master, sends the spool up in order, takes jobs in. Without a master it waits to be told of one."""

    name: ClassVar[str] = "uplink"
    drain_seconds: ClassVar[float] = 5.0

    def __init__(
        self,
        *,
        site: str,
        keys: CurveKeys,
        masters: Sequence[MasterAddress],
        echo_seconds: float,
        outgoing: Outgoing,
        roll: Roll,
        intake: JobIntake,
        refusals: Refusals,
        clock: Clock,
        trust: TrustAbove | None = None,
        stories: StoryTeller | None = None,
    ) -> None:
        self._site = site
        self._keys = keys
        self._masters = tuple(masters)
        self._echo_seconds = echo_seconds
        self._outgoing = outgoing
        self._roll = roll
        self._intake = intake
        self._refusals = refusals
        self._clock = clock
        self._trust = trust
        self._stories = stories
        self._reseals: asyncio.Queue[frames.Reseal] = asyncio.Queue(maxsize=RESEALS_QUEUED)
        self._context: zmq.asyncio.Context | None = None
        self._socket: zmq.asyncio.Socket | None = None
        self._master: MasterAddress | None = None
        self._state = "connecting"
        self._since = clock.wall()
        self._last_error = ""
        self._next_attempt: float | None = None
        self._reload = asyncio.Event()
        self._items = ItemSender(outgoing)
        self._records_confirmed = 0
        self._records_confirmation = asyncio.Event()
        self._heard = 0.0
        self._stopping = False
        self._welcomed = False

    async def open(self) -> None:
        """Start walking the list; a gateway is ready without any master."""
        self._context = zmq.asyncio.Context()
        self.spawn(self._run(), "walk")

    async def drain(self) -> None:
        """Give what is spooled a moment to be confirmed, then say goodbye."""
        self._stopping = True
        if self._socket is None or self._state != "connected":
            return
        try:
            async with asyncio.timeout(self.drain_seconds * 0.8):
                await self._items.emptied()
        except TimeoutError:
            log.warning("stopping with items that no master has confirmed; they stay on disk and go up later")
        if self._socket is not None:
            await self._send(frames.Bye())

    async def close(self) -> None:
        """Free the sockets."""
        if self._context is not None:
            self._context.destroy(linger=200)

    def replace_masters(self, masters: Sequence[MasterAddress]) -> None:
        """Use another list from now on; the current link is left only when the list changed up to its master."""
        fresh, before = tuple(masters), self._masters
        place = before.index(self._master) + 1 if self._master in before else 0
        self._masters = fresh
        if fresh != before and not (place and self._state == "connected" and fresh[:place] == before[:place]):
            self._reload.set()

    async def reseal(self, site: str, jid: str, reason: str) -> None:
        """Ask for new seals of a job, for this site or for one behind it; nobody is asked while the link is down."""
        if self._state == "connected" and not self._reseals.full():
            self._reseals.put_nowait(frames.Reseal(jid=jid, site=site, reason=reason))

    def status(self) -> dict[str, Any]:
        """Where the link stands, with the truth about the next attempt."""
        return {
            "state": self._state,
            "master": self._master.address if self._master is not None else "",
            "since": self._since,
            "last_error": self._last_error,
            "next_attempt": self._next_attempt,
            "masters": [master.address for master in self._masters],
        }

    async def _run(self) -> None:
        waits = Backoff(0.5, ROUND_CEILING_SECONDS)
        state, action = failover.step(failover.State(count=len(self._masters)), failover.Event.STARTED)
        while True:
            if not self._masters:
                self._set_state("no masters")
                await self._reload.wait()
            assert isinstance(action, failover.Connect), "whatever ended a session, the next one is due"
            if action.after_round:
                await self._pause(waits.next())
            if self._reload.is_set():
                # The walk was in another list than there is now.
                self._reload.clear()
                waits.reset()
                state, action = failover.step(failover.State(count=len(self._masters)), failover.Event.STARTED)
                continue
            master = self._master = self._masters[action.index]
            # Each session is a task of its own. Until CPython 3.11.4 a task whose TaskGroup failed while it was being
            # left stays marked as cancelled, and the next asyncio.timeout in it then ends the task without a word.
            self._welcomed = False
            session = self.spawn(self._session(master), "session")
            await asyncio.wait({session})
            self._set_state("disconnected")
            if self._stopping:
                return
            log.warning("uplink lost master=%s reason=%s", master.address, self._last_error)
            if self._welcomed:
                waits.reset()
                state, _ = failover.step(state, failover.Event.WELCOMED)
            event = failover.Event.LOST if self._welcomed else failover.Event.NO_ANSWER
            state, action = failover.step(replace(state, count=len(self._masters)), event)

    async def _session(self, master: MasterAddress) -> None:
        """One connection to one master, until it is lost."""
        try:
            async with asyncio.TaskGroup() as session:
                session.create_task(self._watch_reload(), name="uplink/reload")
                await self._connect(master)
                self._welcomed = True
                if self._stories is not None:
                    # This one link is the one that the spool goes to.
                    told = self._stories.tell(master.address, lambda: True, self._send)
                    session.create_task(told, name="uplink/stories")
                session.create_task(self._receive(master.address), name="uplink/receive")
                session.create_task(self._send_trust(), name="uplink/trust")
                session.create_task(self._send_reseals(), name="uplink/reseals")
                session.create_task(self._items.run(self._send), name="uplink/items")
                session.create_task(self._send_records(), name="uplink/records")
                session.create_task(self._echo(), name="uplink/echo")
        except* LinkLost as lost:
            self._last_error = str(lost.exceptions[0])
        finally:
            self._disconnect()

    async def _pause(self, seconds: float) -> None:
        self._next_attempt = self._clock.wall() + seconds
        self._set_state("waiting")
        try:
            async with asyncio.timeout(seconds):
                await self._reload.wait()
        except TimeoutError:
            pass
        self._next_attempt = None

    async def _watch_reload(self) -> None:
        await self._reload.wait()
        raise LinkLost("the list of masters changed")

    async def _connect(self, master: MasterAddress) -> None:
        assert self._context is not None
        self._set_state("connecting")
        self._socket = connected_dealer(self._context, self._keys, master.address, master.key)
        await self._send(self._hello())
        patience, silence = HELLO_SECONDS, f"no answer in {HELLO_SECONDS:.0f} s"
        while True:
            try:
                async with asyncio.timeout(patience):
                    answer = await self._next_frame(master.address)
            except TimeoutError:
                raise LinkLost(silence) from None
            if isinstance(answer, frames.SiteWelcome):
                break
            if isinstance(answer, frames.SiteRefused):
                await self._hear_refusal(answer, master.address)
                if answer.state == "pending":
                    self._last_error = answer.reason
                    self._set_state("pending")
                    log.info("uplink pending master=%s: %s", master.address, answer.reason)
                    patience, silence = PENDING_SECONDS, f"pending: {answer.reason}"
                    continue
                raise LinkLost(f"{answer.state}: {answer.reason}")
            self._refusals.refused("uplink", "before_welcome", master.address)
        await self._items.begin(answer, rolled_back=answer.revision > self._roll.revision)
        self._records_confirmed = answer.revision
        self._heard = self._clock.monotonic()
        self._last_error = ""
        self._set_state("connected")
        log.info("uplink connected master=%s address=%s", answer.master, master.address)

    def _hello(self) -> frames.SiteHello:
        request, certificate = self._trust.hello() if self._trust is not None else (b"", b"")
        return frames.SiteHello(
            protocol=frames.PROTOCOL,
            site=self._site,
            epoch=self._outgoing.epoch,
            release=__version__,
            request=request,
            certificate=certificate,
        )

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close(linger=0)
            self._socket = None

    def _set_state(self, state: str) -> None:
        if state != self._state:
            self._state, self._since = state, self._clock.wall()

    async def _send(self, frame: frames.FromSite) -> None:
        assert self._socket is not None
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._socket.send(frames.encode(frame))
        except TimeoutError:
            raise LinkLost(f"nothing could be sent for {SEND_SECONDS:.0f} s") from None

    async def _next_frame(self, master: str) -> frames.FromMaster:
        assert self._socket is not None
        while True:
            parts = await self._socket.recv_multipart()
            self._heard = self._clock.monotonic()
            try:
                if len(parts) != 1:
                    raise Refused("malformed", f"{len(parts)} frames, expected 1")
                return frames.decode_from_master(parts[0])
            except Refused as refusal:
                self._refusals.refused("uplink", refusal.reason, master, refusal.detail)

    async def _receive(self, master: str) -> None:
        while True:
            match await self._next_frame(master):
                case frames.SiteJob(job=job, remaining=remaining, sealed=sealed):
                    await self._intake.accept_from_above(Parcel(job, tuple(sealed)), remaining, master)
                case Cancel(jid=jid):
                    await self._intake.cancel_from_above(jid)
                case frames.Confirmed() as confirmed:
                    await self._items.confirmed(confirmed)
                case frames.RecordsConfirmed(revision=revision):
                    self._records_confirmed = max(self._records_confirmed, revision)
                    self._records_confirmation.set()
                case frames.SiteTrust() as trust:
                    if self._trust is not None:
                        await self._trust.told(trust, master)
                case frames.SiteRefused(state=state, reason=reason) as refused:
                    await self._hear_refusal(refused, master)
                    raise LinkLost(f"{state}: {reason}")
                case frames.HelloAgain():
                    raise LinkLost("the master does not know this connection any more")
                case AskJob(jid=jid, anew=anew):
                    if self._stories is not None:
                        self._stories.ask(master, jid, anew=anew)
                case StoryTaken():
                    if self._stories is not None:
                        self._stories.taken(master)
                case frames.EchoReply() | frames.SiteWelcome():
                    pass

    async def _hear_refusal(self, refused: frames.SiteRefused, master: str) -> None:
        """Who turns us away may have revoked our key: that is heard all the same, and judged like any proof."""
        if self._trust is not None and refused.revocations:
            await self._trust.told(frames.SiteTrust(revocations=refused.revocations), master)

    async def _send_trust(self) -> None:
        """Group keys and requests: what this master has not been told since this connection began."""
        if self._trust is None:
            return
        sent: dict[tuple[type, str | bytes], frames.Told] = {}
        while True:
            self._trust.changed.clear()
            known = {frames.subject(entry): entry for entry in self._trust.tells()}
            news = [entry for key, entry in known.items() if sent.get(key) != entry]
            for frame in frames.told_frames(news):
                await self._send(frame)
            sent = known
            await self._trust.changed.wait()

    async def _send_reseals(self) -> None:
        while True:
            await self._send(await self._reseals.get())

    async def _send_records(self) -> None:
        while True:
            self._roll.changed.clear()
            try:
                records = await self._roll.records_after(self._records_confirmed)
            except OutstationError as error:
                raise LinkLost(f"the registry cannot be read: {error.what}") from None
            if not records:
                await self._roll.changed.wait()
                continue
            self._records_confirmation.clear()
            await self._send(frames.DeviceRecords(self._outgoing.epoch, records))
            # One page under way: a registry is state, and a later page would only repeat what this one settles.
            while self._records_confirmed < records[-1].revision:
                await self._records_confirmation.wait()
                self._records_confirmation.clear()

    async def _echo(self) -> None:
        nonce = 0
        while True:
            nonce += 1
            await self._send(frames.Echo(nonce))
            await asyncio.sleep(self._echo_seconds)
            silent = self._clock.monotonic() - self._heard
            if silent > self._echo_seconds * SILENT_ECHOES:
                raise LinkLost(f"no echo for {silent:.0f} s")
