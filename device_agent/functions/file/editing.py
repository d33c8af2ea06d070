"""file.*: changes inside a text file, each shown as a difference of lines."""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Any

from msgspec import Meta

from device_agent.command_call import Call
from device_agent.command_call import run as run_call
from device_agent.commands import do, present, shell
from device_agent.ended import Ended, FunctionFailed
from device_agent.file_changes import one_change_at_a_time
from device_agent.functions.file._changes import (
    Flags,
    changed_file,
    difference,
    ended_line,
    expression,
    flag_number,
    lines_of,
)
from device_agent.functions.file._paths import real, stat, text_of
from device_agent.host import Host
from device_agent.shell_paths import argument, expanded

KNOWS_REJECTS = "patch --help 2>&1 | grep -q -e --reject-file"
MULTILINE = int(re.MULTILINE)


@one_change_at_a_time("path")
async def replace(
    host: Host,
    path: str,
    pattern: str,
    repl: Any,
    count: Annotated[int, Meta(ge=0)] = 0,
    flags: Flags = MULTILINE,
    bufsize: int | str = 1,  # noqa: ARG001 - Salt's argument; a file is always read whole
    append_if_not_found: bool = False,
    prepend_if_not_found: bool = False,
    not_found_content: str | None = None,
    backup: str | bool = ".bak",
    dry_run: bool = False,
    search_only: bool = False,
    show_changes: bool = True,
    ignore_if_missing: bool = False,
    preserve_inode: bool = True,  # noqa: ARG001 - Salt's argument; a file is always replaced as a whole
    backslash_literal: bool = False,
) -> str | bool:
    """Replace what a regular expression finds in a file, and return the difference (or, without ``show_changes``,
    whether there is one). With ``append_if_not_found`` or ``prepend_if_not_found`` the text becomes a line of its own
    where nothing is found. The file as it was stays beside it, named with ``backup`` behind its name.

    CLI Example:

        outstation run '*' file.replace /etc/ntp.conf 'pool .*' 'pool 192.0.2.1' flags=8
        outstation run '*' file.replace /etc/app.ini '^#?debug=.*' repl='debug=0' append_if_not_found=True backup=False
    """
    if search_only and (append_if_not_found or prepend_if_not_found):
        raise FunctionFailed("search_only cannot be used with append/prepend_if_not_found")
    if append_if_not_found and prepend_if_not_found:
        raise FunctionFailed("Only one of append and prepend_if_not_found is permitted")
    path = await real(host, await expanded(host, path))
    if await stat(host, path) is None:
        if ignore_if_missing:
            return False
        raise FunctionFailed(f"File not found: {path}")
    before = await text_of(host, path)
    found_by = expression(pattern, flags)
    if search_only:
        return any(await found_by.search([before]))
    new = str(repl)
    after, hits = await found_by.replace(new.replace("\\", "\\\\") if backslash_literal else new, before, count)
    if not hits and (append_if_not_found or prepend_if_not_found):
        line = str(repl) if not_found_content is None else not_found_content
        if not any(await expression(f"^{re.escape(line)}($|(?=\r\n))", flags).search([before])):
            after = f"{line}\n{after}" if prepend_if_not_found else f"{ended_line(after)}{line}\n"
    return await changed_file(host, path, before, after, backup, dry_run=dry_run, show_changes=show_changes)


async def search(
    host: Host,
    path: str,
    pattern: str,
    flags: Flags = MULTILINE,
    bufsize: int | str = 1,
    ignore_if_missing: bool = False,
    multiline: bool = False,
) -> str | bool:
    """Return whether a regular expression is found in a file.

    CLI Example:

        outstation run '*' file.search /etc/crontab mymaintenance.sh
    """
    if multiline:
        flags = flag_number(flags) | MULTILINE
    return await replace(
        host,
        path,
        pattern,
        "",
        flags=flags,
        bufsize=bufsize,
        search_only=True,
        dry_run=True,
        show_changes=False,
        ignore_if_missing=ignore_if_missing,
    )


async def comment(host: Host, path: str, regex: str, char: str = "#", backup: str | bool = ".bak") -> str | bool:
    """Put a comment sign before the lines that match, and return the difference; ``False`` when none does.

    CLI Example:

        outstation run '*' file.comment /etc/modules pcspkr
    """
    return await comment_line(host, path, regex, char, cmnt=True, backup=backup)


async def uncomment(host: Host, path: str, regex: str, char: str = "#", backup: str | bool = ".bak") -> str | bool:
    """Take the comment sign from the lines that match, and return the difference; ``False`` when none does.

    CLI Example:

        outstation run '*' file.uncomment /etc/hosts.deny 'ALL: PARANOID'
    """
    return await comment_line(host, path, regex, char, cmnt=False, backup=backup)


@one_change_at_a_time("path")
async def comment_line(
    host: Host, path: str, regex: str, char: str = "#", cmnt: bool = True, backup: str | bool = ".bak"
) -> str | bool:
    """Comment (``cmnt``) or uncomment the lines that match, and return the difference; ``False`` when none does.

    CLI Example:

        outstation run '*' file.comment_line /etc/modules pcspkr cmnt=False
    """
    core, start, end = regex.lstrip("^").rstrip("$"), "^" if regex.startswith("^") else "", "$" * regex.endswith("$")
    pattern = expression(f"{start}({core}){end}" if cmnt else rf"^{char}\s*({core}){end}", 0)
    path = await real(host, await expanded(host, path))
    found = await stat(host, path)
    if found is None or found.kind != "file":
        raise FunctionFailed(f"File not found: {path}")
    before = await text_of(host, path)
    lines = lines_of(before)
    hit = await pattern.match(lines)
    if not any(hit):
        return False
    new = [
        (f"{char}{line}" if cmnt else line.lstrip(char)) if yes else line for line, yes in zip(lines, hit, strict=True)
    ]
    await changed_file(host, path, before, "".join(new), backup)
    # Salt shows the lines that changed, and not the ones between.
    old_shown = [line for line, yes in zip(lines, hit, strict=True) if yes]
    return difference(old_shown, [line for line, yes in zip(new, hit, strict=True) if yes])


@one_change_at_a_time("path")
async def sed(
    host: Host,
    path: str,
    before: Any,
    after: Any,
    limit: str = "",
    backup: str = ".bak",
    options: str = "-r -e",
    flags: str = "g",
    escape_all: bool = False,
    negate_match: bool = False,
) -> Ended | bool:
    """Edit a file with the device's ``sed``, and return the same as ``cmd.run_all``. ``file.replace`` is better.

    CLI Example:

        outstation run '*' file.sed /etc/httpd.conf 'LogLevel warn' 'LogLevel info'
    """
    path = await expanded(host, path)
    if await stat(host, path) is None:
        return False
    old, new, where = (_slashed(str(each), escape_all=escape_all) for each in (before, after, limit))
    script = f"{f'/{where}/ ' if where else ''}{'!' if negate_match else ''}s/{old}/{new}/{flags}"
    if backup:
        await do(host, "cp", "-p", argument(path), argument(f"{path}{backup}"))
    words = ["sed", "-i", *shlex.split(options), script, argument(path)]
    call = Call(cmd=shlex.join(words), python_shell=False)
    result = await run_call(host, call, with_pid=True)
    return result.ended(call, result.shown(call))


async def sed_contains(host: Host, path: str, text: Any, limit: str = "", flags: str = "g") -> bool:
    """Return whether the device's ``sed`` finds a text, an extended regular expression, in a file.

    CLI Example:

        outstation run '*' file.sed_contains /etc/crontab mymaintenance.sh
    """
    path = await expanded(host, path)
    if await stat(host, path) is None:
        return False
    where = f"/{_slashed(limit, escape_all=False)}/ " if limit else ""
    script = f"{where}s/{_slashed(str(text), escape_all=False)}/$/p{flags}"
    found = await shell(host, 'exec sed -n -r -e "$1" "$2"', script, argument(path), own_language=True)
    return bool(found.must().out.strip())


@one_change_at_a_time("originalfile")
async def patch(host: Host, originalfile: str, patchfile: str, options: str = "", dry_run: bool = False) -> Ended:
    """Apply a patch that is on the device with its ``patch``, and return the same as ``cmd.run_all``.

    CLI Example:

        outstation run '*' file.patch /opt/file.txt /tmp/file.txt.patch
    """
    if not await present(host, "patch"):
        raise FunctionFailed("patch executable not found. Is the distribution's patch package installed?")
    words = shlex.split(options)
    words += ["--dry-run"] if dry_run else []
    words += [] if {"-N", "--forward"} & set(words) else ["-N"]
    if not any(word.startswith(("-r", "--reject-file")) for word in words):
        # BusyBox writes no rejects, and knows no option to say so.
        words += ["-r", "-"] if (await shell(host, KNOWS_REJECTS)).ok else []
    words += ["-i", patchfile]
    found = await stat(host, originalfile)
    if found is not None and found.kind == "directory":
        words += ["-d", originalfile]
        words += [] if any(word.startswith(("-p", "--strip=")) for word in words) else ["-p0"]
    else:
        words.append(argument(originalfile))
    call = Call(cmd=shlex.join(["patch", *words]), python_shell=False)
    result = await run_call(host, call, with_pid=True)
    return result.ended(call, result.shown(call))


def _slashed(text: str, *, escape_all: bool) -> str:
    """A text between the slashes of sed."""
    return "".join(f"\\{letter}" if letter in ("/^.[$()|*+?{" if escape_all else "/") else letter for letter in text)
