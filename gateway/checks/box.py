"""The machine and the files of one station: what can be looked at whether the station runs or not."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from device_agent.clock import Clock
from gateway.config import StationSettings

STATE: Final = Path("/var/lib/outstation")
RUN: Final = Path("/run/outstation")
SERVICE_USER: Final = "outstation"
"""Who runs the stations that the package installs."""


@dataclass(frozen=True, kw_only=True)
class Box:
    """Where a station has its things. ``config`` is its settings file, where that is known."""

    role: Literal["master", "gateway"]
    settings: StationSettings
    state_dir: Path
    socket: Path
    config: Path | None = None
    running: bool = True
    clock: Clock = field(default_factory=Clock)

    @property
    def unit(self) -> str:
        """Its systemd unit."""
        return f"outstation-{self.role}"

    @property
    def tcp_ports(self) -> list[tuple[str, str, int]]:
        """Where it listens by its settings: setting, host and port; not those of another's broker."""
        found = []
        broker = self.settings.broker
        # A broker that is a service of its own has its ports while the station does not run.
        ours = ("managed", "embedded", "service") if self.running else ("managed", "embedded")
        if broker is not None and broker.mode in ours:
            host = broker.host or ("127.0.0.1" if broker.mode == "embedded" else "0.0.0.0")  # noqa: S104 - the default
            found += [("broker.port", host, broker.port), ("broker.enroll_port", host, broker.enrollment_port)]
            if broker.tls_port is not None:
                found.append(("broker.tls_port", host, broker.tls_port))
        listens = []
        if self.settings.sites is not None:
            listens.append(("sites.listen", self.settings.sites.listen.removeprefix("tcp://")))
        if self.settings.api is not None:
            listens.append(("api.listen", self.settings.api.listen))
        for setting, address in listens:
            host, _, port = address.rpartition(":")
            if port.isdigit() and port != "0":
                found.append((setting, host.strip("[]"), int(port)))
        return found

    def owner(self) -> int:
        """The user id to which the state folder should belong.

        That is who runs the station; of one that does not run, the service's user for the package's folders, and
        whose folder it is for any other.
        """
        if self.running:
            return os.geteuid()
        if self.state_dir.is_relative_to(STATE):
            try:
                return pwd.getpwnam(SERVICE_USER).pw_uid
            except KeyError:
                return os.geteuid()
        try:
            return self.state_dir.stat().st_uid
        except OSError:
            return os.geteuid()


def user_name(number: int) -> str:
    """A user's name, or his number where he has none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def box_of(
    role: Literal["master", "gateway"],
    settings: StationSettings,
    *,
    config: Path | None = None,
    running: bool = True,
    clock: Clock | None = None,
) -> Box:
    """The box of a station with these settings."""
    return Box(
        role=role,
        settings=settings,
        state_dir=Path(settings.state_dir or STATE / role),
        socket=Path(settings.socket or RUN / f"{role}.sock"),
        config=config,
        running=running,
        clock=clock or Clock(),
    )
