"""Files of the file server, which the station of the device serves."""

from __future__ import annotations

import posixpath
from typing import Any

from device_agent import files
from device_agent.ended import FunctionFailed
from device_agent.errors import Refused
from device_agent.host import Host
from device_agent.own import Own
from device_agent.protocol import limits
from device_agent.protocol.file_questions import (
    CHUNK_BYTES,
    PUSH,
    SCHEME,
    FileEntry,
    PushPiece,
    encode,
    sound_folder,
    url_parts,
)
from device_agent.questions import Unanswered

PUSHED_PATH = "a path that is pushed is absolute, and has no '..' in it"


async def get_file(
    host: Host,
    path: str,
    dest: str,
    saltenv: str | None = None,
    makedirs: bool = False,
    *,
    own: Own,
) -> str:
    """Have a file of the file server at a path of the device, and return that path.

    It is fetched in pieces, goes on where it was cut, and takes the place of the old one when its hash is right. A
    folder as ``dest`` gets the file under its own name.

    CLI Example:

        outstation run 'cam-7' cp.get_file salt://camera/motion.conf /etc/motion.conf
        outstation run 'cam-7' cp.get_file 'salt://fw.bin?saltenv=next' /tmp/fw.bin makedirs=True
    """
    return await _got(host, await _found(own, path, saltenv, ""), dest, makedirs, own)


async def get_dir(
    host: Host,
    path: str,
    dest: str,
    saltenv: str | None = None,
    *,
    own: Own,
) -> list[str]:
    """Have a folder of the file server under a folder of the device, and return the paths of what is in it.

    CLI Example:

        outstation run 'cam-7' cp.get_dir salt://camera/overlay /etc
    """
    folder, environment = _parts(path, saltenv)
    before = posixpath.dirname(folder)
    made: list[str] = []
    for found in await files.listed(own.station, environment, folder):
        inner = posixpath.join(dest, found[len(before) :].lstrip("/"))
        if found.endswith("/"):
            await files.make_folder(host, inner.rstrip("/"))
            made.append(inner.rstrip("/"))
        elif (entry := await files.find(own.station, found, environment)) is not None:
            made.append(await _got(host, entry, inner, True, own))
    if not made:
        raise FunctionFailed(f"there is no folder {folder or '/'} in environment {environment}", value=[])
    return sorted(made)


async def get_url(
    host: Host,
    path: str,
    dest: str | None = "",
    saltenv: str | None = None,
    makedirs: bool = False,
    source_hash: str | None = None,
    *,
    own: Own,
) -> str:
    """Have a file of the file server at ``dest``; in the device's cache where none is given.

    Return where it is. With ``dest=null`` return what is in it, as ``cp.get_file_str`` does. With ``source_hash`` it
    must have this SHA-256.

    CLI Example:

        outstation run 'cam-7' cp.get_url salt://camera/motion.conf /etc/motion.conf
        outstation run 'cam-7' cp.get_url salt://camera/motion.conf
    """
    if not path.startswith(SCHEME):
        raise FunctionFailed(f"{path[:200]}: only {SCHEME} addresses are fetched", value=False)
    entry = await _found(own, path, saltenv, False)
    wanted = (source_hash or entry.sha256).lower().removeprefix("sha256").lstrip("=:")
    if wanted != entry.sha256:
        raise FunctionFailed(f"{path} has the hash {entry.sha256}, not {wanted[:128]}", value=False)
    if dest is None:
        return await _text(host, entry, own)
    return await (_got(host, entry, dest, makedirs, own) if dest else _cached(host, entry, own))


async def get_file_str(host: Host, path: str, saltenv: str | None = None, *, own: Own) -> str:
    """Return what is in a file of the file server, which is in the device's cache afterwards: at most 128 KiB.

    CLI Example:

        outstation run 'cam-7' cp.get_file_str salt://camera/motion.conf
    """
    return await _text(host, await _found(own, path, saltenv, False), own)


async def cache_file(
    host: Host, path: str, saltenv: str | None = None, source_hash: str | None = None, *, own: Own
) -> str:
    """Have a file of the file server in the device's cache, and return where it is there.

    CLI Example:

        outstation run 'cam-7' cp.cache_file salt://camera/fw.bin
    """
    return await get_url(host, path, "", saltenv, False, source_hash, own=own)


async def is_cached(host: Host, path: str, saltenv: str | None = None, *, own: Own) -> str:
    """Return where a file of the file server is in the device's cache; nothing when it is not there.

    CLI Example:

        outstation run 'cam-7' cp.is_cached salt://camera/fw.bin
    """
    place = _place(own, *_parts(path, saltenv))
    found = await host.stat(place)
    return place if found is not None and found.kind == "file" else ""


async def hash_file(host: Host, path: str, saltenv: str | None = None, *, own: Own) -> dict[str, str] | str:
    """Return the hash of a file of the file server, or of one on the device. It is empty when there is none.

    CLI Example:

        outstation run 'cam-7' cp.hash_file salt://camera/fw.bin
        outstation run 'cam-7' cp.hash_file /tmp/fw.bin
    """
    if path.startswith(SCHEME):
        entry = await files.find(own.station, *_parts(path, saltenv))
        return "" if entry is None else {"hsum": entry.sha256, "hash_type": "sha256"}
    found = await host.stat(path)
    if found is None or found.kind != "file":
        return {}
    return {"hsum": await files.digest(host, path), "hash_type": "sha256"}


async def list_master(_host: Host, saltenv: str | None = None, prefix: str = "", *, own: Own) -> list[str]:
    """Return the paths of the files that the file server has, or of those that begin so.

    CLI Example:

        outstation run 'cam-7' cp.list_master
        outstation run 'cam-7' cp.list_master next prefix=camera/
    """
    return [path for path in await _beginning(own, saltenv, prefix) if not path.endswith("/")]


async def list_master_dirs(_host: Host, saltenv: str | None = None, prefix: str = "", *, own: Own) -> list[str]:
    """Return the folders that the file server has, or those that begin so.

    CLI Example:

        outstation run 'cam-7' cp.list_master_dirs
    """
    found: set[str] = set()
    for path in await _beginning(own, saltenv, prefix):
        inner = path.removesuffix("/") if path.endswith("/") else posixpath.dirname(path)
        while inner and inner not in found:
            found.add(inner)
            inner = posixpath.dirname(inner)
    return sorted(path for path in found if path.startswith(prefix.strip("/")))


async def _beginning(own: Own, saltenv: str | None, prefix: str) -> list[str]:
    prefix = prefix.strip("/")
    folder, environment = _parts(SCHEME + posixpath.dirname(prefix), saltenv)
    return [path for path in await files.listed(own.station, environment, folder) if path.startswith(prefix)]


async def push(
    host: Host,
    path: str,
    keep_symlinks: bool = False,
    upload_path: str | None = None,
    remove_source: bool = False,
    *,
    own: Own,
) -> bool:
    """Hand a file of the device over to its station, where that takes files (``files.receive``), and return ``True``.

    CLI Example:

        outstation run 'cam-7' cp.push /var/log/motion.log
    """
    if keep_symlinks:
        raise FunctionFailed("what a link points to is handed over, never the link", value=False)
    name = (upload_path or path).lstrip("/")
    if not path.startswith("/") or ".." in path.split("/") or ".." in name.split("/"):
        raise FunctionFailed(PUSHED_PATH, value=False)
    found = await host.stat(path)
    if found is None or found.kind != "file":
        raise FunctionFailed(f"there is no file {path}", value=False)
    whole, offset = await files.digest(host, path), 0
    try:
        while True:
            data = await host.read(path, offset=offset, limit=min(CHUNK_BYTES, found.size - offset))
            await own.station.ask(PUSH, encode(PushPiece(name, found.size, whole, offset, data)))
            offset += len(data)
            if offset >= found.size:
                break
            if not data:
                raise FunctionFailed(f"{path} changed while it was read", value=False)
    except (Refused, Unanswered) as error:
        raise FunctionFailed(f"{path}: {error.what}", value=False) from None
    if remove_source:
        await host.remove(path)
    return True


def _parts(url: str, saltenv: str | None) -> tuple[str, str]:
    try:
        path, environment = url_parts(url, saltenv)
        return sound_folder(path), environment
    except Refused as refusal:
        raise FunctionFailed(str(refusal)) from None


async def _found(own: Own, path: str, saltenv: str | None, missing: Any) -> FileEntry:
    """The file behind an address. Raises ``FunctionFailed`` with what Salt answers when there is none."""
    try:
        name, environment = _parts(path, saltenv)
        entry = await files.find(own.station, name, environment)
    except FunctionFailed as failed:
        raise FunctionFailed(failed.why, value=missing) from None
    if entry is None:
        raise FunctionFailed(f"there is no {name} in environment {environment}", value=missing)
    return entry


async def _got(host: Host, entry: FileEntry, dest: str, makedirs: bool, own: Own) -> str:
    found = await host.stat(dest)
    if dest.endswith("/") or (found is not None and found.kind == "directory"):
        dest = posixpath.join(dest, posixpath.basename(entry.path))
    folder = posixpath.dirname(dest)
    if folder and await host.stat(folder) is None:
        if not makedirs:
            raise FunctionFailed(f"there is no folder {folder}; makedirs=True makes it", value=False)
        await files.make_folder(host, folder)
    await files.fetch(host, own.station, entry, dest)
    return dest


def _place(own: Own, path: str, environment: str) -> str:
    return posixpath.join(own.cache_dir, "files", environment, path)


async def _cached(host: Host, entry: FileEntry, own: Own) -> str:
    return await _got(host, entry, _place(own, entry.path, entry.saltenv), True, own)


async def _text(host: Host, entry: FileEntry, own: Own) -> str:
    if entry.size > limits.VALUE_TEXT_BYTES:
        why = f"{entry.path} has {entry.size} bytes, at most {limits.VALUE_TEXT_BYTES} are returned"
        raise FunctionFailed(why, value=False)
    data = await host.read(await _cached(host, entry, own), limit=limits.VALUE_TEXT_BYTES)
    return data.decode(errors="replace")
