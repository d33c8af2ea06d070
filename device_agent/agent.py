"""Composition root of an agent: one device of a site, on its own machine. It joins, listens, runs and returns."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Coroutine
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

from device_agent import __version__
from device_agent.beacons.beacons import Beacons
from device_agent.clock import Clock
from device_agent.config import DRAIN_MAX_SECONDS, AgentSettings, readable
from device_agent.counters import Counters
from device_agent.custom.modules import CustomModules
from device_agent.device import Device
from device_agent.enroller import Enroller
from device_agent.errors import ConfigInvalid, StartDeferred
from device_agent.events import EventOutbox
from device_agent.grains import own_grains
from device_agent.guard import Guard
from device_agent.identity import IdentityFile, new_identity
from device_agent.joining import LOGIN_REFUSED_SECONDS, NothingToJoinBy, broker_address, invitation, shown_machine
from device_agent.journal_file import FileJournal
from device_agent.local_host import LocalHost
from device_agent.mine import from_pillar, keep_fresh, refresh
from device_agent.mqtt import MqttLink, NotConnected
from device_agent.own import Own
from device_agent.parts import Part
from device_agent.protocol.messages import Grains
from device_agent.protocol.mine import calls
from device_agent.schedule.runner import AgentSchedule
from device_agent.schedule.zones import zone_of
from device_agent.sealing_rotation import SealingRotation
from device_agent.service_reports import Judge
from device_agent.standing import Standing, how
from device_agent.state_folder import StateFolder
from device_agent.token_file import TokenMissing, find_token, forget_token

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
UNWELCOME_SECONDS = 30.0
"""Connected for so long without a welcome, the agent says so."""

OUTGOING_MESSAGES = 1024
INCOMING_MESSAGES = 1000
GOODBYE_SECONDS = 3.0
LOOK_SECONDS = 0.1
STUCK_SECONDS = 60.0
"""Longer than any write of the journal or the identity may take."""

JOURNAL = "journal"


class Agent(Part):
    """A device with an identity and a journal on disk, and a connection that keeps itself alive."""

    name: ClassVar[str] = "agent"
    drain_seconds: ClassVar[float] = DRAIN_MAX_SECONDS + GOODBYE_SECONDS + 2.0
    """Above the largest ``drain_seconds`` of the settings, which is what bounds a drain."""

    def __init__(self, table: AgentSettings, clock: Clock | None = None, *, waits: bool = False) -> None:
        """``waits``: with nothing to join a site by, wait for a token instead of refusing to start."""
        self.counters = Counters()
        self.identity = new_identity()
        """Whoever this machine is: from its file, once that is open."""
        self._table, self._clock = table, clock or Clock()
        self._folder = StateFolder(Path(table.state_dir))
        self._file = IdentityFile(self._folder.path)
        self._journal = FileJournal(self._folder.path / JOURNAL)
        self._events = EventOutbox(self._folder.path / "events", self._clock)
        self.custom = CustomModules(self._folder.path / "custom", lambda: self.identity.anchor.root)
        self._schedule = AgentSchedule(
            self._folder.path / "schedule", table.schedule, zone_of(table.timezone), self._clock
        )
        self._grains: Grains = {}
        self._regraining = asyncio.Lock()
        self._host = LocalHost(self._grains, table.grains_file)
        self._beacons = Beacons(
            table.beacons,
            self._folder.path,
            from_pillar=table.beacons_from_pillar,
            host=self._host,
            clock=self._clock,
            count=self.counters.refused,
        )
        self.standing = Standing(self._folder.path, self._journal.health, self._events.health, self._host.threads)
        self._waits, self._joining = waits, "not joined yet"
        self._ticked = self._clock.monotonic()
        self._writing, self._hurry = asyncio.Lock(), False
        self._extra: Grains = table.grains
        self._outgoing: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(maxsize=OUTGOING_MESSAGES)
        self._executions: set[asyncio.Task[None]] = set()
        self._device: Device | None = None
        self._guard: Guard | None = None
        self._link: MqttLink | None = None

    async def open(self) -> None:
        """Take the state directory, read the journal and the identity, start to join or to connect.

        Raises ``ConfigInvalid`` when the directory cannot be used, another agent uses it, the identity is damaged or
        of another site than the settings, or there is nothing to join a site by.
        """
        await asyncio.to_thread(self._folder.take)
        opened = await self._journal.open()
        await self._events.open()
        await self._schedule.open()
        log.info("journal opened records=%d torn_bytes=%d", opened.records, opened.torn_bytes)
        if opened.set_aside is not None:
            log.error("the journal was damaged: set aside as %s, %d records kept", opened.set_aside, opened.records)
        for jid in opened.interrupted:
            log.warning("a job was under way when the agent stopped, its outcome is unknown jid=%s", jid)
        self.identity = await asyncio.to_thread(self._file.load_or_begin)
        await self.regrain()
        if self._table.grains_refresh_seconds:
            self.spawn(self._refresh_grains(), "grains")
        if self.identity.joined:
            # For what it says when the settings have become those of another site or fleet.
            invitation(self._table, None, self.identity)
            self._live()
        else:
            self.spawn(self._join(None if self._waits else await self._enroller()), "join")
        self.spawn(self._stand(), "standing")

    async def drain(self) -> None:
        """Start nothing more, let running jobs finish in time, say goodbye."""
        if self._device is None:
            return
        self._device.jobs.draining = self._schedule.draining = True
        deadline = self._clock.monotonic() + self._table.drain_seconds
        while self._executions and not self._hurry and self._clock.monotonic() < deadline:
            await asyncio.wait(self._executions, timeout=LOOK_SECONDS)
        for execution in list(self._executions):
            execution.cancel()
        self._device.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self._outgoing.join()

    async def close(self) -> None:
        """Let the journal and the directory go."""
        if self._device is not None:
            await self._keep_identity()
        await self._schedule.close()
        await self._journal.close()
        self._folder.release()

    def hurry(self) -> None:
        """Do not wait for running jobs any longer."""
        self._hurry = True

    async def regrain(self, extra: Grains | None = None) -> None:
        """Look at the machine again, and tell the station what changed. Raises ``ConfigInvalid`` for grains that no
        message can carry; ``extra`` are those of the settings when they were read anew.
        """
        # One at a time: of two at once the one that began first, with older facts, may end last.
        async with self._regraining:
            wanted = self._extra if extra is None else extra
            grains = await own_grains(self._host, self.identity.name, wanted, self._grains)
            grains = await self.custom.told(self._host, grains)
            self._extra = wanted
            self._grains.clear()
            self._grains.update(grains)
            if self._device is not None and (changed := self._device.regrain(self._grains)):
                log.info("grains changed: %s", ", ".join(changed))

    async def _refresh_grains(self) -> None:
        while True:
            await asyncio.sleep(self._table.grains_refresh_seconds)
            try:
                await self.regrain()
            except ConfigInvalid as error:
                log.error("grains not refreshed error=%r", str(error))

    # --- joining -------------------------------------------------------------------------------------------------

    async def _enroller(self) -> Enroller:
        table = self._table
        token = None if self.identity.joined else await asyncio.to_thread(find_token, table)
        serial, model = await asyncio.to_thread(shown_machine, table)
        return Enroller(
            self.identity,
            invitation(table, token, self.identity),
            serial=serial,
            model=model,
            keep=self._write_identity,
            tell=self._tell_joining,
            clock=self._clock,
            counters=self.counters,
        )

    def _tell_joining(self, sentence: str) -> None:
        log.warning(sentence)
        self._joining = f"not joined yet: {sentence}"

    async def _invited(self) -> Enroller:
        """What joins, as soon as there is something to join by."""
        while True:
            try:
                return await self._enroller()
            except (NothingToJoinBy, TokenMissing, StartDeferred) as nothing:
                self._joining = f"not joined yet: {nothing.hint or nothing.what}"
                await asyncio.sleep(TICK_SECONDS)

    async def _join(self, enroller: Enroller | None) -> None:
        enroller = enroller or await self._invited()
        log.info("joins as did=%s fingerprint=%s", self.identity.did, self.identity.fingerprint)
        await enroller.join()
        await asyncio.to_thread(forget_token, self._table)
        await self.regrain()
        self._live()

    async def _ask_again(self, link: MqttLink) -> None:
        """Ask for another password, with the same identity, until we have one or the broker lets us in after all."""
        enroller = await self._enroller()
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(enroller.join(), name="agent/ask again")
            while not asking.done() and not link.state.connected:
                await asyncio.wait({asking}, timeout=TICK_SECONDS)
            asking.cancel()
        link.address = broker_address(self.identity, self._table.broker)

    # --- belonging to a site -------------------------------------------------------------------------------------

    def _live(self) -> None:
        """Be a device of the site that was joined."""
        identity = self.identity
        randomness = random.Random(os.urandom(16))
        guard = self._guard = Guard(
            identity,
            marks=self._journal.marks(),
            publish=self._publish,
            clock=self._clock,
            counters=self.counters,
            randomness=randomness,
            custom_reach=self.custom.reach,
        )
        device = self._device = Device(
            guard,
            self._grains,
            host=self._host,
            journal=self._journal,
            spawn=self._spawn_execution,
            clock=self._clock,
            counters=self.counters,
            randomness=randomness,
            own=Own(
                settings=readable(self._table),
                grains_file=self._table.grains_file,
                cache_dir=str(self._folder.path / "cache"),
                regrain=self.regrain,
                custom=self.custom,
                events=self._events,
                schedule=self._schedule,
                beacons=self._beacons,
            ),
        )
        link = self._link = MqttLink(
            broker_address(self.identity, self._table.broker),
            identity.did,
            subscriptions=device.subscriptions(),
            on_message=device.receive,
            on_connected=self._connected,
            on_lost=device.lost,
            count=self._count,
            will=device.will,
            incoming=INCOMING_MESSAGES,
            name="broker",
            clock=self._clock,
        )
        device.jobs.resume()
        self.spawn(link.run(), "broker")
        self.spawn(self._send_all(link), "send")
        self.spawn(self._events.send_all(device.jobs.own.station), "events")
        self._schedule.begin(
            identity, device.jobs.own, lambda: nullcontext(self._host), self._spawn_execution, guard.site_may
        )
        self.spawn(self._schedule.run_due(), "schedule")
        self.spawn(self._beacons.run(device.jobs.own), "beacons")
        self.spawn(self._tick(device, guard, link), "tick")
        self.spawn(self._watch_login(link), "login")
        rotation = SealingRotation(guard, device.jobs.own.station, self._write_identity, self._clock)
        self.spawn(rotation.run(self._table.sealing_key_days), "sealing-key")
        self.spawn(keep_fresh(self._refresh_mine, self._table.mine_interval, randomness), "mine")
        log.info(
            "agent started id=%s site=%s did=%s version=%s", identity.name, identity.site, identity.did, __version__
        )

    async def _refresh_mine(self) -> None:
        assert self._device is not None
        own, wanted = self._device.jobs.own, self._table.mine_functions
        # What is in memory: to ask for it, device by device, would cost the uplink of the whole site.
        await refresh([*calls(wanted), *from_pillar(own.pillar.held, wanted)], self._host, own)

    def _spawn_execution(self, execution: Coroutine[Any, Any, None]) -> None:
        task = self.spawn(execution, "job")
        self._executions.add(task)
        task.add_done_callback(self._executions.discard)

    def _publish(self, topic: str, payload: bytes) -> None:
        try:
            self._outgoing.put_nowait((topic, payload))
        except asyncio.QueueFull:
            self.counters.dropped += 1

    def _count(self, name: str) -> None:
        if name == "mqtt_incoming_dropped":
            self.counters.refused("incoming_full", f"more than {INCOMING_MESSAGES} messages wait", self.identity.name)

    async def _connected(self) -> None:
        assert self._device is not None, "the link is made with the device"
        self._device.connected()

    async def _send_all(self, link: MqttLink) -> None:
        while True:
            topic, payload = await self._outgoing.get()
            try:
                await link.publish(topic, payload)
            except NotConnected:
                # What matters is in the journal and is sent again.
                self.counters.dropped += 1
            finally:
                self._outgoing.task_done()

    async def _tick(self, device: Device, guard: Guard, link: MqttLink) -> None:
        welcomed_at = self._clock.monotonic()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self._clock.monotonic()
            device.tick(now)
            if device.welcomed or not link.state.connected:
                welcomed_at = now
            elif now - welcomed_at >= UNWELCOME_SECONDS:
                welcomed_at = now
                log.warning(
                    "the gateway does not answer site=%s"
                    if guard.trusted
                    else "the broker answers, and no gateway "
                    "that this device can believe speaks there: see the refusals above site=%s",
                    self.identity.site,
                )
            await self._journal.flush()
            if self.identity.floor.write_due(now):
                self.identity.changed = True
            await self._keep_identity()
            self._ticked = self._clock.monotonic()

    async def _stand(self) -> None:
        while True:
            self.standing.say(how(self.identity, self._device, self._link) or self._joining)
            await asyncio.sleep(TICK_SECONDS)

    def judges(self) -> dict[str, Judge]:
        """Without what this agent is of no use."""
        return {"journal": self._journal.stuck, "link": self._stuck}

    async def _stuck(self) -> str | None:
        if self._link is None:
            return None
        silent = self._clock.monotonic() - self._ticked
        return f"no turn for {silent:.0f} s" if silent > STUCK_SECONDS else await self._link.stuck()

    async def _watch_login(self, link: MqttLink) -> None:
        refused_at: float | None = None
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self._clock.monotonic()
            if not link.state.login_refused:
                refused_at = None
            elif refused_at is None:
                refused_at = now
            elif now - refused_at >= LOGIN_REFUSED_SECONDS:
                refused_at = None
                log.warning("the broker does not let this device in: it asks the gateway for another password")
                await self._ask_again(link)

    async def _keep_identity(self) -> None:
        """Write what changed. A disk that is full is tried again: all of it can be had again from the station."""
        if not self.identity.changed:
            return
        try:
            await self._write_identity()
        except OSError as error:
            self.identity.changed = True
            log.error("the identity cannot be written path=%s error=%s", self._file.path, error)

    async def _write_identity(self) -> None:
        # One at a time: of two threads the one with the older bytes may end last.
        async with self._writing:
            identity = self.identity
            identity.changed = False
            content = identity.to_bytes()
            identity.floor.written(self._clock.monotonic())
            await asyncio.to_thread(self._file.save, content, identity.sealing.to_bytes())
