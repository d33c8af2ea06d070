"""Mode ``service``: the mosquitto of ``outstation-broker.service``, a unit of its own beside the gateway's.

Both run as one user, so the station writes the broker's files and signals it without any privilege; and each starts
again without the other: devices keep their connections over a restart of the gateway, and the gateway finds the broker
when that is back. What cannot be changed by a signal (a port, a certificate's door) takes a new start of the broker,
which the station asks for by ending it: its unit starts it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pwd
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from device_agent.clock import Clock
from device_agent.mqtt import BrokerAddress
from device_agent.start_errors import start_error
from gateway.broker.folder import RulesFolder
from gateway.broker.hangup import hang_up
from gateway.broker.login import answers
from gateway.broker.ruled import RuledBroker
from gateway.broker.rules import CANARY_USER, PID_FILE, SETTINGS_FILE
from gateway.broker.tls import AUTHORITY_FILE, TlsAuthority

log = logging.getLogger(__name__)

PROGRAM = "mosquitto"
STATION_USER = "station"
LOOK_SECONDS = 2.0


class ServiceBroker(RuledBroker):
    """The files of a broker that systemd runs, and signals to its process."""

    log_topic = True

    def __init__(
        self,
        *,
        site: str,
        state_dir: Path,
        rules_dir: Path,
        runtime_dir: Path,
        host: str,
        port: int,
        enroll_port: int,
        tls_port: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(
            station_user=STATION_USER,
            site=site,
            host=host,
            port=port,
            enroll_port=enroll_port,
            tls_port=tls_port,
            authority=TlsAuthority(state_dir / AUTHORITY_FILE, site, clock) if tls_port is not None else None,
        )
        self._rules_dir = rules_dir
        self._runtime = runtime_dir
        self._told: int | None = None

    async def open(self) -> None:
        """Write the files. Raises ``ConfigInvalid`` when they cannot be written.

        A broker that does not run does not keep the station from starting: it reads the files when it starts.
        """
        await super().open()
        # Writing starts behind what an earlier process of the station has told whoever runs now.
        try:
            self._rules_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            before = self._settings()
            user = pwd.getpwuid(os.geteuid()).pw_name
            self._use(RulesFolder(self._rules_dir), runtime=self._runtime, user=user)
            self._write()
        except OSError as error:
            raise start_error(
                error,
                "the folder of the broker's files cannot be used",
                self._rules_dir,
                where="broker.rules_dir",
                found=f"{error.filename or self._rules_dir}: {error.strerror}",
                allowed="a folder of this user",
                hint=f"chown -R outstation: {self._rules_dir}, or set broker.rules_dir in the settings",
            ) from None
        if before not in {"", self._settings()} and (pid := self._pid()) is not None:
            log.info("the broker's settings have changed, it starts again pid=%d", pid)
            self._kill(pid, signal.SIGTERM)
        self._start_applying()
        self.spawn(self._follow(), "follow")

    async def silent(self) -> str | None:
        """End a broker that hangs: its unit starts it again. This process goes on."""
        pid = self._pid()
        # As somebody who may do nothing: what comes back is a refusal, or that silence again.
        stranger = BrokerAddress(unix_socket=self._socket, username=CANARY_USER, password="")
        if pid is not None and not await answers(stranger):
            log.critical("the broker hangs, it is ended and started again by its unit pid=%d", pid)
            self._kill(pid, signal.SIGKILL)
        return None

    def status(self) -> Mapping[str, Any]:
        """As the API shows it."""
        return {**self._status("service"), "pid": self._pid()}

    async def _apply(self) -> None:
        canary = self._write()
        self._told = self._pid()
        if self._told is not None:
            await self._signal_until(canary)

    async def _follow(self) -> None:
        """A broker that has started may have read the files while they were written: it is told once more."""
        while True:
            pid = self._pid()
            if pid is not None and pid != self._told:
                self._changed.set()
            await asyncio.sleep(LOOK_SECONDS)

    def _signal(self) -> None:
        if (pid := self._pid()) is not None:
            hang_up(pid)

    def _settings(self) -> str:
        try:
            return (self._rules_dir / SETTINGS_FILE).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def _pid(self) -> int | None:
        """The process of the broker; None when it does not run."""
        try:
            pid = int((self._runtime / PID_FILE).read_text(encoding="ascii"))
            # A number that was left behind may be anybody's by now.
            running = Path(f"/proc/{pid}/comm").read_bytes().rstrip(b"\n") == PROGRAM.encode()
        except (OSError, ValueError):
            return None
        return pid if running else None

    @staticmethod
    def _kill(pid: int, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
