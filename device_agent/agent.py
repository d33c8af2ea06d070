"""Composition root of an agent: one device of a site, on its own machine. It joins, listens, runs and returns."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import random
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar

from device_agent import __version__, settings
from device_agent.clock import Clock
from device_agent.config import DRAIN_MAX_SECONDS, AgentSettings
from device_agent.counters import Counters
from device_agent.device import Device
from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, ConfigInvalid, OutstationError, Refused
from device_agent.grains import local_grains
from device_agent.host import LocalHost
from device_agent.journal_file import FileJournal
from device_agent.mqtt import BrokerAddress, MqttLink, NotConnected
from device_agent.parts import Part, leaves
from device_agent.protocol import limits
from device_agent.protocol.messages import Grains, check_plain, encode_value
from device_agent.signals import handled

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
UNWELCOME_SECONDS = 30.0
"""Connected for so long without a welcome, the agent says so."""

OUTGOING_MESSAGES = 1024
INCOMING_MESSAGES = 1000
GOODBYE_SECONDS = 3.0
LOOK_SECONDS = 0.1
JOURNAL = "journal"
LOCK = "lock"
LOG_FORMAT = "time=%(asctime)s level=%(levelname)s logger=%(name)s %(message)s"


class Agent(Part):
    """A device with a journal on disk and a connection that keeps itself alive."""

    name: ClassVar[str] = "agent"
    drain_seconds: ClassVar[float] = DRAIN_MAX_SECONDS + GOODBYE_SECONDS + 2.0
    """Above the largest ``drain_seconds`` of the settings, which is what bounds a drain."""

    def __init__(self, table: AgentSettings, clock: Clock | None = None) -> None:
        self.counters = Counters()
        self._table = table
        self._clock = clock or Clock()
        self._folder = Path(table.state_dir)
        self._id = table.device_id()
        self._lock = -1
        self._hurry = False
        self._grains: Grains = {}
        self._outgoing: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(maxsize=OUTGOING_MESSAGES)
        self._executions: set[asyncio.Task[None]] = set()
        self._journal = FileJournal(self._folder / JOURNAL)
        self._device = Device(
            self._id,
            table.site,
            self._grains,
            host=LocalHost(self._grains),
            journal=self._journal,
            publish=self._publish,
            spawn=self._spawn_execution,
            clock=self._clock,
            counters=self.counters,
            randomness=random.Random(os.urandom(16)),
        )
        self._link = MqttLink(
            BrokerAddress(
                table.broker.host,
                table.broker.port,
                table.broker.unix_socket,
                table.broker.username,
                table.broker.password,
            ),
            self._id,
            subscriptions=self._device.subscriptions(),
            on_message=self._device.receive,
            on_connected=self._connected,
            on_lost=self._device.lost,
            count=self._count,
            will=self._device.will,
            incoming=INCOMING_MESSAGES,
            name="broker",
            clock=self._clock,
        )

    async def open(self) -> None:
        """Take the state directory, read the journal, start to connect.

        Raises ``ConfigInvalid`` when the directory cannot be used or another agent uses it.
        """
        await asyncio.to_thread(self._take_folder)
        opened = await self._journal.open()
        log.info("journal opened records=%d torn_bytes=%d", opened.records, opened.torn_bytes)
        if opened.set_aside is not None:
            log.error("the journal was damaged: set aside as %s, %d records kept", opened.set_aside, opened.records)
        for jid in opened.interrupted:
            log.warning("a job was under way when the agent stopped, its outcome is unknown jid=%s", jid)
        await self.regrain(self._table.grains)
        self.spawn(self._link.run(), "broker")
        self.spawn(self._send_all(), "send")
        self.spawn(self._tick(), "tick")
        log.info("agent started id=%s site=%s version=%s", self._id, self._table.site, __version__)

    async def drain(self) -> None:
        """Start nothing more, let running jobs finish in time, say goodbye."""
        self._device.jobs.draining = True
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
        await self._journal.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def hurry(self) -> None:
        """Do not wait for running jobs any longer."""
        self._hurry = True

    async def regrain(self, extra: Grains) -> None:
        """Look at the machine again and tell the station. Raises ``ConfigInvalid`` for grains no message can carry."""
        grains = await asyncio.to_thread(local_grains, self._id)
        checked = check_grains({**grains, **extra, "id": self._id})
        self._grains.clear()
        self._grains.update(checked)
        self._device.regrain(self._grains)

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
            self.counters.refused("incoming_full", f"more than {INCOMING_MESSAGES} messages wait", self._id)

    async def _connected(self) -> None:
        self._device.connected()

    async def _send_all(self) -> None:
        while True:
            topic, payload = await self._outgoing.get()
            try:
                await self._link.publish(topic, payload)
            except NotConnected:
                # What matters is in the journal and is sent again.
                self.counters.dropped += 1
            finally:
                self._outgoing.task_done()

    async def _tick(self) -> None:
        welcomed_at = self._clock.monotonic()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self._clock.monotonic()
            self._device.tick(now)
            if self._device.welcomed or not self._link.state.connected:
                welcomed_at = now
            elif now - welcomed_at >= UNWELCOME_SECONDS:
                welcomed_at = now
                log.warning(
                    "the broker answers, and no gateway of this site does: is the name right? site=%s", self._table.site
                )
            await self._journal.flush()

    def _take_folder(self) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigInvalid(
                "another agent runs with this state directory",
                where="state_dir",
                found=str(self._folder),
                hint="stop the other agent, or give this one a directory of its own",
            ) from None
        except OSError as error:
            raise ConfigInvalid(
                f"the state directory cannot be used: {error.strerror or error}",
                where="state_dir",
                found=str(self._folder),
                allowed="a directory this user may write",
            ) from error


def check_grains(grains: Grains) -> Grains:
    """The same grains, if a hello can carry them. Raises ``ConfigInvalid``."""
    try:
        check_plain(grains)
        size = len(encode_value(grains))
    except Refused as refused:
        raise ConfigInvalid("a grain cannot be sent", where="grains", found=refused.detail) from refused
    except (OverflowError, TypeError, ValueError) as error:
        raise ConfigInvalid("a grain cannot be sent", where="grains", found=str(error)) from error
    if size > limits.GRAINS_BYTES:
        raise ConfigInvalid(
            "the grains are too large",
            where="grains",
            found=f"{size} bytes with the machine's own",
            allowed=f"at most {limits.GRAINS_BYTES}",
        )
    return grains


async def run(table: AgentSettings, reload: Callable[[], AgentSettings] | None = None) -> None:
    """Run an agent until SIGTERM or SIGINT; a second one does not wait for jobs. SIGHUP calls ``reload``."""
    agent = Agent(table)
    stop = asyncio.Event()
    reread = asyncio.Event()

    def on_stop() -> None:
        if stop.is_set():
            agent.hurry()
        stop.set()

    with handled({signal.SIGTERM: on_stop, signal.SIGINT: on_stop, signal.SIGHUP: reread.set}):
        async with agent:
            if reload is not None:
                agent.spawn(_reload_when_asked(agent, reload, reread), "reload")
            await stop.wait()
            log.info("agent stops")


async def _reload_when_asked(agent: Agent, reload: Callable[[], AgentSettings], asked: asyncio.Event) -> None:
    while True:
        await asked.wait()
        asked.clear()
        try:
            table = await asyncio.to_thread(reload)
            logging.getLogger().setLevel(table.log_level.upper())
            await agent.regrain(table.grains)
            log.info("settings reloaded: log_level and grains are in force, the others at the next start")
        except OutstationError as error:
            log.error("settings not reloaded error=%r", str(error))


def main(config_path: Path) -> int:
    """Run the agent of a settings file until it is stopped; its exit status. Raises ``ConfigInvalid``."""

    def load() -> AgentSettings:
        return settings.load(AgentSettings, config_path)

    table = load()
    logging.basicConfig(stream=sys.stderr, level=table.log_level.upper(), format=LOG_FORMAT)
    try:
        asyncio.run(run(table, load))
    except BaseExceptionGroup as crashed:
        for error in leaves(crashed):
            if isinstance(error, ConfigInvalid):
                raise error from None
            log.critical("crashed: %s", error, exc_info=None if isinstance(error, OutstationError) else error)
        return EXIT_NOT_ALL_OK
    return EXIT_OK
