"""User accounts, through the shadow package's commands or BusyBox's."""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec.structs import replace

from device_agent.accounts.database import Accounts, database
from device_agent.accounts.files import User, groups_of
from device_agent.accounts.tools import NewUser, ShadowTools
from device_agent.commands import shell as run_script
from device_agent.commands import word
from device_agent.ended import FunctionFailed
from device_agent.file_changes import one_change_at_a_time
from device_agent.host import Host

_GIVE_HOME = """[ -d "$1" ] || exit 0
exec find "$1" -xdev -user "$2" -exec chown -h "$3" {} +"""

MAIL_SPOOL_MISSING = 12
"""userdel: the user is gone and something of his home is not. Without a mail spool Debian's says so too."""


@one_change_at_a_time(database)
async def add(
    host: Host,
    name: str,
    uid: int | None = None,
    gid: str | int | None = None,
    groups: list[str] | str | None = None,
    home: str | None = None,
    shell: str | None = None,
    *,
    unique: bool = True,
    system: bool = False,
    fullname: str = "",
    roomnumber: str = "",
    workphone: str = "",
    homephone: str = "",
    other: str = "",
    createhome: bool = True,
    loginclass: str | None = None,  # noqa: ARG001 - Salt's name, of BSD only
    nologinit: bool = False,  # noqa: ARG001 - Salt's name; nothing here writes the login log
    root: str | None = None,
    usergroup: bool | None = None,
    local: bool = False,  # noqa: ARG001 - Salt's name, of libuser only; what is made here is always local
) -> bool:
    """Make a user and return ``True``, or fail with ``False``.

    ``gid`` is the name or number of a group; without it, and unless ``usergroup`` is ``False``, a group of the same
    name is made. ``groups`` are further ones, as a list or parted by commas.

    CLI Example:

        outstation run 'gw-*' user.add tech uid=1500 groups=video,audio home=/srv/tech shell=/bin/sh
    """
    accounts = Accounts(host, root)
    group = "" if gid is None else str(gid)
    if group.isdecimal():
        # BusyBox wants its name.
        group = next((each.name for each in await accounts.groups() if each.gid == int(group)), group)
    gecos = f"{fullname},{roomnumber},{workphone},{homephone},{other}".rstrip(",")
    user = NewUser(
        name=word(name, "the name", failing=False),
        uid=uid,
        group=group,
        groups=_names(groups),
        home=_field(home or ""),
        shell=_field(shell or ""),
        unique=unique,
        system=system,
        gecos=_field(gecos),
        createhome=createhome,
        usergroup=usergroup,
    )
    return await accounts.change((await accounts.tools("useradd")).add_user(user))


@one_change_at_a_time(database)
async def delete(
    host: Host,
    name: str,
    *,
    remove: bool = False,
    force: bool = False,
    root: str | None = None,
    local: bool = False,  # noqa: ARG001 - Salt's name, of libuser only
) -> bool:
    """Remove a user and return ``True``, or fail with ``False``. ``remove`` takes his home, ``force`` one who works.

    CLI Example:

        outstation run 'gw-*' user.delete tech remove=True
    """
    accounts = Accounts(host, root)
    tools = await accounts.tools("userdel")
    said = await accounts.run(tools.delete_user(word(name, "the name"), remove=remove, force=force))
    if said.returncode == MAIL_SPOOL_MISSING and await accounts.user(name) is None:
        return True
    said.must(failing=False)
    return True


async def info(host: Host, name: str, root: str | None = None) -> dict[str, Any]:
    """Return what is known of a user, and an empty dictionary when there is none.

    CLI Example:

        outstation run 'gw-*' user.info tech
    """
    accounts = Accounts(host, root)
    user = await accounts.user(name)
    return {} if user is None else _described(user, groups_of(user, await accounts.groups()))


async def getent(
    host: Host,
    refresh: bool = False,  # noqa: ARG001 - Salt's name; nothing is kept between calls
    root: str | None = None,
) -> list[dict[str, Any]]:
    """Return what is known of every user.

    CLI Example:

        outstation run 'gw-*' user.getent
    """
    accounts = Accounts(host, root)
    groups = await accounts.groups()
    return [_described(user, groups_of(user, groups)) for user in await accounts.users()]


async def list_users(host: Host, root: str | None = None) -> list[str]:
    """Return the names of all users, sorted.

    CLI Example:

        outstation run 'gw-*' user.list_users
    """
    return sorted(user.name for user in await Accounts(host, root).users())


async def list_groups(host: Host, name: str) -> list[str]:
    """Return the names of the groups a user is in, sorted.

    CLI Example:

        outstation run 'gw-*' user.list_groups tech
    """
    accounts = Accounts(host)
    user = await accounts.user(name)
    return [] if user is None else groups_of(user, await accounts.groups())


async def primary_group(host: Host, name: str) -> str:
    """Return the name of the group of a user's own.

    CLI Example:

        outstation run 'gw-*' user.primary_group tech
    """
    accounts = Accounts(host)
    user = await accounts.some_user(name)
    return next((group.name for group in await accounts.groups() if group.gid == user.gid), str(user.gid))


@one_change_at_a_time(database)
async def chuid(host: Host, name: str, uid: int, root: str | None = None) -> bool:
    """Give a user another number, and with it the files in his home. Return whether he has it.

    CLI Example:

        outstation run 'gw-*' user.chuid tech 4376
    """
    return await _change(Accounts(host, root), name, ["-u", str(uid)], lambda user: replace(user, uid=uid))


@one_change_at_a_time(database)
async def chgid(host: Host, name: str, gid: str | int, root: str | None = None) -> bool:
    """Give a user another group of his own, by its number or name. Return whether he has it.

    CLI Example:

        outstation run 'gw-*' user.chgid tech users
    """
    accounts = Accounts(host, root)
    known = {group.name: group.gid for group in await accounts.groups()}
    number = known.get(str(gid), int(gid) if str(gid).isdecimal() else -1)
    if number not in known.values():
        raise FunctionFailed(f"there is no group {gid!r} on this device", value=False)
    return await _change(accounts, name, ["-g", str(number)], lambda user: replace(user, gid=number))


@one_change_at_a_time(database)
async def chshell(host: Host, name: str, shell: str, root: str | None = None) -> bool:
    """Give a user another shell. Return whether he has it.

    CLI Example:

        outstation run 'gw-*' user.chshell tech /bin/sh
    """
    return await _change(Accounts(host, root), name, ["-s", shell], lambda user: replace(user, shell=_field(shell)))


@one_change_at_a_time(database)
async def chhome(host: Host, name: str, home: str, persist: bool = False, root: str | None = None) -> bool:
    """Give a user another home; with ``persist`` his files move there. Return whether he has it.

    CLI Example:

        outstation run 'gw-*' user.chhome tech /srv/tech persist=True
    """
    options = ["-d", home, *(["-m"] if persist else [])]
    accounts = Accounts(host, root)
    old = (await accounts.some_user(name)).home
    done = await _change(accounts, name, options, lambda user: replace(user, home=_field(home)))
    if persist and not isinstance(await accounts.tools("usermod"), ShadowTools):
        await accounts.change([["mv", "--", old, home]])
    return done


@one_change_at_a_time(database)
async def chgroups(
    host: Host, name: str, groups: list[str] | str, append: bool = False, root: str | None = None
) -> bool:
    """Put a user into these groups, and out of all others unless ``append`` is set. Return ``True`` when he is.

    CLI Example:

        outstation run 'gw-*' user.chgroups tech video,audio append=True
    """
    accounts = Accounts(host, root)
    user = await accounts.some_user(name)
    known = await accounts.groups()
    wanted = set(_names(groups))
    now = {group.name for group in known if name in group.members}
    if unknown := wanted - {group.name for group in known}:
        raise FunctionFailed(f"there is no group {', '.join(sorted(unknown))} on this device", value=False)
    tools = await accounts.tools("gpasswd")
    own = {group.name for group in known if group.gid == user.gid}
    commands = [words for group in sorted(wanted - now - own) for words in tools.join(name, group)]
    commands += [] if append else [words for group in sorted(now - wanted) for words in tools.leave(name, group)]
    return await accounts.change(commands)


@one_change_at_a_time(database)
async def chfullname(host: Host, name: str, fullname: str, root: str | None = None) -> bool:
    """Change the full name of a user. Return whether he has it.

    CLI Example:

        outstation run 'gw-*' user.chfullname tech 'Service technician'
    """
    return await _describe(Accounts(host, root), name, "fullname", fullname)


@one_change_at_a_time(database)
async def chroomnumber(host: Host, name: str, roomnumber: str | int, root: str | None = None) -> bool:
    """Change the room of a user. Return whether he has it.

    CLI Example:

        outstation run 'gw-*' user.chroomnumber tech 123
    """
    return await _describe(Accounts(host, root), name, "roomnumber", str(roomnumber))


@one_change_at_a_time(database)
async def chworkphone(host: Host, name: str, workphone: str | int, root: str | None = None) -> bool:
    """Change a user's telephone number at work. Return whether he has it.

    CLI Example:

        outstation run 'gw-*' user.chworkphone tech 7735550123
    """
    return await _describe(Accounts(host, root), name, "workphone", str(workphone))


@one_change_at_a_time(database)
async def chhomephone(host: Host, name: str, homephone: str | int, root: str | None = None) -> bool:
    """Change a user's telephone number at home. Return whether he has it.

    CLI Example:

        outstation run 'gw-*' user.chhomephone tech 7735551234
    """
    return await _describe(Accounts(host, root), name, "homephone", str(homephone))


@one_change_at_a_time(database)
async def chother(host: Host, name: str, other: str, root: str | None = None) -> bool:
    """Change what else is written of a user. Return whether it is.

    CLI Example:

        outstation run 'gw-*' user.chother tech 'shift B'
    """
    return await _describe(Accounts(host, root), name, "other", other)


@one_change_at_a_time(database)
async def rename(host: Host, name: str, new_name: str, root: str | None = None) -> bool:
    """Call a user otherwise, in his groups too. Return ``True``.

    CLI Example:

        outstation run 'gw-*' user.rename tech service
    """
    accounts = Accounts(host, root)
    if await accounts.user(new_name) is not None:
        raise FunctionFailed(f"there is a user {new_name!r} already")
    await accounts.some_user(name)
    new = _field(word(new_name, "the name"))
    tools = await accounts.tools("usermod")
    if isinstance(tools, ShadowTools):
        return await accounts.change(tools.change_user("-l", new, name=name))
    for group in await accounts.groups():
        if name in group.members:
            members = [new if member == name else member for member in group.members]
            await accounts.edit_group(group.name, partial(replace, members=members))
    await accounts.edit_shadow(name, lambda shadow: replace(shadow, name=new))
    await accounts.edit_user(name, lambda user: replace(user, name=new))
    return True


async def _change(accounts: Accounts, name: str, options: list[str], change: Any) -> bool:
    """With usermod, and by hand where there is none."""
    before = await accounts.some_user(name)
    after = change(before)
    if after == before:
        return True
    tools = await accounts.tools("usermod")
    if isinstance(tools, ShadowTools):
        return await accounts.change(tools.change_user(*options, name=name))
    await accounts.edit_user(name, change)
    if after.uid != before.uid or after.gid != before.gid:
        words = [before.home, str(before.uid), f"{after.uid}:{after.gid}"]
        (await run_script(accounts.host, _GIVE_HOME, *words)).must(failing=False)
    return True


async def _describe(accounts: Accounts, name: str, key: str, value: str) -> bool:
    if "," in value and key != "other":
        raise FunctionFailed("a comma parts the fields of this description, so it cannot be in one", value=False)
    gecos = (await accounts.some_user(name)).describing(key, _field(value))
    return await _change(accounts, name, ["-c", gecos], lambda user: replace(user, gecos=gecos))


def _described(user: User, groups: list[str]) -> dict[str, Any]:
    return {
        "gid": user.gid,
        "groups": groups,
        "home": user.home,
        "name": user.name,
        "passwd": user.passwd,
        "shell": user.shell,
        "uid": user.uid,
        **user.described(),
    }


def _names(groups: list[str] | str | None) -> tuple[str, ...]:
    listed = groups.split(",") if isinstance(groups, str) else groups or []
    return tuple(word(group, "the group") for group in listed if group)


def _field(value: str) -> str:
    """The same text when it can stand in a line of the file. Raises ``FunctionFailed``."""
    if ":" in value or "\n" in value:
        why = f"{value!r} cannot be written: ':' and the end of a line part the fields of the file"
        raise FunctionFailed(why, value=False)
    return value
