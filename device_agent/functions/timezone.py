"""The time zone of the device and of its hardware clock."""

from __future__ import annotations

import re

from device_agent import text_files
from device_agent.commands import ask, do, shell
from device_agent.ended import FunctionFailed
from device_agent.file_changes import always, one_change_at_a_time
from device_agent.host import Host

ZONES = "/usr/share/zoneinfo"
LOCALTIME = "/etc/localtime"
NAMED = "/etc/timezone"
POSIX = "/etc/TZ"
"""Where small systems without a database of zones keep one rule, as in the variable TZ."""

ADJTIME = "/etc/adjtime"


async def get_zone(host: Host) -> str:
    """Return the name of the time zone.

    CLI Example:

        outstation run '*' timezone.get_zone
    """
    link = await host.stat(LOCALTIME, follow=False)
    if link is not None and (found := re.search(r"/zoneinfo/(?:uclibc/)?(.+)$", link.target)):
        return found[1]
    for path in (NAMED, POSIX):
        if name := (await text_files.read_if_there(host, path)).strip():
            return name
    if link is None:
        return "UTC"  # What the C library takes when nobody says otherwise.
    raise FunctionFailed(f"{LOCALTIME} is a copy that does not say of which zone; timezone.zone_compare can be asked")


async def set_zone(host: Host, timezone: str) -> bool:
    """Set the time zone and return ``True``, or fail with the file that is not there.

    CLI Example:

        outstation run '*' timezone.set_zone Europe/Berlin
    """
    if await host.stat(ZONES) is None:
        if not re.fullmatch(r"<?[A-Za-z0-9+-]{3,}>?[-+]?\d[^\s/]*(/\d+)?", timezone) or "\n" in timezone:
            raise FunctionFailed(
                f"this device has no {ZONES}, and {timezone!r} is no rule such as CET-1CEST,M3.5.0,M10.5.0/3"
            )
        await text_files.write(host, POSIX, f"{timezone}\n")
        return True
    await _file(host, timezone)
    # Renamed over, so that no program ever finds no zone at all.
    script = (
        'ln -s "$1" "$2.outstation" && { mv -fT "$2.outstation" "$2" 2>/dev/null || mv -f "$2.outstation" "$2" || '
        '{ rm -f "$2.outstation"; exit 1; }; }'
    )
    await do(host, "rm", "-f", f"{LOCALTIME}.outstation")
    (await shell(host, script, f"{ZONES}/{timezone}", LOCALTIME)).must()
    if await host.stat(NAMED) is not None or host.grains.get("os_family") == "Debian":
        await text_files.write(host, NAMED, f"{timezone}\n")
    return True


async def zone_compare(host: Host, timezone: str) -> bool:
    """Return whether the device keeps this time zone; where it has no name for its own, whether the two are alike.

    CLI Example:

        outstation run '*' timezone.zone_compare Europe/Berlin
    """
    if await host.stat(ZONES) is None:
        return timezone == await get_zone(host)
    link = await host.stat(LOCALTIME, follow=False)
    if link is None:
        return timezone in {"UTC", "Etc/UTC"}
    if link.target:
        return link.target.endswith(f"/zoneinfo/{timezone}")
    return (await ask(host, "cmp", "-s", await _file(host, timezone), LOCALTIME)).ok


async def get_offset(host: Host) -> str:
    """Return the difference to UTC now, as in ``+0100``.

    CLI Example:

        outstation run '*' timezone.get_offset
    """
    return (await do(host, "date", "+%z")).out.strip()


async def get_zonecode(host: Host) -> str:
    """Return the short name of the time now, as in ``CET``.

    CLI Example:

        outstation run '*' timezone.get_zonecode
    """
    return (await do(host, "date", "+%Z")).out.strip()


async def get_hwclock(host: Host) -> str:
    """Return whether the hardware clock keeps ``UTC`` or ``localtime``.

    CLI Example:

        outstation run '*' timezone.get_hwclock
    """
    lines = await text_files.lines_if_there(host, ADJTIME)
    return "localtime" if len(lines) > 2 and lines[2].strip() == "LOCAL" else "UTC"


@one_change_at_a_time(always(ADJTIME))
async def set_hwclock(host: Host, clock: str) -> bool:
    """Say whether the hardware clock keeps ``UTC`` or ``localtime``, and return ``True``. The clock itself is not set.

    CLI Example:

        outstation run '*' timezone.set_hwclock UTC
    """
    if clock not in {"UTC", "localtime"}:
        raise FunctionFailed(f"{clock!r} is neither UTC nor localtime", value=False)
    lines = await text_files.lines_if_there(host, ADJTIME) or ["0.0 0 0.0", "0"]
    lines = [*lines[:2], "LOCAL" if clock == "localtime" else "UTC"]
    await text_files.write(host, ADJTIME, "".join(f"{line}\n" for line in lines))
    return True


async def _file(host: Host, timezone: str) -> str:
    path = f"{ZONES}/{timezone}"
    stat = None if re.search(r"(^|/)\.{1,2}(/|$)|^/|\0", timezone) else await host.stat(path)
    if stat is None or stat.kind != "file":
        raise FunctionFailed(f"Zone does not exist: {path}", value=f"Zone does not exist: {path}")
    return path
