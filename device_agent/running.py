"""The process of an agent: its signals, its log and its exit status."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from pathlib import Path

from device_agent import next_start
from device_agent.agent import Agent
from device_agent.config import AgentSettings, load
from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, ConfigInvalid, OutstationError
from device_agent.log_stream import log_to
from device_agent.notify import Notifier
from device_agent.parts import leaves
from device_agent.service_reports import ServiceReports
from device_agent.signals import handled

log = logging.getLogger(__name__)

LOG_FORMAT = "time=%(asctime)s level=%(levelname)s logger=%(name)s %(message)s"


async def run(
    table: AgentSettings,
    reload: Callable[[], AgentSettings] | None = None,
    notifier: Notifier | None = None,
) -> None:
    """Run an agent until SIGTERM or SIGINT; a second one does not wait for jobs. SIGHUP calls ``reload``.

    Under a service manager it waits for a token where there is nothing to join a site by.
    """
    notifier = notifier or Notifier({})
    agent = Agent(table, waits=notifier.listens)
    stop = asyncio.Event()
    reread = asyncio.Event()

    def on_stop() -> None:
        if stop.is_set():
            agent.hurry()
        stop.set()

    with handled({signal.SIGTERM: on_stop, signal.SIGINT: on_stop, signal.SIGHUP: reread.set}):
        async with agent, ServiceReports(notifier, agent.standing.sentence, agent.judges()):
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
    notifier = Notifier()
    next_start.wait("outstation-agent", notifier)
    with notifier.told():
        table = load(config_path)
        log_to(table.log_level, LOG_FORMAT, {"ROLE": "agent"})
        try:
            asyncio.run(run(table, lambda: load(config_path), notifier))
        except BaseExceptionGroup as crashed:
            errors = leaves(crashed)
            for error in errors:
                if isinstance(error, ConfigInvalid):
                    raise error from None
                log.critical("crashed: %s", error, exc_info=None if isinstance(error, OutstationError) else error)
            notifier.crashed(errors)
            return EXIT_NOT_ALL_OK
    return EXIT_OK
