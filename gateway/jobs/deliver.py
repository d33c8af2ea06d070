"""Jobs are delivered: to devices that are here, again to those that said nothing, and to sites when they are back."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import ClassVar

from device_agent.clock import Clock
from device_agent.errors import NotFound, OutstationError
from device_agent.parts import Part
from device_agent.protocol import limits, tags
from device_agent.protocol.links import Downlink, Listener, Parcel
from device_agent.protocol.outcomes import Outcome, State
from gateway.bus import Bus
from gateway.devices.registry import Registry
from gateway.jobs.branches import Branches
from gateway.jobs.close import Closing
from gateway.jobs.collect import Collection
from gateway.jobs.handed_out import handing_out, has_moved, may_repeat, presence_for
from gateway.jobs.open_jobs import OpenJob, OpenJobs, Waiting
from gateway.jobs.record import publish_event
from gateway.jobs.reseal import RESEAL_SECONDS, Reseal
from gateway.jobs.seal import Sealer, public
from gateway.jobs.silence import Terms, Verdict, judge_device, soonest
from gateway.jobs.stall_watch import StallWatch
from gateway.store.writer import Statement, StoreFailed, Writer

log = logging.getLogger(__name__)

LOOK_CEILING_SECONDS = 1.0


class Delivery(Part):
    """One loop over the open jobs that have something due."""

    name: ClassVar[str] = "deliver"

    def __init__(
        self,
        *,
        site: str,
        open_jobs: OpenJobs,
        registry: Registry,
        downlink_of: Callable[[str], Downlink | None],
        collection: Collection,
        closing: Closing,
        sealer: Sealer,
        reseal: Reseal,
        branches: Branches,
        writer: Writer,
        bus: Bus,
        clock: Clock,
    ) -> None:
        self._site = site
        self._open_jobs = open_jobs
        self._registry = registry
        self._downlink_of = downlink_of
        self._collection = collection
        self._closing = closing
        self._sealer = sealer
        self._reseal = reseal
        self._branches = branches
        self._writer = writer
        self._bus = bus
        self._clock = clock
        self._wake = asyncio.Event()
        self.stalls = StallWatch(clock)

    async def open(self) -> None:
        """Start the loop."""
        self.spawn(self._run(), "due")
        self.spawn(self.stalls.run(), "stalls")

    def kick(self) -> None:
        """Something may be due."""
        self._wake.set()

    def moved(self, device: str) -> None:
        """A device came or went: look at what waits for it."""
        for opened in self._open_jobs:
            waiting = opened.waiting.get(device)
            if waiting is not None:
                waiting.due = 0.0
                opened.look_at = 0.0
                self._wake.set()

    async def cancel(self, jid: str, beside: Sequence[Statement] = ()) -> None:
        """Stop a job from starting where it has not started. Raises ``NotFound`` when no such job is open.

        ``beside`` goes to disk with it.
        """
        opened = self._open_jobs.get(jid)
        if opened is None:
            raise NotFound(f"no open job {jid}", error_id="job.not_open", hint="outstation jobs list --state open")
        await self._writer.commit([("UPDATE jobs SET cancelled = 1 WHERE jid = ?", [(jid,)]), *beside])
        opened.cancelled = True
        opened.look_at = 0.0
        for waiting in opened.waiting.values():
            waiting.due = 0.0
            waiting.tries = 0
        for branch in opened.branches.values():
            branch.due, branch.tries = 0.0, 0
        self.kick()

    async def release(self, jid: str, beside: Sequence[Statement] = ()) -> None:
        """Let a held job go. Raises ``NotFound`` when no such job is held."""
        opened = self._open_jobs.get(jid)
        if opened is None or not opened.held:
            raise NotFound(f"no held job {jid}", error_id="job.not_held", hint="outstation jobs list --state held")
        await self._writer.commit([("UPDATE jobs SET held = 0 WHERE jid = ?", [(jid,)]), *beside])
        opened.held = False
        opened.look_at = 0.0
        for name, waiting in list(opened.waiting.items()):
            waiting.due = 0.0
            device = self._registry.own_device(name)
            if opened.job.late == "drop" and not (device is not None and (device.present or device.unheard)):
                why = "not connected when the job was released"
                self._collection.decided(opened, name, Outcome.UNREACHABLE, why)
        for branch in opened.branches.values():
            branch.due, branch.tries = 0.0, 0
        self.kick()
        told = publish_event(public(opened.job), opened.returners)
        await self._bus.fire([self._bus.event(tags.job_publish(jid), told)], upward=False)

    async def cancel_from_above(self, jid: str) -> None:
        """A master cancelled a job; one that is not open here has ended, which its close says."""
        try:
            await self.cancel(jid)
        except NotFound:
            log.info("cancel for a job that is not open jid=%s", jid)
        except StoreFailed as error:
            log.error("cancel not taken, the master repeats it at the next welcome jid=%s error=%s", jid, error.found)

    async def reseal(self, device: str, jid: str, reason: str) -> None:
        """A device cannot take a job as it is sealed (another group key, a number it is past): it waits for another."""
        opened = self._open_jobs.get(jid)
        waiting = opened.waiting.get(device) if opened is not None else None
        if opened is None or waiting is None:
            return
        waiting.state = State.QUEUED
        # Each costs a seal and a row: a device that never can take it is sent it ever more rarely.
        wait = RESEAL_SECONDS * 2.0 ** min(max(waiting.tries - 1, 0), 8)
        waiting.due = self._clock.monotonic() + min(limits.RESEND_CEILING_SECONDS, wait)
        opened.look_at = min(opened.look_at, waiting.due)
        await self._reseal.renew(opened, self._site, reason)

    async def _run(self) -> None:
        while True:
            now = self._clock.monotonic()
            due = soonest(*(opened.look_at for opened in self._open_jobs), now + LOOK_CEILING_SECONDS)
            try:
                async with asyncio.timeout(max(0.0, due - now)):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            now = self._clock.monotonic()
            for opened in self._open_jobs:
                if opened.look_at <= now:
                    try:
                        await self._look_at(opened, now)
                    except OutstationError as error:
                        log.error("job not advanced jid=%s error=%s", opened.job.jid, error)
                        opened.look_at = now + LOOK_CEILING_SECONDS

    async def _look_at(self, opened: OpenJob, now: float) -> None:
        terms = Terms(opened.deadline, opened.job.late, opened.job.run_limit, opened.cancelled, opened.held)
        # A floor under the next look: what is due now is done now, and whatever happens meanwhile lowers it again.
        opened.look_at = now + 60.0
        looks = [await self._look_at_devices(opened, terms, now)]
        branches = list(opened.branches.values())
        looks += [await self._branches.look_at(opened, branch, terms, now) for branch in branches]
        opened.look_at = min(opened.look_at, soonest(*looks))
        await self._closing.answered(opened)
        if opened.all_ended:
            await self._closing.check(opened)

    async def _look_at_devices(self, opened: OpenJob, terms: Terms, now: float) -> float:
        look = now + 3600.0
        heard = cache(self._heard_since)
        first: dict[str, list[str]] = defaultdict(list)
        again: dict[str, list[str]] = defaultdict(list)
        for name, waiting in opened.waiting.items():
            if name in opened.committing:
                continue
            device = self._registry.own_device(name)
            presence = presence_for(opened, waiting, device, heard(waiting.link))
            verdict = judge_device(waiting.state, waiting.since, terms, presence, now, waiting.away)
            if isinstance(verdict, Verdict):
                away = device.away if device is not None and verdict.outcome is Outcome.UNREACHABLE else ""
                self._collection.decided(opened, name, verdict.outcome, away or verdict.why)
                continue
            look = min(look, verdict)
            if device is None or not device.present or opened.held or not may_repeat(opened, waiting, device.link):
                continue
            if waiting.due <= now:
                is_first = waiting.state is State.QUEUED or has_moved(opened, waiting, device.link)
                (first if is_first else again)[device.link].append(name)
            else:
                look = min(look, waiting.due)
        if first or again:
            await self._send(opened, first, again, now)
            look = min(look, now + limits.RESEND_FIRST_SECONDS)
        return look

    async def _send(
        self, opened: OpenJob, first: dict[str, list[str]], again: dict[str, list[str]], now: float
    ) -> None:
        names = [name for part in (first, again) for some in part.values() for name in some]
        parcel = None if opened.cancelled else self._sealer.for_devices(opened, names)
        if parcel is None and not opened.cancelled:
            for unsent in (opened.waiting[name] for name in names):
                unsent.due = now + RESEAL_SECONDS
                if unsent.state is State.DELIVERED and not unsent.tries:
                    unsent.state = State.QUEUED
            opened.look_at = min(opened.look_at, now + RESEAL_SECONDS)
            await self._reseal.renew(opened, self._site, "stale_epoch")
            return
        if parcel is not None and opened.job.sealed:
            self._refuse_unsealed(opened, parcel, first, again)
        fresh = [name for names in first.values() for name in names]
        if fresh:
            # On disk before it is sent: after a crash the station knows that these may have run it.
            await self._writer.commit([handing_out(opened.job.jid, first)])
        remaining = opened.deadline - now
        for link in {*first, *again}:
            downlink = self._downlink_of(link)
            names = [*first.get(link, []), *again.get(link, [])]
            for name in names:
                waiting = opened.waiting.get(name)
                if waiting is not None:
                    waiting.link = link
                    _sent(waiting, now)
            if downlink is None:
                continue
            if parcel is None:
                await downlink.cancel(opened.job.jid, names)
            else:
                await downlink.deliver(parcel, remaining, names)

    def _heard_since(self, link: str) -> float:
        """Since when no answer over a link waits here unread; minus infinity where none can."""
        downlink = self._downlink_of(link) if link else None
        return max(downlink.heard_since(), self.stalls.last_stall()) if isinstance(downlink, Listener) else -math.inf

    def _refuse_unsealed(self, opened: OpenJob, parcel: Parcel, *parts: dict[str, list[str]]) -> None:
        """A job sealed to single devices is nothing to others: say so instead of waiting for them."""
        sealed = {entry.device for entry in parcel.sealed if entry.site == self._site}
        for part in parts:
            for names in part.values():
                for name in [name for name in names if name not in sealed]:
                    names.remove(name)
                    why = "not_sealed: whoever issued the job knows no certificate of this device"
                    self._collection.decided(opened, name, Outcome.REFUSED, why)


def _sent(waiting: Waiting, now: float) -> None:
    if waiting.state is State.QUEUED:
        waiting.state, waiting.since = State.DELIVERED, now
    wait = limits.RESEND_CEILING_SECONDS
    if waiting.state is State.DELIVERED:
        wait = min(wait, limits.RESEND_FIRST_SECONDS * 2.0 ** min(waiting.tries, 8))
    waiting.tries += 1
    waiting.due = now + wait
