"""file.*: what is in a file, as a whole or from a place on."""

from __future__ import annotations

import fnmatch
import hashlib
import io
import re
import shlex
from typing import Annotated, Any

from msgspec import Meta

from device_agent.command_call import Call, Result, bounded
from device_agent.command_call import run as run_call
from device_agent.commands import do, present
from device_agent.ended import Ended, FunctionFailed
from device_agent.expressions import Expression
from device_agent.file_changes import one_change_at_a_time
from device_agent.functions.file._paths import stat
from device_agent.host import Host
from device_agent.protocol import limits
from device_agent.shell_paths import argument, expanded, globbed
from device_agent.text_files import WHOLE_BYTES, whole

HASHES = {32: "md5", 40: "sha1", 56: "sha224", 64: "sha256", 96: "sha384", 128: "sha512"}
"""What a hash of so many digits is made with."""

SCAN_BYTES = 1024 * 1024
Size = Annotated[int, Meta(ge=0)]


async def read(host: Host, path: str, binary: bool = False) -> str | bytes:
    """Return what is in a file: at most its first 128 KiB, and then how much is missing.

    The rest of a longer file is had with ``file.seek_read``.

    CLI Example:

        outstation run '*' file.read /etc/hostname
    """
    data = await host.read(path, limit=limits.VALUE_TEXT_BYTES + 1)
    if len(data) > limits.VALUE_TEXT_BYTES:
        found = await host.stat(path)
        lost = max(1, (found.size if found else 0) - limits.VALUE_TEXT_BYTES)
        data = data[: limits.VALUE_TEXT_BYTES]
        if not binary:
            where = f"file.seek_read {path} {limits.VALUE_TEXT_BYTES} {limits.VALUE_TEXT_BYTES} goes on"
            return f"{data.decode(errors='replace')}\n[{lost} more bytes were cut; {where}]"
    return data if binary else data.decode(errors="replace")


@one_change_at_a_time("path")
async def write(host: Host, path: str, *args: Any, **kwargs: Any) -> str:
    """Make these lines the content of a file, whole or not at all. ``args=[…]`` is another way to give them.

    CLI Example:

        outstation run '*' file.write /etc/motd 'Welcome to the dock.' 'Mind the gap.'
    """
    path = await expanded(host, path)
    lines = _lines("file.write", args, kwargs)
    await host.write(path, "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))
    return f'Wrote {len(lines)} lines to "{path}"'


@one_change_at_a_time("path")
async def append(host: Host, path: str, *args: Any, **kwargs: Any) -> str:
    """Append these lines to a file that is there, on a line of their own. ``args=[…]`` is another way to give them.

    CLI Example:

        outstation run '*' file.append /etc/motd 'With all thine offerings,' 'thou shalt offer salt.'
    """
    path = await expanded(host, path)
    lines = _lines("file.append", args, kwargs)
    before = await whole(host, path)
    between = b"\n" if before and not before.endswith(b"\n") else b""
    added = "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")
    await host.write(path, before + between + added)
    return f'Wrote {len(lines)} lines to "{path}"'


@one_change_at_a_time("path")
async def prepend(host: Host, path: str, *args: Any, **kwargs: Any) -> str:
    """Put these lines in front of a file. ``args=[…]`` is another way to give them.

    CLI Example:

        outstation run '*' file.prepend /etc/motd 'Attention:'
    """
    path = await expanded(host, path)
    lines = _lines("file.prepend", args, kwargs)
    before = await whole(host, path) if await stat(host, path) is not None else b""
    added = "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")
    await host.write(path, added + before)
    return f'Prepended {len(lines)} lines to "{path}"'


async def seek_read(host: Host, path: str, size: Annotated[int, Meta(ge=0)], offset: Size) -> bytes:
    """Return so many bytes of a file from a place on, at most 128 KiB at once.

    CLI Example:

        outstation run '*' file.seek_read /var/log/messages 4096 0
    """
    return await host.read(await expanded(host, path), offset=offset, limit=min(size, limits.VALUE_TEXT_BYTES))


@one_change_at_a_time("path")
async def seek_write(host: Host, path: str, data: Any, offset: Size) -> int:
    """Write over a file from a place on, and return how many bytes were written.

    CLI Example:

        outstation run '*' file.seek_write /tmp/counter 0042 0
    """
    path = await expanded(host, path)
    before = await whole(host, path)
    written = data if isinstance(data, bytes) else str(data).encode(errors="surrogateescape")
    if offset + len(written) > WHOLE_BYTES:
        raise FunctionFailed(f"{path} would become larger than {WHOLE_BYTES} bytes, the most that is written at once")
    await host.write(path, before[:offset].ljust(offset, b"\0") + written + before[offset + len(written) :])
    return len(written)


@one_change_at_a_time("path")
async def truncate(host: Host, path: str, length: Size) -> None:
    """Cut a file to this length, or fill it up to it with zeros.

    CLI Example:

        outstation run '*' file.truncate /var/log/camera.log 512
    """
    path = await expanded(host, path)
    if await stat(host, path) is None:
        raise FunctionFailed(f"No such file or directory: {path}")
    await do(host, "dd", "if=/dev/null", f"of={path}", "bs=1", "count=0", f"seek={length}")


async def contains(host: Host, path: str, text: Any) -> bool:
    """Return whether a text is in a file; spaces at its ends do not count.

    CLI Example:

        outstation run '*' file.contains /etc/hosts localhost
    """
    wanted = str(text).strip().encode(errors="surrogateescape")
    path = await expanded(host, path)
    offset, rest = 0, b""
    try:
        while data := await host.read(path, offset=offset, limit=SCAN_BYTES):
            if wanted in rest + data:
                return True
            rest = (rest + data)[-len(wanted) :] if wanted else b""
            offset += len(data)
    except OSError:
        return False
    return False


async def contains_regex(host: Host, path: str, regex: str, lchar: str = "") -> bool:
    """Return whether a regular expression is found in a line of a file; ``lchar`` is first taken from its front.

    CLI Example:

        outstation run '*' file.contains_regex /etc/hosts '^127'
    """
    pattern = Expression(regex)
    try:
        text = (await whole(host, await expanded(host, path))).decode(errors="surrogateescape")
    except OSError:
        return False
    # The line ends of Unix, Windows and the old Mac, as Salt and no more of those that Python knows.
    lines = list(io.StringIO(text, newline=None))
    return any(await pattern.search([line.lstrip(lchar) for line in lines] if lchar else lines))


async def contains_glob(host: Host, path: str, glob_expr: str) -> bool:
    """Return whether the whole of a file matches a shell pattern.

    CLI Example:

        outstation run '*' file.contains_glob /etc/hosts '*localhost*'
    """
    try:
        text = (await whole(host, await expanded(host, path))).decode(errors="surrogateescape")
    except OSError:
        return False
    # A shell pattern is translated so that nothing is looked at twice: it needs no bound of its steps.
    return bool(text) and re.match(fnmatch.translate(glob_expr), text) is not None


async def get_hash(host: Host, path: str, form: str = "sha256", chunk_size: int = 65536) -> str:  # noqa: ARG001 - Salt's argument; the device reads as it likes
    """Return the hash of a file.

    CLI Example:

        outstation run '*' file.get_hash /etc/shadow
        outstation run '*' file.get_hash /etc/hosts form=md5
    """
    if form not in HASHES.values():
        raise FunctionFailed(f"Invalid hash type: {form}; allowed: {', '.join(HASHES.values())}")
    path = await expanded(host, path)
    if await present(host, f"{form}sum"):
        # A name with a backslash or a newline in it is printed escaped, with a backslash before the hash.
        return (await do(host, f"{form}sum", argument(path))).out.lstrip("\\").partition(" ")[0]
    digest, offset = hashlib.new(form), 0
    while data := await host.read(path, offset=offset):
        digest.update(data)
        offset += len(data)
    return digest.hexdigest()


async def get_sum(host: Host, path: str, form: str = "sha256") -> str:
    """Return the hash of a file, or "File not found".

    CLI Example:

        outstation run '*' file.get_sum /etc/passwd sha512
    """
    found = await stat(host, await expanded(host, path))
    return await get_hash(host, path, form) if found is not None and found.kind == "file" else "File not found"


async def check_hash(host: Host, path: str, file_hash: str) -> bool:
    """Return whether a file has this hash, written as ``sha256:DIGITS``, ``md5=DIGITS`` or as digits alone.

    CLI Example:

        outstation run '*' file.check_hash /etc/hosts md5:f05c0a1fe0a9c8e4f8c9ff2b8d8ef0a4
    """
    form, parted, digits = file_hash.partition(":" if ":" in file_hash else "=")
    if not parted:
        form, digits = HASHES.get(len(file_hash), ""), file_hash
    if not form:
        known = ", ".join(f"{name} ({length})" for length, name in HASHES.items())
        raise FunctionFailed(
            f"Hash {file_hash[:200]} (length: {len(file_hash)}) could not be matched to a supported hash type. "
            f"The supported hash types and lengths are: {known}"
        )
    return await get_hash(host, path, form) == digits


async def grep(host: Host, path: str, pattern: str, *opts: str) -> Ended:
    """Search files with the device's ``grep``, and return the same as ``cmd.run_all``; ``path`` may be a pattern.

    CLI Example:

        outstation run '*' file.grep /etc/passwd nobody
        outstation run '*' file.grep '/etc/*.conf' ipaddr -- -i
    """
    for opt in opts:
        if len(shlex.split(opt)) > 1:
            raise FunctionFailed(f"Each option of grep is an argument of its own: {opt}")
    words = [word for opt in opts for word in shlex.split(opt)]
    files = await globbed(host, path) or [argument(await expanded(host, path))]
    call = Call(cmd=shlex.join(["grep", *words, "-e", pattern, *files]), python_shell=False)
    result: Result = await run_call(host, call, with_pid=True)
    shown = result.shown(call) | {"stdout": bounded(result.stdout, result.cut)}
    return result.ended(call, shown)


def _lines(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """The lines of a call: its arguments, or what is in ``args=``."""
    given: Any = kwargs.pop("args", list(args))
    if kwargs:
        raise FunctionFailed(f"{name} takes lines, and no {', '.join(sorted(kwargs))}")
    return [str(line) for line in (given if isinstance(given, list) else [given])]
