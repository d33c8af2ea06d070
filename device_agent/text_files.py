"""Whole text files of a host: read to their end or not at all, so that none is written back shorter than it was."""

from __future__ import annotations

from device_agent import system_text
from device_agent.ended import FunctionFailed
from device_agent.host import Host

WHOLE_BYTES = 4 * 1024 * 1024
"""The largest file that is read, or read, changed and written, at once."""


async def whole(host: Host, path: str) -> bytes:
    """All of a file. Raises ``OSError`` as the host does, and ``FunctionFailed`` for one that is too large."""
    data = await host.read(path, limit=WHOLE_BYTES + 1)
    if len(data) > WHOLE_BYTES:
        raise FunctionFailed(f"{path} is larger than {WHOLE_BYTES} bytes, the most that is read at once")
    return data


async def read(host: Host, path: str) -> str:
    """The text of a file, whose bytes that are no UTF-8 come back to where they were when it is written again."""
    return (await whole(host, path)).decode(errors="surrogateescape")


async def read_if_there(host: Host, path: str) -> str:
    """The same; nothing where there is no such file."""
    try:
        return await read(host, path)
    except FileNotFoundError:
        return ""


async def lines(host: Host, path: str) -> list[str]:
    """Read a file and split it at its line feeds alone, so that no line becomes two when the file is written again."""
    return system_text.lines(await read(host, path))


async def lines_if_there(host: Host, path: str) -> list[str]:
    """The same; no lines where there is no such file."""
    return system_text.lines(await read_if_there(host, path))


async def look(host: Host, path: str, *, must: bool = True) -> str:
    """The text of a file that is only looked at, as it can be returned: bytes that are no UTF-8 are marked.

    Raises ``FunctionFailed`` when it cannot be read; unless it ``must`` be, it is empty then.
    """
    try:
        return (await whole(host, path)).decode(errors="replace")
    except OSError as error:
        if must:
            raise FunctionFailed(f"{path} cannot be read: {error.strerror or error}") from error
        return ""


async def write(
    host: Host, path: str, text: str, *, mode: int | None = None, owner: tuple[int, int] | None = None
) -> None:
    """Make this the text of a file; see ``Host.write``."""
    await host.write(path, text.encode(errors="surrogateescape"), mode=mode, owner=owner)
