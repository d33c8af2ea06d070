"""Commands that run at times, in a user's crontab. Salt understands what we write there, and we what it wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from device_agent import crontab
from device_agent.commands import Said, shell, word
from device_agent.crontab import Crontab, Entry
from device_agent.ended import FunctionFailed
from device_agent.file_changes import one_change_at_a_time
from device_agent.host import Host

Time = str | int

NO_TABLE = ("no crontab for", "can't open", "can't change directory")
"""What is said of a user who has no crontab, the last two by BusyBox: there is no such file, or no folder yet."""

_AS_USER = """user=$1; shift
if [ "$(id -un)" = "$user" ]; then exec crontab "$@"; else exec crontab -u "$user" "$@"; fi"""
"""BusyBox has ``-u`` for an administrator only, and so have the others."""


async def _crontab_of(_host: Host, arguments: Mapping[str, Any]) -> str:
    return f"the crontab of {arguments['user']}"


async def raw_cron(host: Host, user: str) -> str:
    """Return a user's crontab as it is; nothing when there is none.

    CLI Example:

        outstation run 'gw-*' cron.raw_cron root
    """
    said = await _listed(host, user)
    return crontab.without_head(said.out) if said else ""


async def list_tab(host: Host, user: str) -> dict[str, Any]:
    """Return a user's crontab: what was there before us, and the variables and commands of ours.

    CLI Example:

        outstation run 'gw-*' cron.list_tab root
    """
    return crontab.parse(await raw_cron(host, user)).shown()


async def ls(host: Host, user: str) -> dict[str, Any]:
    """Return a user's crontab, as ``cron.list_tab`` does.

    CLI Example:

        outstation run 'gw-*' cron.ls root
    """
    return await list_tab(host, user)


async def get_entry(host: Host, user: str, identifier: str | None = None, cmd: str | None = None) -> Any:
    """Return one command of ours by its identifier, or else by its text; ``False`` when there is none.

    CLI Example:

        outstation run 'gw-*' cron.get_entry root identifier=backup
    """
    for entry in crontab.parse(await raw_cron(host, user)).entries:
        if (identifier and entry.identifier == identifier) or (not identifier and cmd and entry.cmd == cmd):
            return entry.shown()
    return False


async def set_job(
    host: Host,
    user: str,
    minute: Time,
    hour: Time,
    daymonth: Time,
    month: Time,
    dayweek: Time,
    cmd: str,
    commented: bool = False,
    comment: str | None = None,
    identifier: str | None = None,
) -> str:
    """Have a command run at these times, and return ``new``, ``updated`` or ``present``.

    A time may be ``random``, which is drawn once. With an identifier the command can be changed later and is still
    the same one. A commented one stays in the table and does not run.

    CLI Example:

        outstation run 'gw-*' cron.set_job root '*/5' '*' '*' '*' '*' '/usr/local/bin/weekly' identifier=weekly
    """
    times = tuple(_time(time) for time in (minute, hour, daymonth, month, dayweek))
    return await _set(host, user, Entry(_command(cmd), times, "", identifier, comment, commented))


async def set_special(
    host: Host,
    user: str,
    special: str,
    cmd: str,
    commented: bool = False,
    comment: str | None = None,
    identifier: str | None = None,
) -> str:
    """Have a command run at a time such as ``@reboot`` or ``@hourly``; return ``new``, ``updated`` or ``present``.

    CLI Example:

        outstation run 'gw-*' cron.set_special root @hourly 'echo foobar'
    """
    if not special.startswith("@") or len(special.split()) != 1:
        raise FunctionFailed(
            f"{special!r} is no special time; those are @reboot, @hourly, @daily, @weekly and the like"
        )
    return await _set(host, user, Entry(_command(cmd), (), special, identifier, comment, commented))


async def rm_job(
    host: Host,
    user: str,
    cmd: str,
    minute: Time | None = None,
    hour: Time | None = None,
    daymonth: Time | None = None,
    month: Time | None = None,
    dayweek: Time | None = None,
    identifier: str | None = None,
) -> str:
    """Do not run a command any more, or only the one at these times; return ``removed`` or ``absent``.

    CLI Example:

        outstation run 'gw-*' cron.rm_job root /usr/local/bin/weekly
    """
    wanted = (minute, hour, daymonth, month, dayweek)

    def meant(entry: Entry) -> bool:
        return not entry.spec and all(
            time is None or now == str(time) or (str(time).lower() == "random" and now != "*")
            for now, time in zip(entry.times, wanted, strict=True)
        )

    return await _remove(host, user, cmd, identifier, meant)


async def rm(
    host: Host,
    user: str,
    cmd: str,
    minute: Time | None = None,
    hour: Time | None = None,
    daymonth: Time | None = None,
    month: Time | None = None,
    dayweek: Time | None = None,
    identifier: str | None = None,
) -> str:
    """Do not run a command any more, as ``cron.rm_job`` does.

    CLI Example:

        outstation run 'gw-*' cron.rm root /usr/local/bin/weekly
    """
    return await rm_job(host, user, cmd, minute, hour, daymonth, month, dayweek, identifier)


async def rm_special(host: Host, user: str, cmd: str, special: str | None = None, identifier: str | None = None) -> str:
    """Do not run a command at its special time any more; return ``removed`` or ``absent``.

    CLI Example:

        outstation run 'gw-*' cron.rm_special root 'echo foobar'
    """
    return await _remove(host, user, cmd, identifier, lambda entry: bool(entry.spec) and special in {None, entry.spec})


@one_change_at_a_time(_crontab_of)
async def set_env(host: Host, user: str, name: str, value: str | int | None = None) -> str:
    """Set a variable for all commands of a user; return ``new``, ``updated`` or ``present``.

    CLI Example:

        outstation run 'gw-*' cron.set_env root MAILTO ops@example.com
    """
    table = await _table(host, user)
    text = "" if value is None else str(value)
    if not name or any(letter in name for letter in "= \t\n#") or "\n" in text:
        raise FunctionFailed(f"{name!r} with this value cannot be written as one line NAME=value")
    old = next((setting.value for setting in table.settings if setting.name == name), None)
    if old == (text or '""'):
        return "present"
    await _install(host, user, table.setting(name, text))
    return "new" if old is None else "updated"


@one_change_at_a_time(_crontab_of)
async def rm_env(host: Host, user: str, name: str) -> str:
    """Remove a variable; return ``removed`` or ``absent``.

    CLI Example:

        outstation run 'gw-*' cron.rm_env root MAILTO
    """
    table = await _table(host, user)
    if all(setting.name != name for setting in table.settings):
        return "absent"
    await _install(host, user, table.setting(name, None))
    return "removed"


@one_change_at_a_time(_crontab_of)
async def write_cron_file(host: Host, user: str, path: str) -> bool:
    """Make a file of the device a user's whole crontab, and return ``True``, or fail with ``False``.

    CLI Example:

        outstation run 'gw-*' cron.write_cron_file root /tmp/new_cron
    """
    (await shell(host, _AS_USER, word(user, "the user"), word(path, "the path"))).must(failing=False)
    return True


@one_change_at_a_time(_crontab_of)
async def write_cron_file_verbose(host: Host, user: str, path: str) -> dict[str, Any]:
    """The same, and return what crontab said.

    CLI Example:

        outstation run 'gw-*' cron.write_cron_file_verbose root /tmp/new_cron
    """
    said = await shell(host, _AS_USER, word(user, "the user"), word(path, "the path"))
    return {"pid": 0, "retcode": said.returncode, "stdout": said.out.rstrip(), "stderr": said.err.rstrip()}


async def _listed(host: Host, user: str) -> Said | None:
    said = await shell(host, _AS_USER, word(user, "the user"), "-l")
    if not said.ok and any(words in said.err for words in NO_TABLE):
        return None
    return said.must()


async def _table(host: Host, user: str) -> Crontab:
    """What is to be written again: bytes that are no UTF-8 stay as they are."""
    said = await _listed(host, user)
    return crontab.parse(crontab.without_head(said.exact) if said else "")


async def _install(host: Host, user: str, table: Crontab) -> None:
    (await shell(host, _AS_USER, user, "-", stdin=table.text())).must()


@one_change_at_a_time(_crontab_of)
async def _set(host: Host, user: str, wanted: Entry) -> str:
    if "\n" in (wanted.identifier or ""):
        raise FunctionFailed("an identifier is one line")
    table = await _table(host, user)
    old = table.find(wanted.cmd, wanted.identifier)
    if old is None:
        times = crontab.settled(wanted.times) if wanted.times else ()
        await _install(host, user, table.exchanged(None, replace(wanted, times=times)))
        return "new"
    new = replace(
        wanted,
        times=crontab.settled(wanted.times, old.times) if wanted.times else (),
        comment=old.comment if wanted.comment is None else wanted.comment,
        identifier=wanted.identifier or old.identifier,
    )
    if (new.shown() | {"comment": new.comment or None}) == (old.shown() | {"comment": old.comment or None}):
        return "present"
    await _install(host, user, table.exchanged(old, new))
    return "updated"


@one_change_at_a_time(_crontab_of)
async def _remove(host: Host, user: str, cmd: str, identifier: str | None, meant: Any) -> str:
    table = await _table(host, user)
    for entry in table.entries:
        if entry.is_called(cmd, identifier) and meant(entry):
            await _install(host, user, table.exchanged(entry, None))
            return "removed"
    return "absent"


def _time(time: Time) -> str:
    text = str(time).strip().lower()
    if not text or len(text.split()) != 1 or text[0] in "#@":
        raise FunctionFailed(f"{time!r} is no time of a crontab: a number, '*', '*/5', '1-5', '1,3' or 'random'")
    return text


def _command(cmd: str) -> str:
    if not cmd.strip() or "\n" in cmd:
        raise FunctionFailed("the command of a crontab is one line, and not empty")
    return cmd.strip()
