"""Mode ``external``: somebody else runs the broker; the downlink's own state says whether it answers.

The station writes the rules of a mosquitto into a folder, with settings that use them, and signals that broker if it
was told where its process id stands. It comes in through the devices' door, with the user of its settings.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from device_agent.clock import Clock
from device_agent.errors import ConfigInvalid, StationFailed
from device_agent.mqtt import BrokerAddress
from device_agent.start_errors import start_error
from gateway.broker.folder import RulesFolder
from gateway.broker.hangup import hang_up
from gateway.broker.part import BrokerPart
from gateway.broker.passwords import hash_password
from gateway.broker.rules import SERVER_CERTIFICATE, SERVER_KEY, BrokerRules
from gateway.broker.tls import AUTHORITY_FILE, TlsAuthority

log = logging.getLogger(__name__)

PROGRAM = "mosquitto"
SIGNAL_AGAIN_SECONDS = 2.0
"""mosquitto forgets a signal that comes while it reads, so there is a second one for each change."""


class ExternalBroker(BrokerPart):
    """An address, nothing to start or stop, and a folder of rules."""

    def __init__(
        self,
        *,
        site: str,
        state_dir: Path,
        host: str,
        port: int,
        enroll_port: int,
        tls_port: int | None = None,
        rules_dir: Path | None = None,
        pid_file: Path | None = None,
        username: str | None = None,
        password: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(
            site=site,
            host=host,
            port=port,
            enroll_port=enroll_port,
            tls_port=tls_port,
            authority=TlsAuthority(state_dir / AUTHORITY_FILE, site, clock) if tls_port is not None else None,
        )
        self._path = rules_dir or state_dir / "broker"
        self._pid_file = pid_file
        self._username = username
        self._password = password
        self._station = {username: hash_password(password or "")} if username is not None else {}
        self._rules = BrokerRules(
            site=site,
            folder=self._path,
            host=None,
            port=port,
            enroll_port=enroll_port,
            tls_port=tls_port,
            station_user=username,
            station_door=False,
        )
        self._folder: RulesFolder | None = None
        self._untold = False

    def station_address(self) -> BrokerAddress:
        """As the settings say."""
        return BrokerAddress(host=self.host, port=self.port, username=self._username, password=self._password)

    async def open(self) -> None:
        """Write the rules. Raises ``ConfigInvalid`` when the folder cannot be used or the user cannot stand in them."""
        await super().open()
        try:
            self._path.mkdir(mode=0o750, parents=True, exist_ok=True)
            # The broker's user reads through the folder's group, which whoever made the folder chose.
            self._folder = RulesFolder(self._path, mode=0o640, owner=(-1, self._path.stat().st_gid))
            self._write()
        except OSError as error:
            raise start_error(
                error,
                "the folder of the broker's rules cannot be used",
                self._path,
                where="broker.rules_dir",
                found=f"{error.filename or self._path}: {error.strerror}",
                allowed="a folder of this user, with the group of the broker's user",
                hint="set broker.rules_dir in the settings",
            ) from None
        except ValueError:
            raise ConfigInvalid(
                "this user cannot stand in a password file",
                where="broker.username",
                found=self._username,
                allowed="1 to 64 characters without spaces and without : # + /",
            ) from None
        if self._pid_file is None:
            log.info("nobody is told to read the rules again: broker.pid_file is not set folder=%s", self._path)
        self._start_applying()
        # Written already; the broker is told as of any change.
        self._changed.set()

    def status(self) -> Mapping[str, Any]:
        """As the API shows it."""
        return self._status("external")

    def _write(self) -> None:
        assert self._folder is not None
        changed = self._folder.write(self._rules.fixed_files())
        if self._authority is not None and self._authority.server_is_due():
            certificate, key = self._authority.server(self.host)
            changed |= self._folder.write({SERVER_KEY: key, SERVER_CERTIFICATE: certificate})
        changed |= self._folder.write(self._rules.password_files(self._users(self._station)))
        self._untold |= changed

    async def _apply(self) -> None:
        self._write()
        if self._untold and self._pid_file is not None:
            self._signal(self._pid_file)
            self._untold = False
            self.spawn(self._signal_again(self._pid_file), "second signal")

    async def _signal_again(self, pid_file: Path) -> None:
        await asyncio.sleep(SIGNAL_AGAIN_SECONDS)
        with contextlib.suppress(StationFailed):
            self._signal(pid_file)

    @staticmethod
    def _signal(pid_file: Path) -> None:
        """Tell the broker to read its rules again. One that does not run reads them when it starts."""
        try:
            pid = int(pid_file.read_text(encoding="ascii"))
            # A process id that was left behind may be anybody's by now.
            if Path(f"/proc/{pid}/comm").read_bytes().rstrip(b"\n") == PROGRAM.encode() and hang_up(pid):
                return
        except (FileNotFoundError, ProcessLookupError):
            pass
        except (OSError, ValueError) as error:
            raise StationFailed(
                "the broker cannot be told to read its rules again", where=str(pid_file), found=str(error)
            ) from None
        log.warning("no broker to be told of new rules pid_file=%s", pid_file)
