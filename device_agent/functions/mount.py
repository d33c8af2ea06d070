"""What is mounted on the device, and what is mounted when it starts."""

from __future__ import annotations

from typing import Any

from device_agent import fstab as table
from device_agent import text_files
from device_agent.commands import Said, ask, do, word
from device_agent.ended import FunctionFailed
from device_agent.file_changes import one_change_at_a_time
from device_agent.fstab import Mount
from device_agent.host import Host

FSTAB = "/etc/fstab"
Options = str | list[str]


async def active(host: Host, extended: bool = False) -> dict[str, dict[str, Any]]:
    """Return what is mounted, by the place; with ``extended`` all that the kernel knows of it.

    CLI Example:

        outstation run 'gw-*' mount.active
    """
    if extended:
        return table.more(await text_files.read(host, "/proc/self/mountinfo"))
    return table.mounts(await text_files.read(host, "/proc/self/mounts"))


async def is_mounted(host: Host, name: str) -> bool:
    """Return whether something is mounted there.

    CLI Example:

        outstation run 'gw-*' mount.is_mounted /mnt/share
    """
    return name in await active(host)


async def fstab(host: Host, config: str = FSTAB) -> dict[str, dict[str, Any]]:
    """Return what is mounted when the device starts, by the place.

    CLI Example:

        outstation run 'gw-*' mount.fstab
    """
    found: dict[str, dict[str, Any]] = {}
    for line in await text_files.lines_if_there(host, config):
        if mount := table.parse(line):
            name = mount.name
            while name in found:
                name += "_"
            found[name] = mount.shown()
    return found


@one_change_at_a_time("config")
async def set_fstab(
    host: Host,
    name: str,
    device: str,
    fstype: str,
    opts: Options = "defaults",
    dump: int = 0,
    pass_num: int = 0,
    config: str = FSTAB,
    test: bool = False,
    match_on: Options = "auto",
    not_change: bool = False,
) -> str:
    """Have this mounted when the device starts, and return ``new``, ``change`` or ``present``. Nothing is mounted now.

    A line is the same one when its device is, or for network and virtual file systems its place; ``match_on`` names
    other fields. Without it, a second device for a place is refused. With ``not_change`` a line that is there stays,
    with ``test`` the file does.

    CLI Example:

        outstation run 'gw-*' mount.set_fstab /mnt/data /dev/sda1 ext4 noatime
    """
    wanted = Mount(device, name, fstype, opts if isinstance(opts, str) else ",".join(opts), dump, pass_num)
    automatic = match_on == "auto"
    if automatic:
        match_on = "name" if fstype in table.BY_PLACE else "device"
    fields = [match_on] if isinstance(match_on, str) else match_on
    if unknown := set(fields) - set(Mount.__struct_fields__):
        raise FunctionFailed(f"a line is matched on none of {', '.join(sorted(unknown))}")
    lines = await text_files.lines(host, config)
    result, changed = "new", []
    for line in lines:
        now = table.parse(line)
        if now is None or any(getattr(now, field) != getattr(wanted, field) for field in fields):
            changed.append(line)
        elif now == wanted or not_change:
            result = "present"
            changed.append(line)
        else:
            result = "change"
            changed.append(wanted.line())
    if result == "new":
        if automatic:
            _refuse_second(lines, wanted)
        changed.append(wanted.line())
    if result != "present" and not test:
        await text_files.write(host, config, "".join(f"{line}\n" for line in changed))
    return result


@one_change_at_a_time("config")
async def rm_fstab(host: Host, name: str, device: str, config: str = FSTAB) -> bool:
    """Do not have this mounted any more when the device starts, and return ``True``. What is mounted stays.

    CLI Example:

        outstation run 'gw-*' mount.rm_fstab /mnt/data /dev/sda1
    """
    lines = await text_files.lines(host, config)
    kept = [line for line in lines if not ((now := table.parse(line)) and (now.name, now.device) == (name, device))]
    if kept != lines:
        await text_files.write(host, config, "".join(f"{line}\n" for line in kept))
    return True


async def mount(
    host: Host,
    name: str,
    device: str | bool = False,
    mkmnt: bool = False,
    fstype: str = "",
    opts: Options = "defaults",
    user: str | None = None,
    util: str = "mount",
) -> bool:
    """Mount something and return ``True``, or fail with what mount says. Without a device it is what fstab says.

    CLI Example:

        outstation run 'gw-*' mount.mount /mnt/data /dev/sda1 True
    """
    _plain(user, util)
    if mkmnt:
        await do(host, "mkdir", "-p", word(name, "the place"))
    words = ["-o", opts if isinstance(opts, str) else ",".join(opts)] if opts else []
    words += ["-t", fstype] if fstype else []
    words = [*words, word(str(device), "the device")] if device else []
    return _done(await ask(host, "mount", *words, word(name, "the place")))


async def remount(
    host: Host,
    name: str,
    device: str,
    mkmnt: bool = False,
    fstype: str = "",
    opts: Options = "defaults",
    user: str | None = None,
) -> bool:
    """Change the options of what is mounted, or mount it, and return ``True`` or fail with what mount says.

    CLI Example:

        outstation run 'gw-*' mount.remount /mnt/data /dev/sda1 opts=ro
    """
    if not await is_mounted(host, name):
        return await mount(host, name, device, mkmnt, fstype, opts, user)
    listed = opts.split(",") if isinstance(opts, str) else opts
    return await mount(host, name, device, False, fstype, ["remount", *(each for each in listed if each != "remount")])


async def umount(
    host: Host, name: str, device: str | None = None, user: str | None = None, util: str = "mount", lazy: bool = False
) -> bool:
    """Unmount what is there and return ``True``, or fail with what umount says. ``lazy`` does so when it is free.

    CLI Example:

        outstation run 'gw-*' mount.umount /mnt/data
    """
    _plain(user, util)
    if not await is_mounted(host, name):
        why = f"{name} does not have anything mounted"
        raise FunctionFailed(why, value=why)
    return _done(await ask(host, "umount", *(["-l"] if lazy else []), word(device or name, "the place")))


async def swaps(host: Host) -> dict[str, dict[str, str]]:
    """Return where memory is swapped to, with size and use in KiB.

    CLI Example:

        outstation run 'gw-*' mount.swaps
    """
    return table.swaps(await text_files.read_if_there(host, "/proc/swaps"))


def _refuse_second(lines: list[str], wanted: Mount) -> None:
    """Raises ``FunctionFailed`` when another device has this place: both would be mounted, or the start would stop."""
    for number, line in enumerate(lines, 1):
        now = table.parse(line)
        if now is not None and wanted.name.startswith("/") and now.name == wanted.name:
            raise FunctionFailed(
                f"{wanted.name} has a device already: line {number} says {now.device}, which may be the same one by "
                f"another name; match_on=name replaces it, mount.rm_fstab {now.name} {now.device} removes it"
            )


def _plain(user: str | None, util: str) -> None:
    if user or util != "mount":
        raise FunctionFailed("only mount itself is used, as whoever the functions run as: leave user and util out")


def _done(said: Said) -> bool:
    said.must(failing=said.err.strip())
    return True
