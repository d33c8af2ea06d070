"""The master's end of the rope: a Downlink whose devices are sites, on one ROUTER socket with CURVE and ZAP.

It does not decide who may connect (``Admission``) nor what items mean (``Inbox``). A site is known by its CURVE key,
which ZAP puts on every frame; the routing id is random and proves nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import zmq
import zmq.asyncio

from device_agent.clock import Clock
from device_agent.errors import ConfigInvalid, OutstationError, Refused
from device_agent.parts import Part
from device_agent.protocol.links import Answered, Parcel
from device_agent.protocol.messages import Cancel
from device_agent.protocol.questions import Question
from upstream import frames, paging
from upstream.curve import CurveKeys, ZapAnswerer
from upstream.peer import (
    QUEUED_FRAMES,
    NobodyAnswers,
    Peer,
    keep_story,
    nobody_seals,
    refusal_words,
    unsupported,
    who_gives_way,
)
from upstream.ports import Admission, Answering, AskSeal, DoorRefusals, Fence, Inbox, KeyState, SiteWatch, TrustBelow
from upstream.router import bound_router
from upstream.site_connections import Peers, SiteConnections, Source, source_of
from upstream.story_frames import AskJob, Story, UnknownJob
from upstream.twin_frames import Twin
from upstream.twins import judged

log = logging.getLogger(__name__)

SILENT_SECONDS = 20.0
"""A site that said nothing for this long is dark; gateways echo every few seconds."""
QUARANTINE_HELLO_BYTES = 1024 + 2 * frames.CERTIFICATE_BYTES
HELLO_EVERY_SECONDS = 1.0


class Sites(Part):
    """The ``sites`` downlink."""

    name: ClassVar[str] = "sites"
    drain_seconds: ClassVar[float] = 5.0

    def __init__(
        self,
        *,
        station: str,
        listen: str,
        keys: CurveKeys,
        admission: Admission,
        inbox: Inbox,
        watch: SiteWatch,
        refusals: DoorRefusals,
        clock: Clock,
        trust: TrustBelow | None = None,
        fence: Fence | None = None,
        answers: Answering | None = None,
    ) -> None:
        self._station = station
        self._listen = listen
        self._keys = keys
        self._admission = admission
        self._inbox = inbox
        self._watch = watch
        self._refusals = refusals
        self._clock = clock
        self._trust = trust
        self._fence = fence
        self._answers = answers or NobodyAnswers()
        self._ask_seal: AskSeal = nobody_seals
        self._connections = SiteConnections(refusals)
        self._peers = Peers(self._connections)
        self._by_site: dict[str, Peer] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._context: zmq.asyncio.Context | None = None
        self._socket: zmq.asyncio.Socket | None = None
        self.address = ""

    async def open(self) -> None:
        """Bind. Raises ``ConfigInvalid`` when the address cannot be used."""
        self._context = zmq.asyncio.Context()
        self._context.set(zmq.MAX_SOCKETS, 1023)
        zap = ZapAnswerer(self._context, self._admission, self._refusals, self._clock)
        zap.open()
        try:
            socket = self._socket = bound_router(self._context, self._keys, self._listen, self._connections)
        except ConfigInvalid:
            zap.close()
            raise
        self.address = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        if self._trust is not None:
            self._trust.on_change(self.trust_changed)
        self.spawn(zap.run(), "zap")
        self.spawn(self._connections.run(), "connections")
        self.spawn(self._receive(), "receive")
        self.spawn(self._watch_silence(), "silence")
        log.info("listening for sites address=%s key=%s", self.address, self._keys.public)

    async def close(self) -> None:
        """Free the sockets."""
        self._connections.stop()
        if self._context is not None:
            self._context.destroy(linger=200)

    def on_reseal(self, call: AskSeal) -> None:
        """Call when a site needs a job sealed anew."""
        self._ask_seal = call

    async def deliver(self, parcel: Parcel, remaining: float, names: Sequence[str]) -> None:
        """Send a job to the sites that are connected; the others get it when they are back."""
        for site in names:
            for frame in paging.job_frames(parcel, remaining):
                await self._send_to(site, frame)

    async def cancel(self, jid: str, names: Sequence[str]) -> None:
        """Send a cancel to the sites that are connected."""
        for site in names:
            await self._send_to(site, Cancel(jid))

    async def ask(self, jid: str, site: str, *, anew: bool) -> None:
        """Ask a site that is connected what became of a job."""
        await self._send_to(site, AskJob(jid, anew))

    async def confirm(self, answered: Answered) -> None:
        """Nothing to do: sites are confirmed by sequence, when their batch is committed."""

    def connected(self, site: str) -> bool:
        """Whether the site is welcome and was heard lately."""
        return site in self._by_site

    async def keys_changed(self) -> None:
        """Judge every connection anew: accepted ones get their welcome, rejected ones are told and dropped."""
        for peer in list(self._peers.values()):
            await self._admit(peer)

    async def trust_changed(self) -> None:
        """Tell every site what is new to it of whom to believe."""
        for peer in list(self._by_site.values()):
            await self._tell_trust(peer)

    async def _receive(self) -> None:
        assert self._socket is not None
        while True:
            parts = await self._socket.recv_multipart(copy=False)
            identity = parts[0].bytes
            try:
                source = source_of(parts[-1])
            except zmq.ZMQError:
                # Without the key that ZAP put on the frame there is nobody to answer.
                self._refusals.refused("uplink", "no_key", identity.hex())
                continue
            peer = self._peers.get(identity)
            if peer is not None and peer.key != source.key:
                # A routing id proves nothing: this one belongs to a connection with another key.
                self._refusals.refused("uplink", "other_key", f"unknown@{source.address}", f"routing id of {peer.site}")
                continue
            who = f"{peer.site if peer else 'unknown'}@{source.address}"
            try:
                if len(parts) != 2:
                    raise Refused("malformed", f"{len(parts)} frames, expected 2")
                body = parts[1].bytes
                if (peer is None or not peer.accepted) and len(body) > QUARANTINE_HELLO_BYTES:
                    if peer is None:
                        await self._answer(identity, frames.HelloAgain())
                    raise Refused("not_accepted", "only a hello is heard before a key is accepted")
                await self._handle(identity, source, peer, frames.decode_from_site(body))
            except Refused as refusal:
                self._refusals.refused("uplink", refusal.reason, who, refusal.detail)
            except OutstationError as error:
                self._refusals.refused("uplink", "not_kept", who, error.what)

    async def _handle(self, identity: bytes, source: Source, peer: Peer | None, frame: frames.FromSite) -> None:
        if isinstance(frame, frames.SiteHello):
            await self._hello(identity, source, frame)
            return
        if peer is None:
            await self._answer(identity, frames.HelloAgain())
            raise Refused("no_hello", "a connection begins with a hello")
        if not peer.accepted:
            raise Refused("not_accepted", "only a hello is heard before a key is accepted")
        peer.heard = self._clock.monotonic()
        self._watch.site_heard(peer.site)
        match frame:
            case frames.Echo(nonce=nonce):
                await self._send(peer, frames.EchoReply(nonce))
            case frames.SiteRole(active=active, faults=faults):
                peer.active = active
                if self._by_site.get(peer.site) is peer:
                    self._watch.site_role(peer.site, active, faults)
            case Question():
                self._answers.offer(peer.site, frame, partial(self._send, peer))
            case frames.Bye():
                self._drop(peer, "the site stopped")
            case frames.Reseal(jid=jid, site=site, reason=reason):
                if site != peer.site and not (self._trust and self._trust.speaks_for(peer.site, site)):
                    raise Refused("foreign_site", f"{peer.site} speaks for {site}")
                await self._ask_seal(site, jid, reason)
            case (
                frames.Batch()
                | frames.LedgerReport()
                | frames.DeviceRecords()
                | frames.SiteTells()
                | Story()
                | UnknownJob()
            ):
                if isinstance(frame, frames.Batch | frames.DeviceRecords) and frame.epoch != peer.epoch:
                    raise Refused("wrong_epoch", f"{frame.epoch} is not the epoch of the hello")
                try:
                    peer.work.put_nowait(frame)
                except asyncio.QueueFull:
                    # More under way than the protocol allows: it will be sent again after the next welcome.
                    self._drop(peer, "it sent more than may be under way")
                    raise Refused("flooding", f"more than {QUEUED_FRAMES} frames wait for a commit") from None

    async def _hello(self, identity: bytes, source: Source, hello: frames.SiteHello) -> None:
        now = self._clock.monotonic()
        key, address, descriptor = source
        peer = Peer(identity, key, address, hello, accepted=False, heard=now, descriptor=descriptor)
        if hello.protocol != frames.PROTOCOL:
            await self._send(peer, unsupported(hello))
            raise Refused("unsupported_protocol", str(hello.protocol))
        earlier = self._peers.get(identity)
        if earlier is not None and peer.heard - earlier.heard < HELLO_EVERY_SECONDS:
            raise Refused("hello_too_often", f"one hello in {HELLO_EVERY_SECONDS:.0f} s on a connection")
        if earlier is not None:
            self._drop(earlier, "it said hello again")
        gives_way = who_gives_way(self._peers.values())
        if gives_way is not None:
            del self._peers[gives_way.identity]
            self._refusals.refused("uplink", "quarantine_full", gives_way.address)
        self._peers[identity] = peer
        await self._admit(peer)

    async def _admit(self, peer: Peer) -> None:
        state = await self._admission.judge(
            peer.site, peer.key, peer.address, peer.hello.request, peer.hello.certificate
        )
        if state != "accepted":
            if peer.accepted:
                self._drop(peer, f"its key is {state}")
            reason = refusal_words(state, peer, self._station, revoked=self._admission.revoked(peer.key))
            await self._send(peer, frames.SiteRefused(state, reason, self._revocations(peer.site, state)))
            return
        fenced = None if peer.accepted else await judged(self._fence, peer)
        if fenced is not None:
            await self._send(peer, fenced)
        if isinstance(fenced, frames.SiteRefused):
            await self._send_to(peer.site, Twin(peer.address))
        if fenced is not None or peer.accepted or self._peers.get(peer.identity) is not peer:
            return  # dropped while it was judged, or welcome already
        earlier = self._by_site.get(peer.site)
        if earlier is not None:
            self._drop(earlier, "it connected again")
        peer.accepted = True
        self._by_site[peer.site] = peer
        worker = self.spawn(self._work(peer, self._workers.get(peer.site)), f"work/{peer.site}")
        self._workers[peer.site] = worker

    async def unfenced(self, site: str) -> None:
        """Another gateway of this site is let in from now on: who is connected says hello again, and so does it."""
        for peer in [peer for peer in self._peers.values() if peer.site == site]:
            self._drop(peer, "another gateway of this site was let in")
            await self._answer(peer.identity, frames.HelloAgain())

    def _revocations(self, site: str, state: KeyState) -> list[bytes]:
        return self._trust.tells(site).revocations if self._trust is not None and state == "rejected" else []

    async def _work(self, peer: Peer, predecessor: asyncio.Task[None] | None) -> None:
        """Commit what one site sends, in order, and confirm it; other sites do not wait for it."""
        who = f"{peer.site}@{peer.address}"
        if predecessor is not None:
            # It may be in the middle of a commit: where the site goes on is known when that is done.
            await asyncio.wait({predecessor})
        try:
            positions, revision = await self._inbox.position(peer.site, peer.epoch)
            peer.positions = Counter(positions)
            await self._send(peer, await peer.greeting(self._station, positions, revision, self._inbox))
            if self._by_site.get(peer.site) is not peer:
                return
            # First whom to believe, then the jobs.
            await self._begin_trust(peer)
            await self._watch.site_up(peer.site, peer.hello.release, peer.address)
            while (frame := await peer.work.get()) is not None:
                try:
                    if isinstance(frame, frames.Batch):
                        await self._commit_items(peer, frame)
                    elif isinstance(frame, frames.LedgerReport):
                        await self._inbox.keep_ledger(peer.site, frame.rows)
                    elif isinstance(frame, frames.SiteTells):
                        await self._keep_told(peer, frame)
                    elif isinstance(frame, Story | UnknownJob):
                        await self._send(peer, await keep_story(self._inbox, peer.site, frame))
                    else:
                        revision = await self._inbox.commit_records(peer.site, peer.epoch, frame.records)
                        await self._send(peer, frames.RecordsConfirmed(revision))
                except Refused as refusal:
                    self._refusals.refused("uplink", refusal.reason, who, refusal.detail)
                    if refusal.reason == "gap":
                        # A frame before this one was not taken: only a new welcome says where to go on.
                        self._drop(peer, "it left a gap")
                        await self._answer(peer.identity, frames.HelloAgain())
        except OutstationError as error:
            # Not on disk, so not confirmed: the site connects again and sends it again.
            self._refusals.refused("uplink", "not_kept", who, error.what)
            self._drop(peer, "what it sent could not be kept")

    async def _commit_items(self, peer: Peer, batch: frames.Batch) -> None:
        stream, confirmed = batch.stream, peer.positions[batch.stream]
        last = peer.chain.get(stream)
        if last is not None and batch.after > last:
            raise Refused("gap", f"{stream} after {batch.after}, but {last} was the last one on this connection")
        peer.chain[stream] = max(last or 0, batch.items[-1][0])
        fresh = [(sequence, item) for sequence, item in batch.items if sequence > confirmed]
        if fresh:
            confirmed = peer.positions[stream] = await self._inbox.commit(peer.site, peer.epoch, stream, fresh)
        await self._send(peer, frames.Confirmed(peer.epoch, stream, confirmed))

    async def _begin_trust(self, peer: Peer) -> None:
        peer.welcome = True
        if self._trust is not None:
            await self._trust.site_welcome(peer.site)
            await self._tell_trust(peer)

    async def _tell_trust(self, peer: Peer) -> None:
        """What is new to this site; nothing before its welcome, with which it begins."""
        if self._trust is None or not peer.welcome:
            return
        now, before = self._trust.tells(peer.site), peer.told
        peer.told = now
        news = paging.trust_news(now, before)
        if news is not None:
            for frame in paging.trust_frames(news):
                await self._send(peer, frame)

    async def _keep_told(self, peer: Peer, told: frames.SiteTells) -> None:
        if self._trust is None:
            return
        for entry in told.entries:
            try:
                await self._trust.told(peer.site, entry)
            except Refused as refusal:
                self._refusals.refused("uplink", refusal.reason, f"{peer.site}@{peer.address}", refusal.detail)

    async def _watch_silence(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            now = self._clock.monotonic()
            # A station that was held up cannot say that others were silent: what waits to be read may be theirs.
            patience = SILENT_SECONDS * (4 if self._socket and int(self._socket.get(zmq.EVENTS)) & zmq.POLLIN else 1)
            for peer in list(self._peers.values()):
                if now - peer.heard > (patience if peer.accepted else patience * 3):
                    self._drop(peer, f"nothing heard for {now - peer.heard:.0f} s")

    def _drop(self, peer: Peer, why: str) -> None:
        self._peers.pop(peer.identity, None)
        # The worker finishes the frame it is at and then ends: torn from a commit, it would forget what is on disk.
        while not peer.work.empty():
            peer.work.get_nowait()
        peer.work.put_nowait(None)
        if self._by_site.get(peer.site) is peer:
            del self._by_site[peer.site]
            log.info("site dark site=%s reason=%s", peer.site, why)
            self._watch.site_down(peer.site, why)

    async def _send_to(self, site: str, frame: frames.FromMaster) -> None:
        peer = self._by_site.get(site)
        if peer is not None:
            await self._send(peer, frame)

    async def _send(self, peer: Peer, frame: frames.FromMaster) -> None:
        failure = await self._answer(peer.identity, frame)
        if failure:
            self._drop(peer, failure)

    async def _answer(self, identity: bytes, frame: frames.FromMaster) -> str:
        """Send without waiting, since one peer that does not read must not hold up the others; "" or what failed."""
        assert self._socket is not None
        try:
            await self._socket.send_multipart([identity, frames.encode(frame)], flags=zmq.NOBLOCK)
        except zmq.Again:
            return "it does not read what it is sent"
        except zmq.ZMQError as error:
            return f"it cannot be reached ({error})"
        return ""
