"""file.*: whose a file becomes, and what may be done with it from then on."""

from __future__ import annotations

from typing import Any

from device_agent.commands import do
from device_agent.ended import FunctionFailed
from device_agent.functions.file._paths import mode_text, stat
from device_agent.functions.file.standing import get_mode, get_user, group_to_gid, stats, user_to_uid
from device_agent.host import Host
from device_agent.shell_paths import argument, expanded


async def set_mode(host: Host, path: str, mode: str | int) -> str:
    """Set the mode of a file, in octal digits, and return it.

    CLI Example:

        outstation run '*' file.set_mode /etc/motd 0644
    """
    path = await expanded(host, path)
    # A number that was typed as 0644 arrives as the text or as 644, and means the digits either way.
    text = str(mode).lstrip("0Oo") or "0"
    if await stat(host, path) is None:
        raise FunctionFailed(f"{path}: File not found")
    if len(text) > 4 or set(text) - set("01234567"):
        return f"Invalid Mode {text}"
    await do(host, "chmod", mode_text(text), argument(path))
    return await get_mode(host, path)


async def chown(host: Host, path: str, user: str | int | None, group: str | int | None) -> str | None:
    """Give a file, or what a link points to, to a user and a group. Returns nothing, or what is wrong.

    CLI Example:

        outstation run '*' file.chown /etc/motd root root
    """
    return await _chown(host, await expanded(host, path), user, group, follow=True)


async def lchown(host: Host, path: str, user: str | int | None, group: str | int | None) -> str | None:
    """Give a file, or a link itself, to a user and a group. Returns nothing, or what is wrong.

    CLI Example:

        outstation run '*' file.lchown /srv/current root root
    """
    return await _chown(host, await expanded(host, path), user, group, follow=False)


async def chgrp(host: Host, path: str, group: str | int | None) -> str | None:
    """Give a file to a group. Returns nothing, or what is wrong.

    CLI Example:

        outstation run '*' file.chgrp /etc/motd root
    """
    path = await expanded(host, path)
    return await _chown(host, path, await get_user(host, path), group, follow=True)


async def check_perms(
    host: Host,
    name: str,
    ret: dict[str, Any] | None,
    user: str | int | None,
    group: str | int | None,
    mode: str | int | None,
    attrs: str | None = None,
    follow_symlinks: bool = False,
) -> list[Any]:
    """Give a file this user, group and mode where it has others, and return what was changed and what was found.

    CLI Example:

        outstation run '*' file.check_perms /etc/sudoers '{}' root root 400
    """
    if attrs is not None:
        raise FunctionFailed("attributes of file systems are not known here; leave attrs away")
    name = await expanded(host, name)
    wanted = None if mode is None else mode_text(str(mode))
    told_so_far: dict[str, Any] = dict(ret) if ret else {"name": name, "changes": {}, "comment": [], "result": True}
    earlier: Any = told_so_far.get("comment", "") if ret else ""
    comments: list[str] = []
    before = await stats(host, name, follow_symlinks=follow_symlinks)
    found = {
        "luser": before["uid"] if isinstance(user, int) else before["user"],
        "lgroup": before["gid"] if isinstance(group, int) else before["group"],
        "lmode": before["mode"],
    }
    is_link = before["type"] == "link"
    for word, asked in (("user", user), ("group", group)):
        if asked and asked != found[f"l{word}"]:
            found[f"c{word}"] = asked
    if "cuser" in found or "cgroup" in found:
        wrong = await _chown(host, name, user or "", group or "", follow=follow_symlinks)
        comments += [wrong.strip()] if wrong else []
    if wanted is not None and not is_link and wanted != before["mode"]:
        found["cmode"] = wanted
        await set_mode(host, name, wanted)
    after = await stats(host, name, follow_symlinks=follow_symlinks)
    for word, asked, has in (
        ("user", user, {after["user"], after["uid"]}),
        ("group", group, {after["group"], after["gid"]}),
        ("mode", None if is_link else wanted, {after["mode"]}),
    ):
        if asked and asked not in has:
            told_so_far["result"] = False
            comments.append(f"Failed to change {word} to {asked}")
        elif f"c{word}" in found:
            told_so_far["changes"] = {**told_so_far.get("changes", {}), word: asked}
    said = ([earlier] if earlier and isinstance(earlier, str) else []) + comments
    told_so_far["comment"] = "; ".join(said) if isinstance(earlier, str) else comments
    return [told_so_far, found]


async def _chown(host: Host, path: str, user: str | int | None, group: str | int | None, *, follow: bool) -> str | None:
    uid, gid = await user_to_uid(host, user), await group_to_gid(host, group)
    wrong = "User does not exist\n" if uid == "" and user else ""
    wrong += "Group does not exist\n" if gid == "" and group else ""
    there = await stat(host, path, follow=False)
    if there is None:
        return wrong + "File not found"
    if wrong:
        return wrong
    dangling = follow and there.kind == "link" and await stat(host, path) is None
    whom = f"{_number(uid)}:{_number(gid)}" if _number(gid) else _number(uid)
    if whom:
        await do(host, "chown", *([] if follow and not dangling else ["-h"]), whom, argument(path))
    return None


def _number(identity: str | int) -> str:
    """A number as chown takes it; empty leaves the user or the group as it is."""
    return "" if identity in {"", -1} else str(identity)
