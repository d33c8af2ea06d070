"""Every beacon of this release, by the name that Salt has for it where it has one."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

import msgspec

from device_agent.beacons.camera_stream import CameraStream
from device_agent.beacons.custom import CustomBeacon
from device_agent.beacons.diskusage import DiskUsage
from device_agent.beacons.given import Given, InvalidBeacon, NotThere, Options
from device_agent.beacons.inotify import Inotify
from device_agent.beacons.load import Load
from device_agent.beacons.log import Log
from device_agent.beacons.network_info import NetworkInfo
from device_agent.beacons.network_settings import NetworkSettings
from device_agent.beacons.port import Beacon
from device_agent.beacons.ps import Processes
from device_agent.beacons.service import Services
from device_agent.beacons.status import Status
from device_agent.beacons.temperature import Temperature
from device_agent.beacons.uptime import Uptime
from device_agent.beacons.usage import MemUsage, SwapUsage
from device_agent.errors import Refused
from device_agent.protocol.messages import check_plain, encode_value

KINDS: Final[dict[str, type[Beacon]]] = {
    "camera_stream": CameraStream,
    "diskusage": DiskUsage,
    "inotify": Inotify,
    "load": Load,
    "log": Log,
    "memusage": MemUsage,
    "network_info": NetworkInfo,
    "network_settings": NetworkSettings,
    "ps": Processes,
    "service": Services,
    "status": Status,
    "swapusage": SwapUsage,
    "temperature": Temperature,
    "uptime": Uptime,
}

BEACONS: Final = 64
"""Beacons that one device has at most."""

CONFIGURATION_BYTES: Final = 64 * 1024
NAME_CHARACTERS: Final = 64

ALL_ENABLED: Final = "enabled"
"""The one name among the beacons that is none: whether any of them runs."""


class Begun(NamedTuple):
    """A beacon as it is configured."""

    name: str
    options: Options
    beacon: Beacon


def begun(name: str, data: Any, brought: Collection[str] = ()) -> Begun:
    """The beacon of this name, which has not looked yet. Raises ``InvalidBeacon``.

    Of those that a site ``brought``, none takes the name of one of the release.
    """
    if not 1 <= len(name) <= NAME_CHARACTERS or not name.isprintable() or "/" in name or name == ALL_ENABLED:
        raise InvalidBeacon(
            "A beacon cannot have this name.",
            where="beacons",
            found=name[:80],
            allowed=f"1 to {NAME_CHARACTERS} characters, no slash, not {ALL_ENABLED}",
        )
    try:
        check_plain(data)
        size = len(encode_value(data))
    except (Refused, TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidBeacon(f"Configuration for {name} beacon is no plain data: {error}") from None
    if size > CONFIGURATION_BYTES:
        raise InvalidBeacon(
            f"Configuration for {name} beacon is too large.",
            where=f"beacons.{name}",
            found=f"{size} bytes",
            allowed=f"{CONFIGURATION_BYTES} bytes",
        )
    given = Given(name, data)
    kind = KINDS.get(given.module) or (CustomBeacon if given.module in brought else None)
    if kind is None:
        near = get_close_matches(given.module[:80], KINDS, n=1)
        raise NotThere(
            f'Beacon "{given.module[:80]}" is not available.',
            where=f"beacons.{name}",
            allowed=", ".join(sorted({*KINDS, *brought})),
            hint=f"did you mean {near[0]}? A beacon of another name says what it is: - beacon_module: {near[0]}"
            if near
            else f"a beacon of another name says what it is: - beacon_module: {min(KINDS)}",
        )
    return Begun(name, given.options, kind(given))
