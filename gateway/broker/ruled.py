"""What brokers have in common that take their rules from files and a SIGHUP, and are proven to have read them.

mosquitto 2.0 forgets a SIGHUP that comes while it reads, and says nowhere that it has read. So each change brings a new
password for a user who may do nothing, and the signal is repeated until that password is taken: then the rules are in
force, and whoever has no place in them is disconnected.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from pathlib import Path
from typing import Any

from device_agent.errors import StationFailed
from device_agent.mqtt import BrokerAddress
from gateway.broker.folder import RulesFolder
from gateway.broker.login import lets_in
from gateway.broker.part import BrokerPart
from gateway.broker.passwords import hash_password, new_password
from gateway.broker.rules import CANARY_USER, SERVER_CERTIFICATE, SERVER_KEY, SETTINGS_FILE, STATION_SOCKET, BrokerRules

TAKE_SECONDS = 10.0
SIGNAL_SECONDS = 1.0
"""A signal after which nothing has changed for so long was forgotten, and is sent again."""

LOOK_SECONDS = 0.02


class RuledBroker(BrokerPart):
    """A mosquitto with our rules, and a unix socket for the station."""

    def __init__(self, *, station_user: str, **given: Any) -> None:
        super().__init__(**given)
        self._station_user = station_user
        self._station_password = new_password()
        self._station_hash = hash_password(self._station_password)
        self._socket = ""
        self._rules: BrokerRules | None = None
        self._folder: RulesFolder | None = None

    def station_address(self) -> BrokerAddress:
        """The unix socket of the broker, and a password made for this run."""
        return BrokerAddress(unix_socket=self._socket, username=self._station_user, password=self._station_password)

    def _use(self, folder: RulesFolder, *, runtime: Path | None = None, user: str | None = None) -> None:
        """Take these folders: the files, and if it is another one that of the socket and the process id."""
        self._folder = folder
        self._socket = str((runtime or folder.path) / STATION_SOCKET)
        self._rules = BrokerRules(
            site=self.site,
            folder=folder.path,
            host=self.host,
            port=self.port,
            enroll_port=self.enroll_port,
            tls_port=self.tls_port,
            station_user=self._station_user,
            runtime=runtime,
            user=user,
        )

    def _write(self) -> BrokerAddress:
        """Write every file, the settings last; returns a way in that opens when all of them have been read."""
        assert self._folder is not None
        assert self._rules is not None
        if self._authority is not None and self._authority.server_is_due():
            certificate, key = self._authority.server(self.host)
            self._folder.write({SERVER_KEY: key, SERVER_CERTIFICATE: certificate})
        word = new_password()
        station = {self._station_user: self._station_hash, CANARY_USER: hash_password(word)}
        fixed = self._rules.fixed_files()
        settings = fixed.pop(SETTINGS_FILE)
        self._folder.write(fixed)
        self._folder.write(self._rules.password_files(self._users(station)))
        # Whoever waits for the settings finds everything else that they name.
        self._folder.write({SETTINGS_FILE: settings})
        return BrokerAddress(unix_socket=self._socket, username=CANARY_USER, password=word)

    @abstractmethod
    def _signal(self) -> None:
        """Tell the broker to read its files again."""

    async def _signal_until(self, canary: BrokerAddress) -> None:
        """Raises ``StationFailed`` when what was written is not in force in time."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(TAKE_SECONDS):
                while True:
                    self._signal()
                    again = loop.time() + SIGNAL_SECONDS
                    while loop.time() < again:
                        if await lets_in(canary):
                            return
                        await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise StationFailed(f"the broker did not read its rules again in {TAKE_SECONDS:g} s") from None
