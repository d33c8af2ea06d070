"""Files that come inside the call, as ``salt-cp`` of a Salt master sends them."""

from __future__ import annotations

import base64
import binascii
import posixpath
import zlib
from typing import Any

from device_agent import files as station_files
from device_agent.ended import FunctionFailed
from device_agent.file_changes import changing, one_change_at_a_time
from device_agent.host import Host

CHUNK_MOST = 4 * 1024 * 1024
"""Bytes that one chunk may have when it is unpacked; ``salt-cp`` sends 96 KiB."""

GZIP = zlib.MAX_WBITS | 16


async def recv(host: Host, files: dict[str, Any], dest: str) -> dict[str, bool]:
    """Write the files that come with the call, as ``salt-cp`` sends them, and return which were written.

    ``files`` has the content by name. ``dest`` is the path of a file, or a folder that is there. A job carries at most
    256 KiB: use ``cp.get_file`` for larger files.

    CLI Example:

        outstation run 'cam-7' cp.recv '{motd: hello}' /etc/motd
    """
    done: dict[str, bool] = {}
    failed: list[str] = []
    found = await host.stat(dest)
    is_folder = found is not None and found.kind == "directory"
    above = await host.stat(posixpath.dirname(dest) or ".")
    for path, data in files.items():
        name = posixpath.basename(path)
        if not is_folder and name != posixpath.basename(dest) and (above is None or above.kind != "directory"):
            raise FunctionFailed(f"there is no folder {posixpath.dirname(dest)}", value="Destination unavailable")
        target = posixpath.join(dest, name) if is_folder else dest
        try:
            async with changing(host, target):
                await host.write(target, _content(data))
        except OSError as error:
            failed.append(str(error))
            done[target] = False
        else:
            done[target] = True
    if failed:
        raise FunctionFailed("; ".join(failed), value=done)
    return done


@one_change_at_a_time("dest")
async def recv_chunked(
    host: Host,
    dest: str,
    chunk: Any,
    append: bool = False,
    compressed: bool = True,
    mode: int | None = None,
) -> bool:
    """Write a piece of a file, as ``salt-cp --chunked`` sends it, and return ``True``.

    ``chunk`` is the piece in base64, packed by gzip when it is ``compressed``; without one a folder is made. ``append``
    puts it behind what is there; the first piece makes the file anew, with this ``mode``.

    CLI Example:

        outstation run 'cam-7' cp.recv_chunked /tmp/x aGVsbG8K compressed=False
    """
    if chunk is None:
        await station_files.make_folder(host, dest)
        return True
    data = _unpacked(chunk, compressed)
    await station_files.make_folder(host, posixpath.dirname(dest))
    try:
        found = await host.stat(dest) if append else None
        if found is None:
            await host.write(dest, data, mode=mode)
        else:
            await host.append(dest, data, at=found.size)
    except OSError as error:
        raise FunctionFailed(str(error), value=str(error)) from error
    return True


def _content(data: Any) -> bytes:
    """The bytes of a text or of bytes; both come from a Salt master. Raises ``FunctionFailed``."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode(errors="surrogateescape")
    raise FunctionFailed(f"the content of a file is a {type(data).__name__}; allowed: a text or bytes")


def _unpacked(chunk: Any, compressed: bool) -> bytes:
    """The bytes of a piece. Raises ``FunctionFailed``."""
    try:
        data = base64.b64decode(_content(chunk), validate=True)
        if not compressed:
            return data
        unpack = zlib.decompressobj(GZIP)
        whole = unpack.decompress(data, CHUNK_MOST)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise FunctionFailed(f"this is no piece of a file: {error}") from None
    if not unpack.eof:
        raise FunctionFailed(f"the piece is cut, or larger than {CHUNK_MOST} bytes, the most that one may have")
    return whole
