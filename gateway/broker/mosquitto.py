"""Mode ``managed``: a mosquitto of our own, with our settings and rules, that dies with its station.

Debian's defaults drop 80 to 90 % of 10,000 simultaneous answers (queue and in-flight limits, each answer already
acknowledged to its sender), so both limits are lifted; devices use QoS 0 and clean sessions, so nothing queues for
them, and our own confirmation and resend are the guarantee.

Its rules are files and a SIGHUP (``ruled``).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import pwd
import shutil
import socket
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from device_agent.clock import Clock
from device_agent.errors import ConfigInvalid, StationFailed
from device_agent.mqtt import BrokerAddress
from device_agent.name_lookup import NameLookup
from device_agent.start_errors import passes, start_error
from gateway.broker.folder import RulesFolder
from gateway.broker.hangup import hang_up
from gateway.broker.login import lets_in
from gateway.broker.ruled import LOOK_SECONDS, RuledBroker
from gateway.broker.rules import (
    PACKET_BYTES,
    SETTINGS_FILE,
)
from gateway.broker.start import find_mosquitto
from gateway.broker.tls import AUTHORITY_FILE, TlsAuthority

log = logging.getLogger(__name__)

START_SECONDS = 10.0
STOP_SECONDS = 5.0
PORT_RETRIES = 20
PORT_RETRY_SECONDS = 0.25
"""A broker that died with its station a moment ago may still hold the port."""

BROKER_USER = "mosquitto"

EXPECTED_WORDS = (
    "does not contain '%c' or '%u'",
    "Unable to set TCP_NODELAY",
    "Reloading config.",
    "Opening ",
    "Config loaded from",
    "mosquitto version",
)
"""What it says of itself, and warnings about what is meant so: the group's topics are everybody's, and a unix socket
has no such option."""


def settings_text(host: str, port: int) -> str:
    """The configuration of a broker without rules: for measuring the broker itself, never for a site."""
    return "\n".join(
        [
            f"listener {port} {host}",
            "allow_anonymous true",
            "persistence false",
            "max_queued_messages 0",
            "max_inflight_messages 0",
            "set_tcp_nodelay true",
            f"max_packet_size {PACKET_BYTES}",
            "log_dest stderr",
            "log_type error",
            "log_type warning",
            "connection_messages false",
            "",
        ]
    )


SETPRIV = "setpriv:"
"""How setpriv(1) begins what it says when it cannot start the broker."""


class Mosquitto(RuledBroker):
    """The broker's process and the folder of its files."""

    drain_seconds: ClassVar[float] = STOP_SECONDS

    def __init__(
        self,
        *,
        site: str,
        state_dir: Path,
        host: str,
        port: int,
        enroll_port: int,
        tls_port: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(
            station_user=f"station-{os.urandom(8).hex()}",
            site=site,
            host=host,
            port=port,
            enroll_port=enroll_port,
            tls_port=tls_port,
            authority=TlsAuthority(state_dir / AUTHORITY_FILE, site, clock) if tls_port is not None else None,
        )
        self._lock: int | None = None
        self._process: Process | None = None
        self._stopping = False

    async def open(self) -> None:
        """Start it and wait until it lets us in. Raises ``ConfigInvalid`` when it cannot be started."""
        await super().open()
        program = find_mosquitto()
        if program is None:
            raise ConfigInvalid(
                "mosquitto is not installed",
                where="broker.mode",
                found="managed",
                allowed="managed with mosquitto installed, external, or embedded (up to 200 devices)",
                hint="apt install mosquitto",
            )
        settings = self._make_folder()
        canary = self._write()
        for attempt in range(PORT_RETRIES):
            refused = await self._refused_door()
            if refused is None:
                failure = await self._start([*_prefix(), program, "-c", str(settings)], canary)
                if failure is None:
                    break
                if failure.startswith(SETPRIV) and os.strerror(errno.EPERM) in failure:
                    raise _not_allowed(failure)
                refused = f"broker.port {self.port}", _said_error(failure)
            if not passes(refused[1]) or attempt == PORT_RETRIES - 1:
                raise self._not_started(*refused)
            await asyncio.sleep(PORT_RETRY_SECONDS)
        log.info("broker running host=%s port=%d enroll_port=%d", self.host, self.port, self.enroll_port)
        self.spawn(self._read_log(), "log")
        self._start_applying()

    def expect_end(self) -> None:
        """From now on its end is no failure."""
        self._stopping = True

    async def drain(self) -> None:
        """Nothing is kept in the broker, so nothing has to be waited for."""
        self._stopping = True

    async def close(self) -> None:
        """Stop it."""
        process = self._process
        if process is not None and process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self._folder is not None:
            shutil.rmtree(self._folder.path, ignore_errors=True)

    async def silent(self) -> str | None:
        """It is this process' own: it ends with it, and starts with the next."""
        return "the broker, which this gateway has started, does not answer"

    def status(self) -> Mapping[str, Any]:
        """As the API shows it."""
        pid = self._process.pid if self._process is not None else None
        return {**self._status("managed"), "pid": pid}

    # --- rules ---------------------------------------------------------------------------------------------------

    def _make_folder(self) -> Path:
        """A folder that only the broker's user may enter; returns the path of the settings in it."""
        path = Path(tempfile.mkdtemp(prefix="outstation-broker-"))
        owner = _broker_owner()
        self._use(RulesFolder(path, owner=owner))
        os.chown(path, *owner)
        # Held for as long as it is in use: what clears old files away (tmpfiles.d(5)) leaves a locked folder alone.
        self._lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        return path / SETTINGS_FILE

    def _signal(self) -> None:
        assert self._process is not None
        # Its end is told by whoever reads its log. Until then its number is nobody else's.
        if self._process.returncode is None:
            hang_up(self._process.pid)

    async def _apply(self) -> None:
        await self._signal_until(self._write())

    # --- process -------------------------------------------------------------------------------------------------

    async def _refused_door(self) -> tuple[str, OSError] | None:
        """The setting of a door that cannot be had, and why: whatever listens there instead would pass for this one."""
        doors = {"broker.port": self.port, "broker.enroll_port": self.enroll_port, "broker.tls_port": self.tls_port}
        for key, port in doors.items():
            if port is None:
                continue
            try:
                family, address = (await NameLookup().addresses(self.host, port))[0]
                with socket.socket(family, socket.SOCK_STREAM) as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(address)
            except OSError as error:
                of_port = error.errno in {errno.EADDRINUSE, errno.EACCES} and not isinstance(error, socket.gaierror)
                return (f"{key} {port}" if of_port else f"broker.host {self.host}"), error
        return None

    def _not_started(self, where: str, error: OSError) -> ConfigInvalid:
        hint = "see: ip address"
        if error.errno == errno.EADDRINUSE:
            hint = f"see what uses it: ss -ltnp 'sport = :{where.rpartition(' ')[2]}'"
        return start_error(
            error,
            "the broker did not start",
            where=where,
            found=error.strerror or str(error),
            allowed="an address of this machine, and free ports on it",
            hint=hint,
        )

    async def _start(self, command: list[str], canary: BrokerAddress) -> str | None:
        """Start the process; returns what it said when it ended before it let us in."""
        process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE)
        self._process = process
        try:
            async with asyncio.timeout(START_SECONDS):
                while process.returncode is None:
                    if await lets_in(canary):
                        return None
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            process.kill()
        await process.wait()
        assert process.stderr is not None
        said = (await process.stderr.read(65_536)).decode("utf-8", "replace")
        return "\n".join(line for line in said.splitlines() if not _is_expected(line)).strip()[:4096]

    async def _read_log(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            text = line.decode("utf-8", "replace").strip()
            if not self.hear_line(text) and not _is_expected(text):
                log.warning("broker: %s", text[:500])
        status = await self._process.wait()
        if not self._stopping:
            raise StationFailed(f"the broker ended by itself with status {status}", error_id="broker.ended")


def _not_allowed(failure: str) -> ConfigInvalid:
    """The error of a unit whose sandbox lets no broker be started beside the gateway; it does not pass by itself."""
    return ConfigInvalid(
        "the gateway may not start a broker of its own here",
        where="broker.mode",
        found=f"managed; {failure}",
        allowed="service, with outstation-broker.service; managed outside the sandbox of the package's unit",
        hint="write broker: {mode: service}, as the package has it; then systemctl restart outstation-gateway",
    )


def _said_error(failure: str) -> OSError:
    """What ended the broker, as an error that passes: the gateway wrote the settings of the broker itself."""
    number = errno.EADDRINUSE if os.strerror(errno.EADDRINUSE) in failure else errno.EAGAIN
    return OSError(number, failure or "it printed no error, or took no connection in time")


def _is_expected(line: str) -> bool:
    return any(words in line for words in EXPECTED_WORDS)


def _broker_owner() -> tuple[int, int]:
    """User and group of the broker's files; -1 stands for our own."""
    if os.geteuid() == 0 and shutil.which("setpriv") is not None:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(BROKER_USER)
            return entry.pw_uid, entry.pw_gid
    return -1, -1


def _prefix() -> list[str]:
    """Run it so that it dies with us, and not as root.

    The signal at the parent's death is lost when a process changes its user, so ``setpriv`` (util-linux, on every
    Debian) does both, in the order that keeps it; mosquitto then has no user to change to.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        return []
    command = [setpriv, "--pdeathsig", "TERM"]
    if os.geteuid() == 0:
        try:
            pwd.getpwnam(BROKER_USER)
        except KeyError:
            return [*command, "--"]
        command += ["--reuid", BROKER_USER, "--regid", BROKER_USER, "--clear-groups"]
    return [*command, "--"]
