"""One SSH device as far as jobs go: its journal, its judgement, and the same ``Jobs`` that an agent has."""

from __future__ import annotations

import math
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from copy import deepcopy
from typing import Any, Final

from device_agent.clock import Clock
from device_agent.counters import Counters
from device_agent.events import Handed
from device_agent.host import Host
from device_agent.jobs import Jobs
from device_agent.own import Own
from device_agent.pillar import HeldPillar
from device_agent.protocol.messages import Hello
from device_agent.questions import Station
from device_agent.starts import Starts
from gateway.config import SshSettings
from gateway.downlinks.ssh_journal import SshJournal
from gateway.downlinks.ssh_judgement import Judge, SteadJudgement
from gateway.downlinks.ssh_line import Line

AGENT: Final = "ssh"
"""What stands where an agent says its version."""

AT_ONCE: Final = 1
"""Jobs of a device that run at once."""


class Stead:
    """One device. Times are monotonic seconds; ``reached`` is None until it was reached, and while it is not.

    ``hurried`` is when it was last looked at before its turn; ``shared`` is what all devices have.
    """

    __slots__ = (
        "_beside",
        "_settings",
        "due",
        "hurried",
        "jobs",
        "journal",
        "judgement",
        "line",
        "looking",
        "name",
        "reached",
        "session",
    )

    def __init__(
        self,
        line: Line,
        journal: SshJournal,
        judge: Judge,
        *,
        send: Callable[[str, bytes], None],
        regrain: Callable[[Stead], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        clock: Clock,
        counters: Counters,
        station: Station,
        shared: SshSettings,
        starts: Starts,
    ) -> None:
        self.name: Final = line.device.name
        self.line = line
        line.awaited = self._restarts
        self.journal = journal
        self.judgement = SteadJudgement(judge, journal.marks())
        self.session = ""
        self.reached: float | None = None
        self.due = 0.0
        self.hurried = -math.inf
        self.looking = False
        self._beside = {"mine_functions": shared.mine_functions, "mine_interval": shared.mine_interval}
        self._settings = {**line.device.view(), **self._beside}
        self.jobs = Jobs(
            lend=self._lend,
            journal=journal,
            send=lambda body: send(self.name, body),
            spawn=spawn,
            clock=clock,
            counters=counters,
            width=AT_ONCE,
            starts=starts,
            own=Own(
                settings=self._settings,
                regrain=lambda: regrain(self),
                station=station,
                custom=judge.custom,
                pillar=HeldPillar(station),
                events=Handed(station, clock),
            ),
        )

    def _lend(self) -> AbstractAsyncContextManager[Host]:
        # Another line takes the place of this one when somebody changes the device.
        return self.line.lend()

    def _restarts(self) -> bool:
        return self.jobs.restarting

    def change(self, line: Line) -> None:
        """Somebody changed the device: reach it over another line, soon."""
        self.line, self.due = line, 0.0
        line.awaited = self._restarts
        self._settings.clear()
        self._settings.update({**line.device.view(), **self._beside})

    def begin(self) -> None:
        """It is here over this link from now on: another session."""
        self.session = secrets.token_hex(8)

    def hello(self) -> Hello:
        """What it would say of itself."""
        # A copy: a function may change the values in place, and the registry is compared with the next one.
        return Hello(self.session, AGENT, {**deepcopy(self.line.grains), "id": self.name}, *self.journal.oldest())
