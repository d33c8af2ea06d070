"""Mode ``managed``: a mosquitto of our own, with our settings, that dies with its station.

Debian's defaults drop 80 to 90 % of 10,000 simultaneous answers (queue and in-flight limits, each answer already
acknowledged to its sender), so both limits are lifted; devices use QoS 0 and clean sessions, so nothing queues for
them, and our own confirmation and resend are the guarantee. Only loopback is served: what travels is not sealed yet.
"""

from __future__ import annotations

import asyncio
import ipaddress
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

from device_agent.errors import ConfigInvalid, StationFailed
from device_agent.protocol import limits
from gateway.broker.part import BrokerPart

log = logging.getLogger(__name__)

START_SECONDS = 10.0
STOP_SECONDS = 5.0
PORT_RETRIES = 20
PORT_RETRY_SECONDS = 0.25
"""A broker that died with its station a moment ago may still hold the port."""

BROKER_USER = "mosquitto"


def find_mosquitto() -> str | None:
    """Where mosquitto is; Debian installs it outside an ordinary user's PATH."""
    return shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def settings_text(host: str, port: int) -> str:
    """The broker's whole configuration (mosquitto.conf(5))."""
    return "\n".join(
        [
            f"listener {port} {host}",
            "allow_anonymous true",
            "persistence false",
            "max_queued_messages 0",
            "max_inflight_messages 0",
            "set_tcp_nodelay true",
            # The topic and its header come on top of the payload.
            f"max_packet_size {limits.MESSAGE_BYTES + 2048}",
            "log_dest stderr",
            "log_type error",
            "log_type warning",
            "connection_messages false",
            "",
        ]
    )


def refuse_open_address(host: str) -> None:
    """Raise ``ConfigInvalid`` unless the address is loopback."""
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise ConfigInvalid(
            "a broker of our own serves only this machine in this release, since messages are not sealed yet",
            where="broker.host",
            found=host,
            allowed="127.0.0.1, ::1 or localhost",
            hint="set broker.host to 127.0.0.1, or use broker.mode external with a broker you protect",
        )


class Mosquitto(BrokerPart):
    """The broker's process."""

    drain_seconds: ClassVar[float] = STOP_SECONDS

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self._folder: Path | None = None
        self._process: Process | None = None
        self._stopping = False

    async def open(self) -> None:
        """Start it and wait until it accepts. Raises ``ConfigInvalid`` when it cannot be started."""
        refuse_open_address(self.host)
        program = find_mosquitto()
        if program is None:
            raise ConfigInvalid(
                "mosquitto is not installed",
                where="broker.mode",
                found="managed",
                allowed="managed with mosquitto installed, external, or embedded (up to 200 devices)",
                hint="apt install mosquitto",
            )
        self._folder = Path(tempfile.mkdtemp(prefix="outstation-broker-"))
        # The broker's own user must be able to read it; there is nothing secret in it.
        self._folder.chmod(0o755)
        settings = self._folder / "mosquitto.conf"
        settings.write_text(settings_text(self.host, self.port), encoding="utf-8")
        for attempt in range(PORT_RETRIES):
            failure = self._taken() or await self._start([*_prefix(), program, "-c", str(settings)])
            if failure is None:
                break
            if "Address already in use" not in failure or attempt == PORT_RETRIES - 1:
                raise ConfigInvalid(
                    "the broker did not start",
                    where=f"broker.port {self.port}",
                    found=failure or "it ended without a word",
                    allowed="a free port on this machine",
                    hint=f"see what uses it: ss -ltnp 'sport = :{self.port}'",
                )
            await asyncio.sleep(PORT_RETRY_SECONDS)
        log.info("broker running host=%s port=%d", self.host, self.port)
        self.spawn(self._read_log(), "log")

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
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def status(self) -> Mapping[str, Any]:
        """As the API shows it."""
        pid = self._process.pid if self._process is not None else None
        return {"mode": "managed", "host": self.host, "port": self.port, "pid": pid}

    def _taken(self) -> str | None:
        """Whether somebody else has the port: what answers there would pass for ours."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            with socket.socket(found[0][0], socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(found[0][4])
        except OSError as error:
            return error.strerror or str(error)
        return None

    async def _start(self, command: list[str]) -> str | None:
        """Start the process; returns what it said when it ended before it accepted."""
        process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE)
        self._process = process
        try:
            async with asyncio.timeout(START_SECONDS):
                while process.returncode is None:
                    try:
                        _, writer = await asyncio.open_connection(self.host, self.port)
                    except OSError:
                        await asyncio.sleep(0.02)
                        continue
                    writer.close()
                    # Somebody else's broker on this port would accept as well, while ours is just ending.
                    await asyncio.sleep(0.05)
                    if process.returncode is None:
                        return None
        except TimeoutError:
            process.kill()
        await process.wait()
        assert process.stderr is not None
        return (await process.stderr.read(4096)).decode("utf-8", "replace").strip()

    async def _read_log(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            log.warning("broker: %s", line.decode("utf-8", "replace").strip()[:500])
        status = await self._process.wait()
        if not self._stopping:
            raise StationFailed(f"the broker ended by itself with status {status}", error_id="broker.ended")


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
