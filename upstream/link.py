"""One connection to one master that keeps itself alive, whether that master is fed or stands by.

It does not keep anything, and does not know of the other masters: ``uplink`` tells it whether it is the active one.
Over a link that stands by jobs and cancels come, and registry and trust go; only the spool does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

import zmq
import zmq.asyncio

from device_agent import __version__
from device_agent.backoff import Backoff
from device_agent.errors import Refused
from device_agent.protocol.links import Parcel
from device_agent.protocol.messages import Cancel
from device_agent.protocol.questions import Answer
from upstream import frames, paging, twins
from upstream.dealer import LinkLost, connected_dealer
from upstream.echoes import Echoes
from upstream.endpoints import Endpoints, split
from upstream.item_sender import ItemSender
from upstream.ledger_sender import report_ledger
from upstream.link_terms import FIRST_WAIT_SECONDS, Ends, Spawn, pause_after_loss
from upstream.master_link import MasterLink, Pause
from upstream.question_sender import QuestionSender
from upstream.record_sender import RecordSender
from upstream.story_frames import AskJob, Story, StoryTaken, UnknownJob
from upstream.twin_frames import Twin
from upstream.window import Window

log = logging.getLogger(__name__)

HELLO_SECONDS = 5.0
"""A master that does not answer a hello in this time is not there."""

PENDING_SECONDS = 20.0
"""How long to wait at a master that knows us but has not accepted our key, before knocking again."""

ROUND_CEILING_SECONDS = 30.0
SEND_SECONDS = 10.0
RESEALS_QUEUED = 256
"""Jobs that wait to be asked new seals for; one more is asked for when its devices ask again."""


class Link(MasterLink):
    """The link to the master with this CURVE key. ``changed`` is called when it is up or down (again)."""

    def __init__(
        self, key: str, addresses: tuple[str, ...], ends: Ends, spawn: Spawn, changed: Callable[[MasterLink], object]
    ) -> None:
        super().__init__(addresses[0], ends.cut, ends.clock, spawn, changed)
        self._key = key
        self.addresses = addresses
        self._ends = ends
        self._waits = Backoff(FIRST_WAIT_SECONDS, ROUND_CEILING_SECONDS)
        self._place = 0
        self._endpoints = Endpoints()
        self._welcomed_at: float | None = None
        self._signs = False
        self._socket: zmq.asyncio.Socket | None = None
        self._said: frames.SiteHello | None = None
        self._new_to_it, self._parted = "", False
        """The epoch that was made because of this master, as long as it has not been told anything under it."""
        self._role_changed, self._trust_changed = asyncio.Event(), asyncio.Event()
        self._records = RecordSender(ends.roll, ends.outgoing, ends.prover)
        self._reseals: asyncio.Queue[frames.Reseal] = asyncio.Queue(maxsize=RESEALS_QUEUED)
        window = Window(ends.clock, ends.silence_limit)
        self._items = ItemSender(ends.outgoing, ends.budget, window, key, ends.refusals, ends.prover)
        self._echoes = Echoes(ends, window.echo_took)
        self._sender: asyncio.Task[None] | None = None
        self.asked = QuestionSender(lambda: self.up)
        """What this master is asked, while the link is up."""

    @property
    def key(self) -> str:
        """The master's CURVE key."""
        return self._key

    def use_addresses(self, addresses: tuple[str, ...]) -> None:
        """The master is reached at these addresses from now on."""
        if addresses != self.addresses:
            self.addresses, self._place = addresses, 0
            if self.address not in addresses:
                self.hang_up("the master has other addresses")

    def set_active(self, active: bool) -> None:
        """Feed this master, or let it stand by. What was on its way to it may still be confirmed."""
        self.active = active
        if not active and self._sender is not None:
            # At once, not when its turn comes: another link may begin to send in the meantime.
            self._sender.cancel()
        self._role_changed.set()

    def role_news(self) -> None:
        """What keeps this gateway from taking jobs has changed."""
        self._role_changed.set()

    def records_news(self) -> None:
        """The registry has changed."""
        self._records.news()

    def trust_news(self) -> None:
        """What this master must know of the site has changed; one that has not let it in may do so now."""
        self._trust_changed.set()
        if not self.up and self._said is not None and self._hello() != self._said:
            self.hang_up("there is more to say in the hello")

    def reseal(self, frame: frames.Reseal) -> None:
        """Ask for new seals of a job; not remembered while the link is down."""
        if self.up and not self._reseals.full():
            self._reseals.put_nowait(frame)

    async def emptied(self) -> None:
        """Return when this master has confirmed the whole spool. The caller bounds it."""
        await self._items.emptied()

    async def say_bye(self) -> None:
        """Tell the master, if it is there, that nothing more comes."""
        if self._socket is not None and self.up:
            with contextlib.suppress(LinkLost):
                await self._send(frames.Bye())

    def _lost(self, *, at_once: bool) -> Pause | None:
        log.warning("uplink lost master=%s reason=%s", self.address, self.last_error)
        if at_once:
            self._waits.reset()
            return None
        if self._welcomed_at is None:
            self._endpoints.failed()
            self._place += 1
            return Pause(self._waits.next()) if self._place % len(self.addresses) == 0 else None
        return Pause(pause_after_loss(self._ends, self._waits, self._welcomed_at))

    async def _session(self, context: zmq.asyncio.Context) -> None:
        """One connection, until it is lost."""
        self.address = self.addresses[self._place % len(self.addresses)]
        self._welcomed_at = None
        try:
            async with asyncio.TaskGroup() as session:
                session.create_task(self._watch_hang_up(), name="uplink/hang-up")
                await self._connect(context)
                if (stories := self._ends.stories) is not None:
                    told = stories.tell(self.key, lambda: self.active, self._send_story)
                    session.create_task(told, name="uplink/stories")
                session.create_task(self._receive(), name="uplink/receive")
                session.create_task(self._send_trust(), name="uplink/trust")
                session.create_task(self._send_reseals(), name="uplink/reseals")
                session.create_task(self.asked.run(self._send), name="uplink/questions")
                session.create_task(self._follow_role(session), name="uplink/role")
                session.create_task(self._items.let_go(), name="uplink/let-go")
                session.create_task(report_ledger(self._ends.outgoing, self.key, self._send), name="uplink/ledger")
                session.create_task(self._records.run(self._send), name="uplink/records")
                session.create_task(self._echoes.run(self._send), name="uplink/echo")
        except* LinkLost as lost:
            self.last_error = str(lost.exceptions[0])
        finally:
            self.up, self._sender = False, None
            self.asked.lost(f"the link to {self.address} was lost")
            if self._socket is not None:
                self._socket.close(linger=200 if self._left.is_set() else 0)
                self._socket = None

    async def _watch_hang_up(self) -> None:
        await self._hung_up.wait()
        if self._left.is_set():
            await self.say_bye()
        raise LinkLost(self._why)

    async def _connect(self, context: zmq.asyncio.Context) -> None:
        self._set_state("connecting")
        self._parted = False
        host, port = split(self.address)
        place = await self._endpoints.find(host, port, self._late)
        self._socket = connected_dealer(context, self._ends.keys, f"tcp://{place}:{port}", self.key)
        self._said = self._hello()
        await self._send(await twins.said(self._ends.marks, self.key, self._said))
        patience, silence = HELLO_SECONDS, f"no answer in {HELLO_SECONDS:.0f} s"
        while True:
            try:
                async with asyncio.timeout(patience):
                    answer = await self._next_frame()
            except TimeoutError:
                raise LinkLost(silence) from None
            if isinstance(answer, frames.SiteWelcome):
                break
            if isinstance(answer, frames.SiteRefused):
                await self._hear_refusal(answer)
                await twins.heard(self._ends.marks, self.key, self._ends.outgoing, answer)
                if answer.state == "pending":
                    self.last_error = answer.reason
                    self._set_state("pending")
                    log.info("uplink pending master=%s: %s", self.address, answer.reason)
                    patience, silence = PENDING_SECONDS, f"pending: {answer.reason}"
                    # Whoever waits for a better master does not wait for an operator.
                    self._changed(self)
                    continue
                raise LinkLost(f"{answer.state}: {answer.reason}")
            self._ends.refusals.refused("uplink", "before_welcome", self.address)
        await self._begin(answer)
        self._records.begin(answer.revision, proofs=answer.proofs, anew=answer.rows_unproven)
        self._signs = answer.proofs
        self._welcomed_at = self._ends.clock.monotonic()
        self.last_error = ""
        self.up = True
        self._set_state("connected")
        log.info("uplink connected master=%s address=%s", answer.master, self.address)
        self._changed(self)

    async def _begin(self, welcome: frames.SiteWelcome) -> None:
        """Go on where the master says; it may make the store go on under a new epoch once, not again and again."""
        ends = self._ends
        await twins.heard(ends.marks, self.key, ends.outgoing, welcome)
        if self._new_to_it == ends.outgoing.epoch and (welcome.revision or any(welcome.positions.values())):
            ends.refusals.refused("uplink", "false_position", self.address)
            raise LinkLost("the master claims to know a store that it was never told of")
        before = ends.outgoing.epoch
        try:
            await self._items.begin(welcome, rolled_back=welcome.revision > ends.roll.revision)
        finally:
            self._new_to_it = ends.outgoing.epoch if ends.outgoing.epoch != before else ""

    def _hello(self) -> frames.SiteHello:
        ends = self._ends
        request, certificate = ends.trust.hello() if ends.trust is not None else (b"", b"")
        return frames.SiteHello(
            protocol=frames.PROTOCOL,
            site=ends.site,
            epoch=ends.outgoing.epoch,
            release=__version__,
            request=request,
            certificate=certificate,
        )

    async def _send(self, frame: frames.FromSite) -> None:
        assert self._socket is not None
        if self._parted:
            raise LinkLost("nothing is said after the goodbye")
        self._parted = isinstance(frame, frames.Bye)
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._socket.send(frames.encode(frame))
        except TimeoutError:
            raise LinkLost(f"nothing could be sent for {SEND_SECONDS:.0f} s") from None

    async def _send_story(self, frame: Story | UnknownJob) -> None:
        """What the spool does not bring takes of the same line."""
        await self._ends.budget.room()
        if self._signs and self._ends.prover is not None and isinstance(frame, Story):
            items = self._ends.prover.told(self._ends.outgoing.epoch, frame.items)
            frame = Story(frame.jid, items, frame.final)
        await self._send(frame)
        self._ends.budget.spend(sum(map(len, frame.items)) if isinstance(frame, Story) else 0)

    async def _next_frame(self) -> frames.FromMaster:
        assert self._socket is not None
        while True:
            self._echoes.listens()
            parts = await self._socket.recv_multipart()
            self._echoes.heard()
            try:
                if len(parts) != 1:
                    raise Refused("malformed", f"{len(parts)} frames, expected 1")
                frame = frames.decode_from_master(parts[0])
                if isinstance(frame, frames.EchoReply):
                    self._echoes.answered(frame.nonce)
                elif isinstance(frame, Answer):
                    self.asked.questions.answered(frame)
                return frame
            except Refused as refusal:
                self._ends.refusals.refused("uplink", refusal.reason, self.address, refusal.detail)

    async def _receive(self) -> None:
        ends = self._ends
        while True:
            match await self._next_frame():
                case frames.SiteJob(job=job, remaining=remaining, sealed=sealed):
                    await ends.intake.accept_from_above(Parcel(job, tuple(sealed)), remaining, self.key)
                case Cancel(jid=jid):
                    await ends.intake.cancel_from_above(jid)
                case frames.Confirmed() as confirmed:
                    self._items.confirmed(confirmed)
                case frames.RecordsConfirmed(revision=revision):
                    self._records.confirmed(revision)
                case frames.SiteTrust() as trust:
                    if ends.trust is not None:
                        await ends.trust.told(trust, self.address)
                case frames.SiteRefused(state=state, reason=reason) as refused:
                    await self._hear_refusal(refused)
                    raise LinkLost(f"{state}: {reason}")
                case frames.HelloAgain():
                    raise LinkLost("the master does not know this connection any more")
                case AskJob(jid=jid, anew=anew):
                    if ends.stories is not None:
                        ends.stories.ask(self.key, jid, anew=anew)
                case StoryTaken():
                    if ends.stories is not None:
                        ends.stories.taken(self.key)
                case Twin() | frames.EchoReply() | frames.SiteWelcome() | Answer() as aside:
                    await twins.overheard(ends.marks, self.key, aside)

    async def _hear_refusal(self, refused: frames.SiteRefused) -> None:
        """Who turns us away may have revoked our key: that is heard all the same, and judged like any proof."""
        if self._ends.trust is not None and refused.revocations:
            await self._ends.trust.told(frames.SiteTrust(revocations=refused.revocations), self.address)

    async def _follow_role(self, session: asyncio.TaskGroup) -> None:
        """Tell the master which it is, and run the sender while it is the active one."""
        told: frames.SiteRole | None = None
        while True:
            self._role_changed.clear()
            if self._sender is not None and self._sender.cancelling():
                await asyncio.wait({self._sender})
                self._sender = None
            faults = self._ends.faults.faults() if self._ends.faults is not None else ()
            role = frames.SiteRole(self.active, list(faults))
            if role != told:
                known, told = told, role
                await self._send(role)
                if self._ends.stories is not None and (known is None or known.active is not role.active):
                    self._ends.stories.role_changed(self.key)
            if role.active and self.active and self._sender is None:
                self._sender = session.create_task(self._items.run(self._send), name="uplink/items")
            await self._role_changed.wait()

    async def _send_trust(self) -> None:
        """Group keys and requests: what this master has not been told since this connection began."""
        trust = self._ends.trust
        if trust is None:
            return
        sent: dict[tuple[type, str | bytes], frames.Told] = {}
        while True:
            self._trust_changed.clear()
            known = {paging.subject(entry): entry for entry in trust.tells()}
            news = [entry for key, entry in known.items() if sent.get(key) != entry]
            for frame in paging.told_frames(news):
                await self._send(frame)
            sent = known
            await self._trust_changed.wait()

    async def _send_reseals(self) -> None:
        while True:
            await self._send(await self._reseals.get())
