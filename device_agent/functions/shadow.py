"""Passwords of users and how long they last, in /etc/shadow."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from device_agent.accounts.database import Accounts, database
from device_agent.accounts.files import Shadow
from device_agent.commands import do
from device_agent.ended import FunctionFailed
from device_agent.file_changes import one_change_at_a_time
from device_agent.host import Host

NOBODY = {"name": "", "passwd": "", "lstchg": "", "min": "", "max": "", "warn": "", "inact": "", "expire": ""}
SECONDS_A_DAY = 86_400


async def default_hash(_host: Host) -> str:
    """Return what stands in place of a password that nobody knows.

    CLI Example:

        outstation run '*' shadow.default_hash
    """
    return "!"


async def info(host: Host, name: str, root: str | None = None) -> dict[str, Any]:
    """Return the hash of a user's password, and the days that say how long it lasts; empty ones when there is none.

    CLI Example:

        outstation run 'gw-*' shadow.info tech
    """
    shadow = await Accounts(host, root).shadow(name)
    return dict(NOBODY) if shadow is None else {field: getattr(shadow, field) for field in NOBODY}


async def list_users(host: Host, root: str | None = None) -> list[str]:
    """Return the names of all users that have a line in /etc/shadow, sorted.

    CLI Example:

        outstation run 'gw-*' shadow.list_users
    """
    return sorted(shadow.name for shadow in await Accounts(host, root).shadows())


@one_change_at_a_time(database)
async def set_password(
    host: Host,
    name: str,
    password: str,
    use_usermod: bool = False,  # noqa: ARG001 - Salt's name; the file is written, so that no other process sees the hash
    root: str | None = None,
) -> bool:
    """Set the hash of a user's password and return whether it is set.

    The hash is made elsewhere, for instance by ``openssl passwd -6``; the password itself is never given to a device.

    CLI Example:

        outstation run 'gw-*' shadow.set_password tech '$6$salt$hash'
    """
    if ":" in password or "\n" in password:
        raise FunctionFailed("this is no hash of a password: it has a ':' or more than one line", value=False)
    accounts = Accounts(host, root)
    if await accounts.user(name) is None:
        raise FunctionFailed(f"there is no user {name!r} on this device", value=False)
    today = int((await do(host, "date", "+%s")).out) // SECONDS_A_DAY
    if await accounts.shadow(name) is None:
        await accounts.append("shadow", Shadow(name, password, today).line())
    else:
        await accounts.edit_shadow(name, lambda shadow: replace(shadow, passwd=password, lstchg=today))
    await accounts.edit_user(name, lambda user: replace(user, passwd="x"))  # noqa: S106 - it says that the password is in the other file
    return True


@one_change_at_a_time(database)
async def del_password(host: Host, name: str, root: str | None = None) -> bool:
    """Take a user's password away, so that none is asked for. Return whether it is gone.

    CLI Example:

        outstation run 'gw-*' shadow.del_password tech
    """
    return await _edit(Accounts(host, root), name, {"passwd": ""})


@one_change_at_a_time(database)
async def lock_password(host: Host, name: str, root: str | None = None) -> bool:
    """Lock a user's password until it is unlocked. Return whether it is locked.

    An sshd without PAM refuses the keys of a locked account as well.

    CLI Example:

        outstation run 'gw-*' shadow.lock_password tech
    """
    accounts = Accounts(host, root)
    shadow = await _some(accounts, name)
    return shadow.passwd.startswith("!") or await _edit(accounts, name, {"passwd": f"!{shadow.passwd}"})


@one_change_at_a_time(database)
async def unlock_password(host: Host, name: str, root: str | None = None) -> bool:
    """Let a user's password be right again. Return whether it is unlocked; one who never had one stays locked.

    CLI Example:

        outstation run 'gw-*' shadow.unlock_password tech
    """
    accounts = Accounts(host, root)
    shadow = await _some(accounts, name)
    password = shadow.passwd.removeprefix("!")
    if not password or password.startswith("!"):
        # Unlocked it would be no password at all, and everybody could log in.
        raise FunctionFailed(f"{name} has no password to unlock; shadow.set_password gives one", value=False)
    return await _edit(accounts, name, {"passwd": password})


@one_change_at_a_time(database)
async def set_inactdays(host: Host, name: str, inactdays: int, root: str | None = None) -> bool:
    """Set how many days after its end a password may still be changed. Return whether it is set.

    CLI Example:

        outstation run 'gw-*' shadow.set_inactdays tech 7
    """
    return await _edit(Accounts(host, root), name, {"inact": inactdays})


@one_change_at_a_time(database)
async def set_maxdays(host: Host, name: str, maxdays: int, root: str | None = None) -> bool:
    """Set after how many days a password must be changed. Return whether it is set.

    CLI Example:

        outstation run 'gw-*' shadow.set_maxdays tech 90
    """
    return await _edit(Accounts(host, root), name, {"max": maxdays})


@one_change_at_a_time(database)
async def set_mindays(host: Host, name: str, mindays: int, root: str | None = None) -> bool:
    """Set how many days a password must be kept. Return whether it is set.

    CLI Example:

        outstation run 'gw-*' shadow.set_mindays tech 7
    """
    return await _edit(Accounts(host, root), name, {"min": mindays})


@one_change_at_a_time(database)
async def set_warndays(host: Host, name: str, warndays: int, root: str | None = None) -> bool:
    """Set how many days before its end a password is warned of. Return whether it is set.

    CLI Example:

        outstation run 'gw-*' shadow.set_warndays tech 7
    """
    return await _edit(Accounts(host, root), name, {"warn": warndays})


@one_change_at_a_time(database)
async def set_date(host: Host, name: str, date: int | str, root: str | None = None) -> bool:
    """Set the day a password was changed, as days since 1970 or as ``YYYY-MM-DD``; 0 has it changed at the next login.

    CLI Example:

        outstation run 'gw-*' shadow.set_date tech 0
    """
    return await _edit(Accounts(host, root), name, {"lstchg": await _days(host, date)})


@one_change_at_a_time(database)
async def set_expire(host: Host, name: str, expire: int | str, root: str | None = None) -> bool:
    """Set the day an account ends, as days since 1970 or as ``YYYY-MM-DD``; -1 for never.

    CLI Example:

        outstation run 'gw-*' shadow.set_expire tech 2027-12-31
    """
    return await _edit(Accounts(host, root), name, {"expire": await _days(host, expire)})


async def _days(host: Host, when: int | str) -> int:
    if isinstance(when, int) or when.lstrip("-").isdecimal():
        return int(when)
    return int((await do(host, "date", "-u", "-d", when, "+%s")).out) // SECONDS_A_DAY


async def _some(accounts: Accounts, name: str) -> Shadow:
    shadow = await accounts.shadow(name)
    if shadow is None:
        raise FunctionFailed(f"there is no password of {name!r} on this device", value=False)
    return shadow


async def _edit(accounts: Accounts, name: str, fields: dict[str, Any]) -> bool:
    await _some(accounts, name)
    await accounts.edit_shadow(name, lambda shadow: replace(shadow, **fields))
    return True
