"""The time zone that a schedule's times are said in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from device_agent.errors import ConfigInvalid

SALT_FORMAT: Final = "%Y-%m-%dT%H:%M:%S"
"""How Salt writes times of a schedule: local, without an offset."""


class OwnZone(tzinfo):
    """The machine's own zone as the C library knows it: from ``/etc/localtime``, ``TZ`` or a rule in it, tzset(3)."""

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        """By how much it is ahead of UTC at a time that is said in it."""
        return None if dt is None else dt.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, dt: datetime | None) -> timedelta | None:  # noqa: ARG002 - the signature is Python's
        """Not known apart from the offset."""
        return None

    def tzname(self, dt: datetime | None) -> str:  # noqa: ARG002 - the signature is Python's
        """One name for all of its times."""
        return "local"

    def fromutc(self, dt: datetime) -> datetime:
        """A time of UTC as it is said here, with the fold where it is said twice."""
        return datetime.fromtimestamp(dt.replace(tzinfo=UTC).timestamp()).replace(tzinfo=self)  # noqa: DTZ006 - the machine's own time is what is asked for

    def __str__(self) -> str:
        return "local"


OWN: Final = OwnZone()


def zone_of(name: str | None) -> tzinfo:
    """The zone of this name; without one the machine's own. Raises ``ConfigInvalid``."""
    if name is None:
        return OWN
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigInvalid(
            "there is no such time zone on this machine",
            where="timezone",
            found=repr(name[:80]),
            allowed="a name as in /usr/share/zoneinfo, such as Europe/Lisbon or UTC",
            hint="ls /usr/share/zoneinfo; where the folder is missing, install the package tzdata",
        ) from None


def shown(wall: float, zone: tzinfo, fmt: str = SALT_FORMAT) -> str:
    """A time as Salt writes it, or in another format of ``strftime``."""
    return datetime.fromtimestamp(wall, zone).strftime(fmt)


def read(text: str, fmt: str, zone: tzinfo) -> float:
    """A time that was written in a format of ``strptime``, in seconds since 1970. Raises ``ValueError``."""
    moment = datetime.strptime(text, fmt)  # noqa: DTZ007 - the zone is put in below, where the text has none
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
