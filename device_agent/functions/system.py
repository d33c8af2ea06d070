"""The device as a whole: restart it, switch it off, its clock and its name."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Annotated

from msgspec import Meta

from device_agent import host_name, restarts, system_text, text_files
from device_agent.commands import ask, do, one_of, present, shell
from device_agent.ended import Ended, FunctionFailed, Restart
from device_agent.file_changes import always, one_change_at_a_time
from device_agent.host import Host
from device_agent.protocol import limits

RESTART_SECONDS = 900.0
"""How long a device may take to be there again, when nobody says otherwise: a check of its disk is in it."""

MACHINE_INFO = "/etc/machine-info"
TIME_FORMS = ("%I:%M:%S %p", "%I:%M %p", "%H:%M:%S", "%H:%M")
DATE_FORMS = ("%Y-%m-%d", "%m-%d-%Y", "%m-%d-%y", "%m/%d/%Y", "%m/%d/%y", "%Y/%m/%d")

BEGIN_SECONDS = 30.0
"""How long the command that restarts a device is waited for: in the best case it never ends."""

SIGNALLED = 128
"""A shell adds the number of the signal to it."""

_REBOOT = """trap '' HUP PIPE
if [ "$(id -u)" = 0 ]; then sleep 1; fi
exec reboot"""
"""An administrator's is late, so that the word that it begins is out before the device is gone. Others are refused.

It goes on when whoever asked is gone, and has nobody left to print to.
"""

_SOON = """if [ "$(id -u)" != 0 ]; then exec "$@"; fi
trap '' HUP
(sleep 1; exec "$@") </dev/null >/dev/null 2>&1 &"""


async def reboot(
    host: Host,
    at_time: str | int | None = None,
    *,
    wait: Annotated[float, Meta(ge=1, le=limits.RUN_LIMIT_MAX_SECONDS)] = RESTART_SECONDS,
) -> Ended:
    """Restart the device, and return when it is there again: the boot ids from then and from before.

    A device that is not back after ``wait`` seconds, or has not restarted, has ``timed_out``. With ``at_time``, as
    minutes from now or ``HH:MM``, the restart is only ordered, and what the device says of that is returned at once.

    CLI Example:

        outstation run 'cam-*' system.reboot
        outstation run 'cam-*' system.reboot at_time=5
    """
    if at_time is not None:
        return Ended(await _later(host, "-r", at_time))
    await one_of(host, "reboot")
    before = await restarts.boot_id(host)
    return Ended({"before": before}, restart=Restart(before, wait, partial(_begin, host)))


async def shutdown(host: Host, at_time: str | int | None = None) -> str:
    """Switch the device off, at once or at a time given as minutes from now or ``HH:MM``.

    CLI Example:

        outstation run 'cam-*' system.shutdown 5
    """
    if at_time is None:
        return await poweroff(host)
    return await _later(host, "-h", at_time)


async def poweroff(host: Host) -> str:
    """Switch the device off. It comes back only when somebody switches it on.

    CLI Example:

        outstation run 'cam-*' system.poweroff
    """
    return await _soon(host, "poweroff")


async def halt(host: Host) -> str:
    """Stop the device without switching it off.

    CLI Example:

        outstation run 'cam-*' system.halt
    """
    return await _soon(host, "halt")


async def init(host: Host, runlevel: str | int) -> str:
    """Change to another runlevel, as ``init`` does; 0 switches off and 6 restarts.

    CLI Example:

        outstation run 'gw-*' system.init 3
    """
    if not re.fullmatch(r"[0-6sSqQuU]", str(runlevel)):
        raise FunctionFailed(f"{runlevel!r} is no runlevel; those are 0 to 6 and S")
    return await _soon(host, "init", str(runlevel))


async def get_system_time(host: Host, utc_offset: str | None = None) -> str:
    """Return the time of the device, as in ``03:41:07 PM``, or that at another offset such as ``-0600``.

    CLI Example:

        outstation run '*' system.get_system_time
        outstation run '*' system.get_system_time -- -0600
    """
    return (await _now(host, utc_offset)).strftime("%I:%M:%S %p")


async def get_system_date(host: Host, utc_offset: str | None = None) -> str:
    """Return the date of the device, as in ``Mon 11/23/2026``, or that at another offset.

    CLI Example:

        outstation run '*' system.get_system_date
    """
    return (await _now(host, utc_offset)).strftime("%a %m/%d/%Y")


async def get_system_date_time(host: Host, utc_offset: str | None = None) -> str:
    """Return date and time of the device, as in ``2026-11-23 15:41:07``, or those at another offset.

    CLI Example:

        outstation run '*' system.get_system_date_time
    """
    return (await _now(host, utc_offset)).strftime("%Y-%m-%d %H:%M:%S")


async def set_system_time(host: Host, newtime: str, utc_offset: str | None = None) -> bool:
    """Set the time of the device, given as ``HH:MM[:SS]`` with or without ``AM`` and ``PM``, and return ``True``.

    CLI Example:

        outstation run 'cam-7' system.set_system_time '15:41:07'
    """
    wanted = _parsed(newtime, TIME_FORMS, failing=False)
    return await set_system_date_time(
        host, hours=wanted.hour, minutes=wanted.minute, seconds=wanted.second, utc_offset=utc_offset
    )


async def set_system_date(host: Host, newdate: str, utc_offset: str | None = None) -> bool:
    """Set the date of the device, given as ``YYYY-MM-DD`` or ``MM/DD/YYYY``, and return ``True``.

    CLI Example:

        outstation run 'cam-7' system.set_system_date 2026-11-23
    """
    wanted = _parsed(newdate, DATE_FORMS)
    return await set_system_date_time(host, wanted.year, wanted.month, wanted.day, utc_offset=utc_offset)


async def set_system_date_time(
    host: Host,
    years: int | None = None,
    months: int | None = None,
    days: int | None = None,
    hours: int | None = None,
    minutes: int | None = None,
    seconds: int | None = None,
    utc_offset: str | None = None,
) -> bool:
    """Set the parts of date and time that are given, also in the hardware clock if there is one; return ``True``.

    CLI Example:

        outstation run 'cam-7' system.set_system_date_time 2026 11 23 15 41 7
    """
    now = await _now(host, utc_offset)
    given = {"year": years, "month": months, "day": days, "hour": hours, "minute": minutes, "second": seconds}
    try:
        wanted = now.replace(**{key: value for key, value in given.items() if value is not None})  # type: ignore[arg-type]  # none of these is tzinfo
    except ValueError as error:
        raise FunctionFailed(f"there is no such date or time: {error}") from error
    await do(host, "date", "-u", "-s", wanted.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"))
    if await has_settable_hwclock(host):
        await do(host, "hwclock", "-w")
    return True


async def has_settable_hwclock(host: Host) -> bool:
    """Return whether the device has a hardware clock that can be set.

    CLI Example:

        outstation run '*' system.has_settable_hwclock
    """
    return bool(await present(host, "hwclock")) and (await ask(host, "hwclock", "-r")).ok


async def get_computer_name(host: Host) -> str:
    """Return the host name of the device.

    CLI Example:

        outstation run '*' system.get_computer_name
    """
    return await host_name.name_of(host)


async def set_computer_name(host: Host, hostname: str) -> bool:
    """Set the host name of the device, now and for later, also in its /etc/hosts, and return ``True``.

    CLI Example:

        outstation run 'cam-7' system.set_computer_name dock-7
    """
    if not re.fullmatch(host_name.PATTERN, hostname):
        raise FunctionFailed(f"{hostname!r} is no host name: letters, digits, '-' and '.', at most 64", value=False)
    await host_name.rename(host, hostname)
    return True


async def get_computer_desc(host: Host) -> str | bool:
    """Return the description of the device in /etc/machine-info; ``False`` when there is none.

    CLI Example:

        outstation run '*' system.get_computer_desc
    """
    for line in await text_files.lines_if_there(host, MACHINE_INFO):
        name, _, value = line.strip().partition("=")
        if name == "PRETTY_HOSTNAME":
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
            return re.sub(r"\\(.)", r"\1", value[1:-1]) if quoted else value
    return False


@one_change_at_a_time(always(MACHINE_INFO))
async def set_computer_desc(host: Host, desc: str) -> bool:
    """Set the description of the device in /etc/machine-info, and return ``True``.

    CLI Example:

        outstation run 'cam-7' system.set_computer_desc 'Camera at the south dock'
    """
    if not desc.isprintable():
        raise FunctionFailed("the description is one line, without control characters", value=False)
    text = re.sub(r'(["\\$`])', r"\\\1", desc)
    lines = await text_files.lines_if_there(host, MACHINE_INFO)
    kept = [line for line in lines if not line.strip().startswith("PRETTY_HOSTNAME=")]
    await text_files.write(host, MACHINE_INFO, "".join(f"{line}\n" for line in [*kept, f'PRETTY_HOSTNAME="{text}"']))
    return True


async def _begin(host: Host) -> None:
    try:
        async with asyncio.timeout(BEGIN_SECONDS):
            said = await shell(host, _REBOOT)
    except TimeoutError:
        return
    # What a signal ended was ended by the restart.
    if 0 < said.returncode < SIGNALLED:
        said.must()


async def _later(host: Host, what: str, at_time: str | int) -> str:
    when = _when(at_time)
    await one_of(host, "shutdown")
    said = await do(host, "shutdown", what, when)
    return (said.out.strip() or said.err.strip())[: limits.WHY_CHARACTERS]


async def _soon(host: Host, *words: str) -> str:
    """A second later, so that the return is on its way before the device is gone."""
    await one_of(host, words[0])
    return (await shell(host, _SOON, *words)).must().out.strip()


def _when(at_time: str | int) -> str:
    text = str(at_time).strip()
    if not re.fullmatch(r"\+?\d{1,6}|\d{1,2}:\d{2}|now", text):
        raise FunctionFailed(f"{at_time!r} is no time: minutes from now, HH:MM, or now")
    return f"+{text}" if text.isdecimal() else text


async def _now(host: Host, utc_offset: str | None) -> datetime:
    seconds, own = system_text.words((await do(host, "date", "+%s %z")).out)
    found = re.fullmatch(r"([+-]?)(\d\d)(\d\d)", own if utc_offset is None else utc_offset)
    if found is None:
        raise FunctionFailed(f"{utc_offset!r} is no offset; one is written as in +0100")
    offset = timedelta(hours=int(found[2]), minutes=int(found[3])) * (-1 if found[1] == "-" else 1)
    return datetime.fromtimestamp(int(seconds), timezone(offset))


def _parsed(text: str, forms: tuple[str, ...], *, failing: bool | None = None) -> datetime:
    for form in forms:
        try:
            return datetime.strptime(text.strip(), form).replace(tzinfo=UTC)
        except ValueError:
            continue
    raise FunctionFailed(f"{text!r} cannot be read; it is written as in {' or '.join(forms[:3])}", value=failing)
