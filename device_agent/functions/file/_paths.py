"""What the functions on files share: where a path leads, and what is there."""

from __future__ import annotations

import stat as stat_bits

from device_agent.commands import ask
from device_agent.ended import FunctionFailed
from device_agent.host import Host, Stat
from device_agent.shell_paths import argument, expanded
from device_agent.text_files import whole

BITS = {
    "file": stat_bits.S_IFREG,
    "directory": stat_bits.S_IFDIR,
    "link": stat_bits.S_IFLNK,
    "block": stat_bits.S_IFBLK,
    "character": stat_bits.S_IFCHR,
    "fifo": stat_bits.S_IFIFO,
    "socket": stat_bits.S_IFSOCK,
}
"""The bits of a mode that say what is there."""


async def absolute(host: Host, path: str, what: str = "File path must be absolute.") -> str:
    """The path with ``~`` expanded. Raises ``FunctionFailed`` for one that is relative."""
    path = await expanded(host, path)
    if not path.startswith("/"):
        raise FunctionFailed(f"{what} Found: {path}")
    return path


async def stat(host: Host, path: str, *, follow: bool = True) -> Stat | None:
    """What is at a path; where nothing can be there, as below a file, that is nothing."""
    try:
        return await host.stat(path, follow=follow)
    except NotADirectoryError:
        return None


async def real(host: Host, path: str) -> str:
    """Where a path leads when all links are followed; the path itself where nothing is there."""
    return (await ask(host, "readlink", "-f", argument(path))).exact.removesuffix("\n") or path


async def text_of(host: Host, path: str) -> str:
    """All of a text file; bytes that are no UTF-8 come back to where they were when it is written again.

    Raises ``FunctionFailed`` for a file that is no text.
    """
    data = await whole(host, path)
    if b"\0" in data:
        raise FunctionFailed(f"Cannot perform string replacements on a binary file: {path}")
    return data.decode(errors="surrogateescape")


def mode_text(mode: int | str) -> str:
    """A mode as Salt writes it: four octal digits."""
    text = f"{mode:o}" if isinstance(mode, int) else str(mode).lstrip("0Oo")
    return (text or "0").rjust(4, "0")
