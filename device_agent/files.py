"""Files from the station: found by their path, fetched piece by piece, judged by their hash, and only then in place.

What has come so far lies beside the target under a name with the content's hash in it. A fetch that is cut short,
whatever cuts it, goes on there the next time; a file that has become another one meanwhile is begun anew.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import posixpath
from typing import Final
from weakref import WeakValueDictionary

from device_agent.ended import FunctionFailed
from device_agent.errors import Refused
from device_agent.file_changes import changing
from device_agent.host import Host
from device_agent.local_files import LINKS_FOLLOWED
from device_agent.protocol.file_questions import (
    CHUNK,
    CHUNK_BYTES,
    FIND,
    LIST,
    AskChunk,
    FileEntry,
    FindFile,
    ListFiles,
    Listing,
    decode,
    encode,
    sound_path,
)
from device_agent.questions import Station, Unanswered

STALLED_SECONDS: Final = 900.0
"""A fetch that gets nothing for so long is given up; what is there stays, and the next one goes on behind it."""

AGAIN_SECONDS: Final = 1.0
EMPTY_SECONDS: Final = 0.05
ANEW_MOST: Final = 5
"""A file that changes so often while it is fetched is given up."""

LISTED_MOST: Final = 100_000
FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NAME_BYTES: Final = 150
PART: Final = ".part"

_targets: WeakValueDictionary[tuple[object, str], asyncio.Lock] = WeakValueDictionary()
"""One fetch at a time for each target of a device."""


async def find(station: Station, path: str, saltenv: str) -> FileEntry | None:
    """What stands at a path; None for nothing. Raises ``FunctionFailed`` when the station cannot tell."""
    try:
        entry = decode(await station.ask(FIND, encode(FindFile(sound_path(path), saltenv))), FileEntry)
    except Refused as refusal:
        if refusal.reason == "not_found":
            return None
        raise FunctionFailed(f"salt://{path}: {refusal}") from None
    except Unanswered as error:
        raise FunctionFailed(f"salt://{path}: {error.what}") from None
    if entry.path != path:
        # Where it is kept is made of this path.
        raise FunctionFailed(f"salt://{path}: the station answered with another path: {entry.path[:200]!r}")
    return entry


async def listed(station: Station, saltenv: str, under: str = "") -> list[str]:
    """All paths under a folder; a folder without files has a ``/`` behind it. Raises ``FunctionFailed``."""
    found: list[str] = []
    more = True
    try:
        while more:
            page = decode(
                await station.ask(LIST, encode(ListFiles(saltenv, under, found[-1] if found else ""))), Listing
            )
            if any(not _is_under(path, under) for path in page.paths) or len(found) > LISTED_MOST:
                raise Refused("wrong_answer", "that is no listing")
            found += page.paths
            more = page.more and bool(page.paths)
    except (Refused, Unanswered) as error:
        raise FunctionFailed(f"salt://{under}: {error.what}") from None
    return found


async def fetch(host: Host, station: Station, entry: FileEntry, target: str) -> FileEntry:
    """Have a file at a path of the device, whole or not at all; what it was in the end. Raises ``FunctionFailed``."""
    target = await _followed(host, target)
    lock = _targets.setdefault((host.grains.get("id"), target), asyncio.Lock())
    async with lock:
        for _ in range(ANEW_MOST):
            if await _is_there(host, entry, target):
                return entry
            part = _part_of(target, entry)
            await _sweep(host, target, part)
            try:
                await _collect(host, station, entry, part)
            except OSError as error:
                if error.errno in FULL:
                    # What cannot become whole leaves its room to others.
                    await _forget(host, part)
                raise
            except Refused as refusal:
                if refusal.reason != "changed":
                    raise FunctionFailed(f"salt://{entry.path}: {refusal}") from None
                await _forget(host, part)
                entry = await _anew(station, entry)
                continue
            if await digest(host, part) == entry.sha256:
                async with changing(host, target):
                    await host.replace(part, target)
                return entry
            await _forget(host, part)
            entry = await _anew(station, entry)
    raise FunctionFailed(f"salt://{entry.path}: what came was not what was promised, {ANEW_MOST} times")


async def digest(host: Host, path: str) -> str:
    """The SHA-256 of a file on the device, by its own means where it has them."""
    try:
        done = await host.run(["sha256sum", path if path.startswith("/") else f"./{path}"])
    except OSError:
        done = None
    if done is not None and done.returncode == 0:
        # A name with a backslash or a newline in it is printed escaped, with a backslash before the hash.
        return done.stdout.decode(errors="replace").lstrip("\\").partition(" ")[0]
    whole, offset = hashlib.sha256(), 0
    while data := await host.read(path, offset=offset):
        whole.update(data)
        offset += len(data)
    return whole.hexdigest()


async def make_folder(host: Host, folder: str) -> None:
    """Make a folder and those above it. Raises ``FunctionFailed``."""
    if folder and await host.stat(folder) is None:
        done = await host.run(["mkdir", "-p", folder])
        if done.returncode:
            raise FunctionFailed(done.stderr.decode(errors="replace").strip()[:500] or f"{folder} cannot be made")


async def _collect(host: Host, station: Station, entry: FileEntry, part: str) -> None:
    """Fetch what is missing of a part. Raises ``Refused`` and ``FunctionFailed``."""
    found = await host.stat(part, follow=False)
    offset = 0
    if found is not None and found.kind == "file" and found.size <= entry.size:
        offset = found.size if found.size == entry.size else found.size - found.size % CHUNK_BYTES
    if offset == 0:
        await host.append(part, b"", at=0)
    while offset < entry.size:
        data = await _piece(station, entry, offset)
        await host.append(part, data, at=offset)
        offset += len(data)


async def _piece(station: Station, entry: FileEntry, offset: int) -> bytes:
    """The next piece, however long it takes to come. Raises ``Refused``, and ``FunctionFailed`` when nothing comes."""
    length = min(CHUNK_BYTES - offset % CHUNK_BYTES, entry.size - offset)
    body = encode(AskChunk(entry, offset, length))
    try:
        async with asyncio.timeout(STALLED_SECONDS):
            while True:
                try:
                    data = await station.ask(CHUNK, body)
                except Unanswered:
                    data, pause = b"", AGAIN_SECONDS
                except Refused as refusal:
                    if refusal.reason != "busy":
                        raise
                    data, pause = b"", AGAIN_SECONDS
                else:
                    # Whoever answers with nothing has held the question back until now.
                    pause = EMPTY_SECONDS
                if len(data) > length:
                    raise Refused("wrong_answer", f"{len(data)} bytes where {length} were asked for")
                if data:
                    return data
                await asyncio.sleep(pause)
    except TimeoutError:
        why = f"salt://{entry.path}: nothing came for {STALLED_SECONDS:.0f} s, {offset} of {entry.size} bytes are here"
        raise FunctionFailed(why) from None


async def _anew(station: Station, entry: FileEntry) -> FileEntry:
    found = await find(station, entry.path, entry.saltenv)
    if found is None:
        raise FunctionFailed(f"salt://{entry.path} is not there any more")
    return found


async def _followed(host: Host, target: str) -> str:
    """Where a file at this path is really, as ``Host.write`` follows a link."""
    for _ in range(LINKS_FOLLOWED):
        found = await host.stat(target, follow=False)
        if found is None or found.kind != "link":
            return target
        target = posixpath.join(posixpath.dirname(target), found.target)
    raise FunctionFailed(f"{target}: too many links")


async def _is_there(host: Host, entry: FileEntry, target: str) -> bool:
    found = await host.stat(target)
    if found is not None and found.kind != "file":
        raise FunctionFailed(f"{target} is a {found.kind}")
    return found is not None and found.size == entry.size and await digest(host, target) == entry.sha256


def _stem(target: str) -> str:
    name = os.fsdecode(os.fsencode(posixpath.basename(target))[:NAME_BYTES])
    return f".{name}.outstation-"


def _part_of(target: str, entry: FileEntry) -> str:
    return posixpath.join(posixpath.dirname(target), f"{_stem(target)}{entry.sha256[:32]}{PART}")


async def _sweep(host: Host, target: str, part: str) -> None:
    """Remove what is left of other contents of this target."""
    folder = posixpath.dirname(target) or "."
    stem, length = _stem(target), len(posixpath.basename(part))
    for name in await host.list(folder):
        if name.startswith(stem) and name.endswith(PART) and len(name) == length and name != posixpath.basename(part):
            await host.remove(posixpath.join(folder, name))


async def _forget(host: Host, part: str) -> None:
    if await host.stat(part, follow=False) is not None:
        await host.remove(part)


def _is_under(path: str, under: str) -> bool:
    """Whether a path that the station told is one, and in the folder that was asked for."""
    try:
        path = sound_path(path.removesuffix("/"))
    except Refused:
        return False
    return not under or path == under or path.startswith(f"{under}/")
