"""Groups of users, through the shadow package's commands or BusyBox's."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from device_agent.accounts.database import Accounts, database
from device_agent.accounts.files import Group, with_members
from device_agent.accounts.tools import ShadowTools
from device_agent.commands import word
from device_agent.ended import FunctionFailed
from device_agent.file_changes import one_change_at_a_time
from device_agent.host import Host


@one_change_at_a_time(database)
async def add(
    host: Host,
    name: str,
    gid: int | None = None,
    *,
    system: bool = False,
    root: str | None = None,
    non_unique: bool = False,
    local: bool = False,  # noqa: ARG001 - Salt's name, of libuser only
) -> bool:
    """Make a group and return ``True``, or fail with ``False``.

    CLI Example:

        outstation run 'gw-*' group.add video 3456
    """
    accounts = Accounts(host, root)
    tools = await accounts.tools("groupadd")
    commands = tools.add_group(word(name, "the name"), gid, system=system, non_unique=non_unique)
    return await accounts.change(commands)


@one_change_at_a_time(database)
async def delete(
    host: Host,
    name: str,
    root: str | None = None,
    local: bool = False,  # noqa: ARG001 - Salt's name, of libuser only
) -> bool:
    """Remove a group and return ``True``, or fail with ``False``.

    CLI Example:

        outstation run 'gw-*' group.delete video
    """
    accounts = Accounts(host, root)
    return await accounts.change((await accounts.tools("groupdel")).delete_group(word(name, "the name")))


async def info(host: Host, name: str, root: str | None = None) -> dict[str, Any]:
    """Return what is known of a group, and an empty dictionary when there is none.

    CLI Example:

        outstation run 'gw-*' group.info video
    """
    group = await Accounts(host, root).group(name)
    return {} if group is None else _described(group)


async def getent(
    host: Host,
    refresh: bool = False,  # noqa: ARG001 - Salt's name; nothing is kept between calls
    root: str | None = None,
) -> list[dict[str, Any]]:
    """Return what is known of every group.

    CLI Example:

        outstation run 'gw-*' group.getent
    """
    return [_described(group) for group in await Accounts(host, root).groups()]


@one_change_at_a_time(database)
async def chgid(host: Host, name: str, gid: int, root: str | None = None, *, non_unique: bool = False) -> bool:
    """Give a group another number. Return whether it has it.

    CLI Example:

        outstation run 'gw-*' group.chgid video 4376
    """
    accounts = Accounts(host, root)
    group = await _some(accounts, name)
    if group.gid == gid:
        return True
    tools = await accounts.tools("groupmod")
    if isinstance(tools, ShadowTools):
        return await accounts.change(tools.change_group("-g", str(gid), *(["-o"] if non_unique else []), name=name))
    if not non_unique and any(each.gid == gid for each in await accounts.groups()):
        raise FunctionFailed(f"another group has the number {gid}", value=False)
    await accounts.edit_group(name, lambda each: replace(each, gid=gid))
    return True


@one_change_at_a_time(database)
async def adduser(host: Host, name: str, username: str, root: str | None = None) -> bool:
    """Put a user into a group and return ``True``, or fail with ``False``.

    CLI Example:

        outstation run 'gw-*' group.adduser video tech
    """
    accounts = Accounts(host, root)
    tools = await accounts.tools("gpasswd")
    return await accounts.change(tools.join(word(username, "the user"), word(name, "the group")))


@one_change_at_a_time(database)
async def deluser(host: Host, name: str, username: str, root: str | None = None) -> bool:
    """Take a user out of a group and return ``True``, also when he is in none, or fail with ``False``.

    CLI Example:

        outstation run 'gw-*' group.deluser video tech
    """
    accounts = Accounts(host, root)
    if username not in (await _some(accounts, name)).members:
        return True
    tools = await accounts.tools("gpasswd")
    return await accounts.change(tools.leave(word(username, "the user"), word(name, "the group")))


@one_change_at_a_time(database)
async def members(host: Host, name: str, members_list: list[str] | str, root: str | None = None) -> bool:
    """Have these users, and nobody else, in a group. Return ``True``, or fail with ``False``.

    CLI Example:

        outstation run 'gw-*' group.members video 'tech,guest'
    """
    accounts = Accounts(host, root)
    group = await _some(accounts, name)
    listed = members_list.split(",") if isinstance(members_list, str) else members_list
    wanted = with_members(group, [word(member, "the user") for member in listed if member]).members
    unknown = set(wanted) - {user.name for user in await accounts.users()}
    if unknown:
        raise FunctionFailed(f"there is no user {', '.join(sorted(unknown))} on this device", value=False)
    tools = await accounts.tools("gpasswd")
    commands = [words for user in wanted if user not in group.members for words in tools.join(user, name)]
    commands += [words for user in group.members if user not in wanted for words in tools.leave(user, name)]
    return await accounts.change(commands)


async def _some(accounts: Accounts, name: str) -> Group:
    group = await accounts.group(name)
    if group is None:
        raise FunctionFailed(f"there is no group {name!r} on this device", value=False)
    return group


def _described(group: Group) -> dict[str, Any]:
    return {"name": group.name, "passwd": group.passwd, "gid": group.gid, "members": group.members}
