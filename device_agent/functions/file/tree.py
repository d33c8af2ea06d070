"""file.*: directories, links and copies, and what becomes of them."""

from __future__ import annotations

import posixpath
from typing import Any

from device_agent import system_text
from device_agent.commands import do, shell
from device_agent.ended import FunctionFailed
from device_agent.file_changes import one_change_at_a_time
from device_agent.functions.file._paths import absolute, mode_text, real, stat
from device_agent.functions.file.owners import check_perms
from device_agent.host import Host
from device_agent.shell_paths import argument, expanded

LISTING_BYTES = 16 * 1024 * 1024

FILES = r'find "$1" \( -type f -o -type l \) -exec ls -Lldni {} + 2>/dev/null; exit 0'


async def mkdir(
    host: Host,
    dir_path: str,
    user: str | int | None = None,
    group: str | int | None = None,
    mode: str | int | None = None,
) -> bool:
    """Make a directory and those above it that are missing, each with this user, group and mode.

    CLI Example:

        outstation run '*' file.mkdir /opt/jetty/context
    """
    await _make(host, posixpath.normpath(await expanded(host, dir_path)), user, group, mode)
    return True


async def makedirs_(
    host: Host,
    path: str,
    user: str | int | None = None,
    group: str | int | None = None,
    mode: str | int | None = None,
) -> str | None:
    """Make the directories that a path needs above its last part; a path that ends with ``/`` is made whole.

    CLI Example:

        outstation run '*' file.makedirs /opt/code/
    """
    folder = posixpath.normpath(posixpath.dirname(await expanded(host, path)))
    found = await stat(host, folder)
    if found is not None:
        kind = "already exists" if found.kind == "directory" else "already exists and is not a directory"
        return f"Directory '{folder}' {kind}" if found.kind == "directory" else f"The path '{folder}' {kind}"
    if not folder.startswith("/"):
        raise FunctionFailed(f"Recursive creation for path '{folder}' needs an absolute path.")
    await _make(host, folder, user, group, mode)
    return None


async def makedirs_perms(
    host: Host, name: str, user: str | int | None = None, group: str | int | None = None, mode: str | int = "0755"
) -> None:
    """Make a directory and those above it that are missing, each with this user, group and mode.

    CLI Example:

        outstation run '*' file.makedirs_perms /opt/code
    """
    path = posixpath.normpath(await expanded(host, name))
    if await stat(host, path) is not None:
        raise FunctionFailed(f"File exists: {path}")
    await _make(host, path, user, group, mode)


async def rmdir(
    host: Host, path: str, recurse: bool = False, verbose: bool = False, older_than: int | None = None
) -> bool | dict[str, Any]:
    """Remove a directory if it is empty; with ``recurse`` also the empty ones in it, ``older_than`` so many days.

    CLI Example:

        outstation run '*' file.rmdir /tmp/foo/
        outstation run '*' file.rmdir /srv/clips recurse=True older_than=30
    """
    path = await absolute(host, path)
    found = await stat(host, path)
    if found is None or found.kind != "directory":
        raise FunctionFailed(f"A valid directory was not specified: {path}")
    deleted: list[str] = []
    errors: list[list[str]] = []
    edge = int((await do(host, "date", "+%s")).out) - older_than * 86_400 if older_than else None
    inner = await _folders(host, path) if recurse else []
    for folder in (*inner, path):
        there = await stat(host, folder, follow=False)
        if there is None or (edge is not None and there.mtime >= edge):
            continue
        try:
            await host.remove(folder)
            deleted.append(folder)
        except OSError as error:
            errors.append([folder, str(error)])
    whole = not errors and (recurse or bool(deleted))
    return {"deleted": deleted, "errors": errors, "result": whole} if verbose else whole


async def remove(host: Host, path: str, **kwargs: Any) -> bool:  # noqa: ARG001 - Salt lets anything be said here
    """Remove a file, a link, or a directory with all that is in it. ``False`` when nothing was there.

    CLI Example:

        outstation run '*' file.remove /tmp/foo
    """
    path = await absolute(host, path, "File path must be absolute:")
    found = await stat(host, path, follow=False)
    if found is None:
        return False
    try:
        await host.remove(path, recursive=found.kind == "directory")
    except OSError as error:
        raise FunctionFailed(f"Could not remove '{path}': {error}") from error
    return True


@one_change_at_a_time("dst")
async def rename(host: Host, src: str, dst: str) -> bool:
    """Give a file or a directory another name, on the same file system or another.

    CLI Example:

        outstation run '*' file.rename /path/to/src /path/to/dst
    """
    src, dst = await absolute(host, src), await expanded(host, dst)
    target = await stat(host, dst)
    if await stat(host, src, follow=False) is None or (target is not None and target.kind == "directory"):
        raise FunctionFailed(f"Could not rename '{src}' to '{dst}'")
    await do(host, "mv", "-f", src, argument(dst))
    return True


@one_change_at_a_time("dst")
async def move(host: Host, src: str, dst: str, disallow_copy_and_unlink: bool = False) -> bool | dict[str, Any]:
    """Move a file or a directory; into ``dst`` where that is a directory.

    CLI Example:

        outstation run '*' file.move /path/to/src /path/to/dst
    """
    if disallow_copy_and_unlink:
        return await rename(host, src, dst)
    src = await absolute(host, src, "Source path must be absolute.")
    dst = await absolute(host, dst, "Destination path must be absolute.")
    if await stat(host, src, follow=False) is None:
        raise FunctionFailed(f"Unable to move '{src}' to '{dst}': there is no {src}")
    await do(host, "mv", "-f", src, dst)
    return {"result": True, "comment": f"'{src}' moved to '{dst}'"}


@one_change_at_a_time("dst")
async def copy(host: Host, src: str, dst: str, recurse: bool = False, remove_existing: bool = False) -> bool:
    """Copy a file or, with ``recurse``, a directory into another; the copy has the user, group and mode of the first.

    With ``remove_existing`` a directory that is there is removed before.

    CLI Example:

        outstation run '*' file.copy /path/to/src /path/to/dst
        outstation run '*' file.copy /path/to/src_dir /path/to/dst_dir recurse=True
    """
    src, dst = await absolute(host, src), await expanded(host, dst)
    source, target = await stat(host, src), await stat(host, dst)
    if source is None:
        raise FunctionFailed(f"No such file or directory '{src}'")
    folders = [each for each in (source, target) if each is not None and each.kind == "directory"]
    if folders and not recurse:
        raise FunctionFailed("Cannot copy overwriting a directory without recurse flag set to true!")
    if not folders:
        await do(host, "cp", src, argument(dst))
    elif source.kind != "directory":
        raise FunctionFailed(f"Could not copy '{src}' to '{dst}'")
    else:
        if remove_existing and target is not None:
            await host.remove(dst, recursive=True)
        await do(host, "mkdir", "-p", argument(dst))
        await do(host, "cp", "-R", f"{src.rstrip('/')}/.", argument(dst))
    await check_perms(host, dst, None, source.uid, source.gid, mode_text(source.mode), follow_symlinks=True)
    return True


async def touch(host: Host, name: str, atime: int | None = None, mtime: int | None = None) -> bool:
    """Make an empty file where nothing is, and set its times: now, or these seconds since 1970.

    CLI Example:

        outstation run '*' file.touch /var/log/emptyfile
    """
    path = argument(await expanded(host, name))
    await do(host, "touch", *(["-c"] if await stat(host, path) is not None else []), path)
    if atime or mtime:
        for flag, when in (("-a", atime), ("-m", mtime)):
            if when is not None:
                await do(host, "touch", flag, "-d", f"@{when}", path)
    return await stat(host, path) is not None


async def symlink(
    host: Host, src: str, path: str, force: bool = False, atomic: bool = False, follow_symlinks: bool = True
) -> bool:
    """Make a symbolic link at ``path`` to ``src``; ``force`` and ``atomic`` replace what is there.

    CLI Example:

        outstation run '*' file.symlink /path/to/file /path/to/link
    """
    path = await absolute(host, path, "Link path must be absolute.")
    link = await stat(host, path, follow=False)
    if link is not None and link.kind == "link":
        if posixpath.normpath(link.target) == posixpath.normpath(src):
            return True
        if not (force or atomic):
            raise FunctionFailed(f"Found existing symlink: {path}")
    there = await stat(host, path) if follow_symlinks else link
    if there is not None and not (force or atomic):
        raise FunctionFailed(f"Existing path is not a symlink: {path}")
    if link is not None and link.kind == "directory":
        raise FunctionFailed(f"Could not create '{path}': it is a directory")
    if link is not None and not atomic:
        await host.remove(path)
    beside = f"{path}.outstation-link" if atomic else path
    await do(host, "ln", "-s", "-f", *(["-n"] if atomic else []), "--", src, beside)
    if atomic:
        await do(host, "mv", "-f", *(["-T"] if await _mv_knows_t(host) else []), beside, path)
    return True


async def link(host: Host, src: str, path: str) -> bool:
    """Give a file a second name.

    CLI Example:

        outstation run '*' file.link /path/to/file /path/to/link
    """
    src = await absolute(host, src)
    if await stat(host, path, follow=False) is not None:
        raise FunctionFailed(f"Could not create '{path}': it is there already")
    try:
        await do(host, "ln", src, argument(path))
    except FunctionFailed as error:
        raise FunctionFailed(f"Could not create '{path}': {error.why}") from error
    return True


async def readlink(host: Host, path: str, canonicalize: bool = False) -> str:
    """Return where a link points; with ``canonicalize`` where it leads when all links are followed.

    CLI Example:

        outstation run '*' file.readlink /path/to/link
    """
    path = await absolute(host, path, "Path to link must be absolute.")
    found = await stat(host, path, follow=False)
    if found is None or found.kind != "link":
        raise FunctionFailed(f"A valid link was not specified: {path}")
    return await real(host, path) if canonicalize else found.target


async def readdir(host: Host, path: str) -> list[str]:
    """Return the names in a directory, with ``.`` and ``..``.

    CLI Example:

        outstation run '*' file.readdir /path/to/dir
    """
    path = await absolute(host, path, "Dir path must be absolute.")
    found = await stat(host, path)
    if found is None or found.kind != "directory":
        raise FunctionFailed(f"A valid directory was not specified: {path}")
    return [".", "..", *await host.list(path)]


async def diskusage(host: Host, path: str) -> int:
    """Return how many bytes a file has, or all files in a directory together.

    CLI Example:

        outstation run '*' file.diskusage /path/to/check
    """
    found = await stat(host, path)
    if found is None:
        return 0
    if found.kind == "file":
        return found.size
    listed = (await shell(host, FILES, argument(path), limit=LISTING_BYTES)).must().exact
    # Inode, mode, names, user, group and size stand in front; a file that has two names counts once.
    rows = (system_text.words(line, 6) for line in system_text.lines(listed))
    sizes = {row[0]: int(row[5]) for row in rows if len(row) == 7 and row[1].startswith("-") and row[5].isdecimal()}
    return sum(sizes.values())


async def mknod_fifo(
    host: Host, name: str, user: str | int | None = None, group: str | int | None = None, mode: str | int = "0660"
) -> dict[str, Any]:
    """Make a named pipe.

    CLI Example:

        outstation run '*' file.mknod_fifo /dev/fifo
    """
    name = await expanded(host, name)
    if await stat(host, name, follow=False) is not None:
        raise FunctionFailed(f"File exists and cannot be overwritten: {name}")
    await do(host, "mkfifo", argument(name))
    answer, _ = await check_perms(host, name, None, user, group, mode)
    return {"name": name, "changes": {"new": f"Fifo pipe {name} created."}, "comment": "", "result": answer["result"]}


async def _folders(host: Host, path: str) -> list[str]:
    """The directories below a path, the innermost first."""
    printed = (await do(host, "find", path, "-depth", "-type", "d", "-print0", limit=LISTING_BYTES)).exact
    return [each for each in printed.split("\0")[:-1] if each != path]


async def _make(host: Host, path: str, user: str | int | None, group: str | int | None, mode: str | int | None) -> None:
    """Make a directory and what is missing above it."""
    missing = []
    while path not in {"", "/", "."}:
        found = await stat(host, path)
        if found is not None and found.kind != "directory":
            raise FunctionFailed(f"The path '{path}' already exists and is not a directory")
        if found is not None:
            break
        missing.append(path)
        path = posixpath.dirname(path)
    for folder in reversed(missing):
        await do(host, "mkdir", argument(folder))
        if user or group or mode is not None:
            await check_perms(host, folder, None, user, group, mode)


async def _mv_knows_t(host: Host) -> bool:
    """Whether ``mv`` can be told not to move into a directory that is in the way."""
    return (await shell(host, "mv --help 2>&1 | grep -q -e -T")).ok
