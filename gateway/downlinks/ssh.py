"""The SSH downlink: devices without an agent, for which this station does what an agent does.

Each has the journal, the judgement of jobs and the job code of an agent (``ssh_stead``), and a line (``ssh_line``) over
which its functions run. It is looked at in turns, over the connection that is kept: that says who is here, and which
grains it has. Nothing that one device does or does not do is waited for by another.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, Final, Protocol

from device_agent.clock import Clock
from device_agent.counters import Counters
from device_agent.errors import OutstationError, Refused
from device_agent.host import HostLost
from device_agent.parts import Part
from device_agent.protocol import tags
from device_agent.protocol.links import Answered, Parcel, Returns
from device_agent.signed_delivery import Proven, addressed, proven
from device_agent.starts import Starts
from gateway.answers import Answers, Within
from gateway.bus import Bus
from gateway.config import SshSettings
from gateway.devices.authority import Authority
from gateway.devices.enrolled import Enrolled
from gateway.devices.epochs import Epochs
from gateway.devices.registry import Registry
from gateway.devices.ssh_device import SshDevice
from gateway.devices.ssh_secrets import Secret
from gateway.downlinks.hearing import ResealPort
from gateway.downlinks.sealing import sealed_for
from gateway.downlinks.ssh_breaker import Breaker
from gateway.downlinks.ssh_facts import NotTold, ask_facts
from gateway.downlinks.ssh_journal import SshJournals
from gateway.downlinks.ssh_judgement import Judge
from gateway.downlinks.ssh_line import HostOver, Line, Ways
from gateway.downlinks.ssh_login import Logins
from gateway.downlinks.ssh_outgoing import Outgoing
from gateway.downlinks.ssh_pool import Pool
from gateway.downlinks.ssh_presence import LINK, Presence
from gateway.downlinks.ssh_stead import Stead
from gateway.downlinks.ssh_turns import Turns
from gateway.downlinks.under_way import UnderWay
from gateway.metrics import Metrics

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.25
BREATH: Final = 16
"""Devices that are handed a job in one turn of the loop."""

SOON_SECONDS: Final = 1.0
"""After a connection ended by itself its device is looked at within so long, not all of a site at once."""

TROUBLES_NAMED: Final = 20

TOLD: Final = ("host_key_changed", "login_refused", "login_unusable", "no_shell")
"""Troubles that only an operator can mend: there is an event for each."""


class Book(Protocol):
    """The SSH devices (``gateway.devices.ssh_book.SshBook``)."""

    def all(self) -> list[SshDevice]:
        """Every device."""

    def by_name(self, name: str) -> SshDevice | None:
        """The device that has this name."""

    def secret(self, name: str) -> Secret:
        """What opens its door. Raises ``OutstationError``."""

    def identity(self, name: str) -> Enrolled | None:
        """Its enrollment; None when it does not belong here now."""

    async def met(self, name: str, host_key: str) -> None:
        """It showed the key of a pinned fingerprint. Raises ``OutstationError``."""

    def on_change(self, call: Callable[[str], None]) -> None:
        """Call with a device's name whenever it came, changed or went."""


class SshDownlink(Part):
    """Implements ``Downlink`` for devices without an agent."""

    name: ClassVar[str] = LINK

    def __init__(
        self,
        *,
        site: str,
        settings: SshSettings,
        book: Book,
        authority: Authority,
        epochs: Epochs,
        journals: SshJournals,
        registry: Registry,
        returns: Returns,
        reseal: ResealPort,
        answers: Answers,
        starts_of: Callable[[str], Starts],
        host_over: HostOver,
        moved: Callable[[str], None],
        bus: Bus,
        metrics: Metrics,
        clock: Clock,
        randomness: random.Random | None = None,
    ) -> None:
        self._site = site
        self._settings = settings
        self._book = book
        self._journals = journals
        self._registry = registry
        self._moved_on = moved
        self._starts_of = starts_of
        self._bus = bus
        self._answers = answers
        self._metrics = metrics
        self._clock = clock
        self._randomness = randomness or random.SystemRandom()
        self.judge = Judge(site, authority, epochs)
        self._counters = Counters()
        self._outgoing = Outgoing(returns=returns, reseal=reseal, metrics=metrics)
        self._presence = Presence(registry=registry, returns=returns, metrics=metrics, clock=clock)
        self._steads: dict[str, Stead] = {}
        self._under_way = UnderWay()
        self._turns = Turns(settings.width, clock)
        self._pool = Pool(settings.connections, settings.idle_seconds)
        self._ways = Ways(
            clock=clock,
            metrics=metrics,
            turns=self._turns,
            pool=self._pool,
            logins=Logins(settings.agent_socket),
            connect_seconds=settings.connect_seconds,
            keepalive_seconds=settings.keepalive_seconds,
            secret=book.secret,
            met=book.met,
            line_of=self._line_of,
            host_over=host_over,
            on_lost=self._lost,
            on_judged=self._judged,
            randomness=self._randomness,
        )

    async def open(self) -> None:
        """Begin to look at every device."""
        for device in self._book.all():
            self._add(device)
        for name in self._journals.names():
            if self._book.by_name(name) is None:
                self._journals.drop(name)
        self._book.on_change(self._changed)
        self._registry.on_move(self._moved)
        self.spawn(self._outgoing.run(), "outgoing")
        self.spawn(self._run(), "look")

    async def drain(self) -> None:
        """Begin no job any more, wait for those that run, and hand over what was said."""
        for stead in self._steads.values():
            stead.jobs.draining = True
        await self._under_way.quiet()
        await self._outgoing.settle()

    async def close(self) -> None:
        """Close every connection."""
        self._pool.close_all()

    # --- Downlink --------------------------------------------------------------------------------------------------

    async def deliver(self, parcel: Parcel, remaining: float, names: Sequence[str]) -> None:
        """Take a job in the stead of these devices."""
        group, single = sealed_for(parcel, self._site)
        known: dict[bytes, Proven] = {}
        for place, name in enumerate(names):
            stead, body = self._steads.get(name), single.get(name, group)
            if stead is None or body is None:
                self._metrics.add("ssh_not_sealed")
                continue
            try:
                self._take(stead, body, remaining, known)
            except Refused as refused:
                self._metrics.refused(LINK, refused.reason, name, refused.detail)
            if place % BREATH == BREATH - 1:
                await asyncio.sleep(0)

    async def cancel(self, jid: str, names: Sequence[str]) -> None:
        """Do not start a job on these devices."""
        for name in names:
            if name in self._steads:
                self._steads[name].jobs.cancel(jid, named=True)

    async def confirm(self, answered: Answered) -> None:
        """The returns of these devices are on disk."""
        for jid, names in answered.items():
            for name in self._steads.keys() & names:
                self._steads[name].jobs.confirm([jid])

    def _take(self, stead: Stead, body: bytes, remaining: float, known: dict[bytes, Proven]) -> None:
        judgement, identity = stead.judgement, self._book.identity(stead.name)
        judgement.belongs(identity.did if identity is not None else None, stead.name)
        if body not in known:
            # Who signed it is the same question for all of them.
            known[body] = proven(body, judgement)
        delivery = addressed(known[body], remaining, judgement, self._clock.monotonic())
        device = self._registry.own_device(stead.name)
        stead.jobs.deliver(delivery, stead.name, device.grains if device is not None else stead.line.grains)

    def status(self) -> dict[str, Any]:
        """The link, as the API shows it. Troubles are what only an operator can mend."""
        troubled = [stead for stead in self._steads.values() if stead.line.breaker.reason in TOLD]
        return {
            "devices": len(self._steads),
            "reached": sum(1 for stead in self._steads.values() if stead.reached is not None),
            "away": sum(1 for stead in self._steads.values() if self._is_away(stead)),
            "connected": len(self._pool),
            "logins_under_way": self._turns.under_way,
            "width": self._turns.width.places,
            "troubled": len(troubled),
            "troubles": [
                {"id": stead.name, "reason": stead.line.breaker.reason, "why": stead.line.breaker.why}
                for stead in troubled[:TROUBLES_NAMED]
            ],
        }

    def _is_away(self, stead: Stead) -> bool:
        """Whether it should be here and is not, by whichever link; one that was not looked at yet is not away."""
        looked_in_vain = stead.reached is None and bool(stead.line.breaker.why) and stead.line.device.enabled
        return looked_in_vain and self._presence.by_another(stead) is None

    def view(self, name: str) -> dict[str, Any] | None:
        """One device's link, as the API shows it; None for one that is not reached over SSH."""
        stead = self._steads.get(name)
        if stead is None:
            return None
        line, now = stead.line, self._clock.monotonic()
        other = self._presence.by_another(stead)
        state, why = "used", ""
        if not line.device.enabled:
            state, why = "disabled", "an operator disabled it"
        elif other is not None:
            state, why = "standby", f"it is here over {other.link}, which comes first"
        elif stead.jobs.restarting:
            state, why = "restarting", "a job restarts it, and other jobs wait for that"
        elif stead.reached is None:
            state, why = "away", line.breaker.why or "it was not looked at yet"
        return {
            "state": state,
            "why": why,
            "trouble": line.breaker.why,
            "connected": line.connected,
            "next_look_seconds": 0.0 if stead.looking else round(max(0.0, stead.due - now), 1),
        }

    def reached(self) -> list[Stead]:
        """Those that are here by this link."""
        return [stead for stead in self._steads.values() if stead.session and stead.reached is not None]

    # --- devices come, change and go -------------------------------------------------------------------------------

    def _line_of(self, name: str) -> Line | None:
        stead = self._steads.get(name)
        return stead.line if stead is not None else None

    def _add(self, device: SshDevice) -> None:
        stead = self._steads[device.name] = Stead(
            Line(device, self._ways),
            self._journals.of(device.name),
            self.judge,
            send=self._outgoing.say,
            regrain=self._reach,
            spawn=self._spawn_job,
            clock=self._clock,
            counters=self._counters,
            station=Within(self._answers, device.name),
            shared=self._settings,
            starts=self._starts_of(device.name),
        )
        # What was done before a restart is said at once, by whichever link the device is here.
        stead.jobs.heard_again(self._clock.monotonic())
        stead.jobs.resume()

    def _spawn_job(self, job: Coroutine[Any, Any, None]) -> None:
        self.spawn(self._under_way.counted(job), "job")

    def _changed(self, name: str) -> None:
        device, stead = self._book.by_name(name), self._steads.get(name)
        if device is None:
            if stead is not None:
                del self._steads[name]
                stead.jobs.draining = True
                stead.line.retire(at_once=True)
                self._presence.away(stead, "it was removed")
                self._journals.drop(name)
        elif stead is None:
            self._add(device)
        elif device != stead.line.device or not device.enabled:
            fresh = Line(device, self._ways)
            fresh.grains = stead.line.grains
            stead.line.retire(at_once=not device.enabled)
            stead.change(fresh)
            if not device.enabled:
                self._presence.away(stead, "an operator disabled it")

    def _moved(self, name: str) -> None:
        """A device came or went, over whatever link."""
        stead, known = self._steads.get(name), self._registry.own_device(name)
        if stead is not None and known is not None and not known.present and known.link != LINK:
            stead.due = 0.0
            self._presence.take_over(stead)
        self._moved_on(name)

    def _lost(self, name: str) -> None:
        stead, now = self._steads.get(name), self._clock.monotonic()
        # Once a poll: some devices hang up after every command, and would be logged in to without end.
        if stead is not None and now - stead.hurried >= stead.line.device.poll_seconds:
            stead.hurried = now
            stead.due = min(stead.due, now + self._randomness.uniform(0.0, SOON_SECONDS))

    def _judged(self, name: str, before: Breaker) -> None:
        stead = self._steads.get(name)
        if stead is None:
            return
        now = stead.line.breaker
        if now.reason and now.reason != before.reason:
            log.warning("device not reached over ssh device=%s why=%r", name, now.why)
        if now.reason in TOLD and now.reason != before.reason:
            data: dict[str, object] = {
                "id": name,
                "act": now.reason,
                "address": stead.line.device.address,
                "why": now.why,
            }
            self.spawn(self._fire(tags.device_ssh(name), data), "event")

    async def _fire(self, tag: str, data: dict[str, object]) -> None:
        try:
            await self._bus.fire([self._bus.event(tag, data)])
        except OutstationError as error:
            log.error("event not fired tag=%s error=%s", tag, error.what)

    # --- looking ---------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        ticked = 0.0
        while True:
            now = self._clock.monotonic()
            for stead in self._steads.values():
                if stead.due <= now and not stead.looking and stead.line.device.enabled:
                    stead.looking, stead.due = True, math.inf
                    self.spawn(self._look(stead), f"look/{stead.name}")
            if now - ticked >= 1.0:
                ticked = now
                for stead in self._steads.values():
                    stead.jobs.tick(now)
                self._pool.close_idle(now)
            await asyncio.sleep(TICK_SECONDS)

    async def _look(self, stead: Stead) -> None:
        line = stead.line
        try:
            if self._presence.busy(stead):
                # Nobody waits behind a job to say what the keepalive of its connection says as well.
                return
            try:
                await self._reach(stead)
            except (HostLost, NotTold) as error:
                # Of a job that began meanwhile the same is true.
                if not (isinstance(error, NotTold) and self._presence.busy(stead)):
                    self._away(stead, line, error.what)
        finally:
            stead.looking = False
            if line is stead.line:
                # Another one is due already.
                self._plan(stead)

    async def _reach(self, stead: Stead) -> None:
        """Ask a device for its grains, and tell of it. Raises ``HostLost`` or ``NotTold``."""
        line = stead.line
        async with line.lend() as host:
            await ask_facts(line, host, self._settings.facts_seconds, self._metrics, self.judge.custom)
        if line is stead.line and self._steads.get(stead.name) is stead:
            await self._presence.here(stead)

    def _away(self, stead: Stead, line: Line, why: str) -> None:
        if line is stead.line and self._steads.get(stead.name) is stead:
            self._presence.away(stead, why)

    def _plan(self, stead: Stead) -> None:
        now, line = self._clock.monotonic(), stead.line
        if line.breaker.failures:
            stead.due = max(line.breaker.until, now + TICK_SECONDS)
        else:
            # It is due sooner when its connection ended under the look.
            stead.due = min(stead.due, now + line.device.poll_seconds * self._randomness.uniform(0.9, 1.1))
