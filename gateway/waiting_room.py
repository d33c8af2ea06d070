"""A gateway that nobody has given a name: it runs, says what to do, and becomes the station of a site when it has one.

After an install with nothing configured there is no site to be the station of. Ending with a mistake in the settings
would be one more thing to mend; so the process stays, answers at the gateway's socket with the way to join, and goes on
as the station, without a restart, once the settings have a name.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from device_agent import __version__
from device_agent.clock import Clock
from device_agent.errors import ConfigInvalid, NotRunning, OutstationError
from device_agent.log_stream import log_to
from device_agent.notify import Notifier
from device_agent.service_reports import LOOK_SECONDS, LOOKS
from device_agent.settings import load, says
from device_agent.signals import handled
from gateway.api.door import Door
from gateway.api.operation import Answer, Asked, Operation
from gateway.api.reload import ReloadApi
from gateway.api.server import ApiServer
from gateway.checks import clock, disk, permissions
from gateway.checks.box import box_of
from gateway.checks.every import look_at_rest
from gateway.checks.finding import Finding
from gateway.config import StationSettings
from gateway.devices.policy_file import PolicyHolder
from gateway.fleet.join_words import JOIN, NO_NAME, NOT_JOINED
from gateway.fleet.state_folder import at_rest
from gateway.station import LOG_FORMAT

log = logging.getLogger(__name__)

JOIN_SECONDS = 3.0
JOIN_LOOKS = 30
"""How long, and how often, the start looks whether somebody else is done with the state folder."""


class WaitingRoom:
    """Answers at the socket until there is a name, or it is told to stop."""

    def __init__(self, config: Path, settings: StationSettings, notifier: Notifier) -> None:
        self._config = config
        self._notifier = notifier
        self._settings = settings
        self._done = asyncio.Event()
        self._stopping = asyncio.Event()
        self._started = Clock().wall()
        self._said = ""
        self.named = False
        """Whether the settings have a name now."""

    async def wait(self) -> None:
        """Return when there is a name, or after SIGTERM. Raises ``ConfigInvalid`` when the socket cannot be made."""
        door = Door(lambda: PolicyHolder(self._settings.policy).policy)
        path = Path(self._settings.socket or "/run/outstation/gateway.sock")
        stops: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGTERM: self._done.set,
            signal.SIGINT: self._done.set,
            signal.SIGHUP: self._look,
        }
        with handled(stops):
            async with ApiServer(path, self._operations(), on_stop=self._stopping.set, door=door):
                log.warning(NOT_JOINED)
                self._notifier.ready(NOT_JOINED)
                await self._done_while_fed()
        if not self.named:
            self._notifier.stopping("stopping")

    async def _done_while_fed(self) -> None:
        pause = min(LOOK_SECONDS, self._notifier.watchdog_seconds / LOOKS or LOOK_SECONDS)
        while not self._done.is_set():
            # What there is to watch here is that the loop turns. A join that came before the socket was there has told
            # nobody, so there is a look now and then.
            self._notifier.alive()
            self._look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._done.wait()

    def _reload(self) -> None:
        """Look whether there is a name. Raises ``ConfigInvalid``."""
        if says(self._config, "name"):
            # Whatever else is wrong is told to who has just written it, while there is still somebody to answer.
            load(StationSettings, self._config)
            self.named = True
            self._done.set()
            log.info("the settings have a name: this gateway goes on as the station of its site")

    def _look(self) -> None:
        """The same without anybody who asks: what is wrong is said once."""
        try:
            self._reload()
        except ConfigInvalid as error:
            if str(error) != self._said:
                log.error("settings not taken: %s", error)
            self._said = str(error)

    def _operations(self) -> list[Operation]:
        return [
            Operation("GET", "/station", "What this gateway is, and that it has not joined", self._station),
            Operation("GET", "/fleet", "That this gateway is in no fleet", self._fleet),
            Operation("GET", "/check", "What there is to do", self._check),
            Operation("POST", "/check", "The same: there are no events yet", self._check, needs="view"),
            *ReloadApi(self._reload).operations(),
            Operation("GET", "/{path:path}", "Everything else, once it has joined", self._later),
            Operation("POST", "/{path:path}", "Everything else, once it has joined", self._later, body=dict[str, Any]),
        ]

    async def _station(self, _: Asked) -> Answer:
        return {"role": "gateway", "name": NO_NAME, "version": __version__, "started": self._started}

    async def _fleet(self, _: Asked) -> Answer:
        return {"role": "gateway", "site": NO_NAME, "joined": False}

    async def _check(self, _: Asked) -> Answer:
        not_joined = Finding(
            check="join",
            severity="error",
            finding="this gateway has not joined yet: it has no name and no fleet",
            meaning="it runs and waits; no device can come to it, and no master knows it",
            fix=JOIN,
        )
        box = box_of("gateway", self._settings, config=self._config)
        # The ports are not its yet, and of its standing there is nothing more to say.
        found = await asyncio.to_thread(look_at_rest, box, [disk.at_rest, clock.at_rest, permissions.at_rest])
        return {"findings": msgspec.to_builtins([not_joined, *found]), "news": []}

    async def _later(self, asked: Asked) -> Answer:
        raise NotRunning(
            "this gateway has not joined yet, so it can do nothing of the kind",
            error_id="station.not_joined",
            found=f"/{asked.path.get('path', '')}",
            allowed="outstation check, outstation gateway join",
            hint=JOIN,
        )


def wait_for_name(config: Path, notifier: Notifier) -> bool:
    """Wait as long as the settings have no name; false when it was told to stop. Raises ``ConfigInvalid``."""
    with notifier.told():
        if says(config, "name"):
            uvloop.run(_left_alone(load(StationSettings, config)))
            return True
        settings = load(StationSettings, config, {"name": "unnamed"})
        log_to(settings.log_level, LOG_FORMAT, {"ROLE": "gateway"})
        named = uvloop.run(_waited(config, settings, notifier))
        uvloop.run(_left_alone(settings))
    # The station has a log of its own, with its name in every message.
    logging.getLogger().handlers.clear()
    return named


async def _left_alone(settings: StationSettings) -> None:
    """Give a join that writes into the state folder at this moment the time to end: the station is no second writer."""
    folder = Path(settings.state_dir or "/var/lib/outstation/gateway")
    for _ in range(JOIN_LOOKS):
        try:
            with at_rest(folder, "wait a moment"):
                return
        except OutstationError:
            # What is wrong with the folder, if it goes on, the station tells.
            await asyncio.sleep(JOIN_SECONDS / JOIN_LOOKS)


async def _waited(config: Path, settings: StationSettings, notifier: Notifier) -> bool:
    room = WaitingRoom(config, settings, notifier)
    await room.wait()
    return room.named
