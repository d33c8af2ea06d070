"""Which stations ``outstation check`` looks at, and how: by their API, and where nobody answers, by their files."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from device_agent.errors import ConfigInvalid, NotRunning, StationFailed
from gateway.cli import client as clients
from gateway.cli.daemons import GATEWAY_CONFIG, MASTER_CONFIG
from gateway.cli.views import CheckNews, Finding, FindingList, StationView

if TYPE_CHECKING:
    from gateway.checks.box import Box
    from gateway.cli.client import StationClient
    from gateway.cli.command import Invocation
    from gateway.config import StationSettings
    from gateway.rooms import Role

NOBODY = "unnamed"
"""In the place of a name that is not there yet."""

KNOCK_SECONDS = 2.0

SILENT = "station.silent"
"""The error of a station that takes a connection and says nothing: it is looked at from outside."""

CONFIGS: dict[Role, Path] = {"gateway": GATEWAY_CONFIG, "master": MASTER_CONFIG}


@dataclass(frozen=True)
class Report:
    """What was found of one station. ``box`` is there where its files may be looked at from here."""

    role: str
    findings: list[Finding]
    station: StationView | None = None
    news: list[CheckNews] = field(default_factory=list)
    box: Box | None = None
    name: str = ""

    @property
    def running(self) -> bool:
        """Whether it answered."""
        return self.station is not None


def reports(called: Invocation, config: Path | None, *, tell: bool) -> list[Report]:
    """One for each station that is meant: the one named, else every one on this machine.

    Raises ``NotRunning`` where there is none, and what the API refuses with.
    """
    if config is not None:
        return [_here(_role_of(config), config, tell=tell)]
    if called.meant.api is not None or called.meant.socket is not None:
        return [_asked(called.client(), tell=tell)]
    there = {role: path for role, path in CONFIGS.items() if path.exists() or _default_socket(role).exists()}
    # The package brings settings for both, and of most machines one is used: the one that has a name, or that answers.
    used = {role: path for role, path in there.items() if _is_used(role, path)}
    if not used:
        used = {role: path for role, path in there.items() if role == "gateway"} or there
    if not used:
        # It raises, and says where stations are looked for.
        return [_asked(called.client(), tell=tell)]
    return [_here(role, path, tell=tell) for role, path in used.items()]


def _is_used(role: Role, config: Path) -> bool:
    from device_agent.settings import says

    try:
        return says(config, "name") or _listens(_default_socket(role))
    except ConfigInvalid:
        # Whoever broke it has written it.
        return True


def _listens(path: Path) -> bool:
    """Whether somebody is at this socket: of one who was killed it stays, with nobody behind it."""
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(KNOCK_SECONDS)
        try:
            door.connect(str(path))
        except PermissionError:
            # There is somebody, who is to be asked as another user; whoever asks says so.
            return True
        except OSError:
            return False
    return True


def _here(role: Role, config: Path, *, tell: bool) -> Report:
    """A station of this machine, whether it runs or not."""
    from gateway.checks.box import box_of
    from gateway.checks.every import look_at_rest
    from gateway.checks.settings import unreadable

    try:
        settings = _settings(role, config)
    except ConfigInvalid as error:
        try:
            # With wrong settings it may still run with those of before, at the place where it always is.
            report = _asked(clients.StationClient(_default_socket(role)), tell=tell)
        except NotRunning:
            report = Report(role=role, findings=[])
        wrong = unreadable(config, error, f"outstation-{role}", running=report.running)
        report.findings.extend(_viewed([wrong]))
        return report
    box = box_of(role, settings, config=config, running=False)
    name = settings.name if settings.name != NOBODY else ""
    try:
        return _asked(clients.StationClient(box.socket), tell=tell, box=box)
    except (NotRunning, StationFailed) as error:
        if isinstance(error, StationFailed) and error.error_id != SILENT:
            raise
        return Report(role=role, findings=_viewed(look_at_rest(box)), box=box, name=name)


def _settings(role: Role, config: Path) -> StationSettings:
    """A station's settings; of a gateway that nobody has given a name, those that it waits with."""
    from device_agent.settings import load, says
    from gateway.config import BrokerSettings, StationSettings
    from gateway.station_settings import settings_for

    if role == "master" or (config.exists() and says(config, "name")):
        return settings_for(role, config)
    if not config.exists():
        return StationSettings(name=NOBODY, broker=BrokerSettings())
    return load(StationSettings, config, {"name": NOBODY})


def _asked(client: StationClient, *, tell: bool, box: Box | None = None) -> Report:
    found = client.tell() if tell else FindingList(client.findings())
    station = client.station()
    if box is not None:
        from gateway.checks.permissions import of_config

        found.findings.extend(_viewed(of_config(box)))
    return Report(
        role=station.role, findings=found.findings, station=station, news=found.news, box=box, name=station.name
    )


def _viewed(findings: object) -> list[Finding]:
    import msgspec

    return msgspec.convert(msgspec.to_builtins(findings), list[Finding])


def _default_socket(role: str) -> Path:
    return clients.RUN_DIRECTORY / f"{role}.sock"


def _role_of(config: Path) -> Role:
    """Whose settings these are: the package names them after the role."""
    return "master" if config.name.startswith("master") else "gateway"
