"""A real mosquitto with the product's own rules: who may log in where, who may say and hear what."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from device_agent.mqtt import BrokerAddress
from gateway.broker.passwords import hash_password
from gateway.broker.rules import (
    ENROLL_PASSWORD,
    ENROLL_USER,
    SERVER_CERTIFICATE,
    SERVER_KEY,
    SETTINGS_FILE,
    STATION_SOCKET,
    BrokerRules,
    Users,
)
from gateway.broker.tls import TlsAuthority
from tests.peers.broker import free_ports, mosquitto
from tests.peers.played_station import PlayedStation
from tests.peers.waiting import until

STATION = "station"
PASSWORD = "a password for the station"


class RuledBroker:
    """One broker with a door for devices, one for those who join, one for the station."""

    def __init__(self, folder: Path, site: str = "lisbon") -> None:
        folder.mkdir()
        self._folder = folder
        self.port, self.join_port, self.tls_port = free_ports(3)
        self.authority = TlsAuthority(folder / "authority.pem", site)
        self.devices: dict[str, str] = {}
        self._rules = BrokerRules(
            site=site,
            folder=folder,
            host="127.0.0.1",
            port=self.port,
            enroll_port=self.join_port,
            tls_port=self.tls_port,
            station_user=STATION,
        )
        self._process: asyncio.subprocess.Process | None = None

    @property
    def station(self) -> BrokerAddress:
        """How the station reaches it."""
        return BrokerAddress(unix_socket=str(self._folder / STATION_SOCKET), username=STATION, password=PASSWORD)

    async def start(self) -> None:
        """Start it, and return when all its doors are open."""
        self.authority.load()
        certificate, key = self.authority.server("127.0.0.1")
        (self._folder / SERVER_CERTIFICATE).write_text(certificate)
        (self._folder / SERVER_KEY).write_text(key)
        for name, text in self._rules.fixed_files().items():
            (self._folder / name).write_text(text)
        if os.geteuid() == 0:
            settings = self._folder / SETTINGS_FILE
            settings.write_text(f"user root\n{settings.read_text()}")
        self._write_users()
        with (self._folder / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                mosquitto(), "-c", str(self._folder / SETTINGS_FILE), stderr=log, stdout=log
            )
        await until(self._listens, what="the broker")

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(60):
                await process.wait()

    def admit(self, did: str, password: str) -> None:
        """Let a device log in with this password from now on."""
        self.devices[did] = password
        self._write_users()
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    async def _listens(self) -> bool:
        """Whether each door lets somebody in: it is made before it does."""
        try:
            for port in (self.port, self.join_port, self.tls_port):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
            _, writer = await asyncio.open_unix_connection(self._folder / STATION_SOCKET)
            writer.close()
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        return True

    def _write_users(self) -> None:
        users = Users(
            devices={did: hash_password(password) for did, password in self.devices.items()},
            enrolling={ENROLL_USER: hash_password(ENROLL_PASSWORD)},
            station={STATION: hash_password(PASSWORD)},
        )
        for name, text in self._rules.password_files(users).items():
            (self._folder / name).write_text(text)


@asynccontextmanager
async def ruled_broker(folder: Path) -> AsyncIterator[RuledBroker]:
    """A broker with rules for as long as the block lasts."""
    broker = RuledBroker(folder)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def as_gateway(station: PlayedStation, broker: RuledBroker) -> None:
    """Tell devices where they find the broker, and let in at the broker who was let in at the site."""
    station.token = station.site.token(f"127.0.0.1:{broker.join_port}").text()
    station.site.terms = {"port": broker.port}
    station.confirmed = lambda did: broker.admit(did, station.site.passwords[did])
