"""A real mosquitto without rules on a port the kernel chose, with the settings of ours that matter; it can be stopped
and started. One with rules is the product's own: ``gateway/broker/mosquitto.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import shutil
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from device_agent.authority import context_for
from device_agent.lean_mqtt import encode_connect
from device_agent.mqtt import BrokerAddress
from device_agent.protocol import limits
from tests.peers.waiting import until

SETTINGS = """\
listener {port} 127.0.0.1
listener 0 {unix_socket}
allow_anonymous true
persistence false
max_queued_messages 0
max_inflight_messages 0
max_packet_size {message_bytes}
set_tcp_nodelay true
log_type error
log_type warning
log_type notice
log_dest file {log}
"""


def mosquitto() -> str:
    """The broker's program."""
    found = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    assert found is not None, "mosquitto is not installed: apt-get install mosquitto"
    return found


def free_port() -> int:
    """A port nobody listens on at this moment."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on at this moment, all different, and none that was given out lately."""
    return [next(port for port in PORTS if _is_free(port)) for _ in range(count)]


def _own_ports() -> Iterator[int]:
    """Ports of this test process alone, round and round.

    Below those that the kernel gives to whoever connects somewhere (``ip_local_port_range`` in ip(7)), or a swarm of
    another process could have taken one by the time that a broker binds it.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % PROCESSES
    own = range(LOWEST_PORT + worker * OWN_PORTS, LOWEST_PORT + (worker + 1) * OWN_PORTS)
    first = secrets.randbelow(OWN_PORTS)
    return itertools.cycle([*own[first:], *own[:first]])


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


PROCESSES, LOWEST_PORT, OWN_PORTS = 8, 12_000, 2_500
PORTS = _own_ports()


class Broker:
    """One mosquitto process at a time, always at the same address."""

    def __init__(self, folder: Path, message_bytes: int = limits.MESSAGE_BYTES + 1024) -> None:
        self.address = BrokerAddress("127.0.0.1", free_port())
        self.unix_socket = folder / "mqtt"
        self.log = folder / "mosquitto.log"
        self._settings = folder / "mosquitto.conf"
        self._message_bytes = message_bytes
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and return when it accepts connections."""
        settings = SETTINGS.format(
            port=self.address.port, unix_socket=self.unix_socket, message_bytes=self._message_bytes, log=self.log
        )
        if Path("/proc/self").stat().st_uid == 0:
            # As root mosquitto would become the user mosquitto, who cannot write its log in a test's folder.
            settings = f"user root\n{settings}"
        self._settings.write_text(settings)
        self._process = await asyncio.create_subprocess_exec(mosquitto(), "-c", str(self._settings))
        await until(self._accepts, what=f"mosquitto at {self.address}")

    async def stop(self) -> None:
        """Stop it; every connection ends."""
        await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        """Stop it without a goodbye."""
        await self._end(signal.SIGKILL)

    async def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        async with asyncio.timeout(60):
            await process.wait()

    async def _accepts(self) -> bool:
        assert self._process is not None
        assert self._process.returncode is None, f"mosquitto ended: {self.log.read_text() if self.log.exists() else ''}"
        # Its answer proves that its loop runs: before that it listens already, and loses a SIGTERM.
        try:
            reader, writer = await asyncio.open_connection(self.address.host, self.address.port)
        except OSError:
            return False
        try:
            writer.write(encode_connect("probe", 10))
            async with asyncio.timeout(60):
                return await reader.read(4) == b"\x20\x02\x00\x00"
        finally:
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def running_broker(folder: Path) -> AsyncIterator[Broker]:
    """A broker for as long as the block lasts."""
    broker = Broker(folder)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def shown_context(port: int, digest: bytes) -> ssl.SSLContext:
    """What to connect with to the broker on this port, whose authority has this digest."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=15.0)
    return context_for(plain, "127.0.0.1", port, digest)
