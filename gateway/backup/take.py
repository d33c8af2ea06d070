"""A backup is taken: of a station that runs or of one that does not, without a word to it.

The store is copied at one moment (``snapshot``), every other file is replaced whole by whoever writes it. The copy lies
in the state folder for that long, where all of it lies anyway; outside there is nothing that is not encrypted. What is
written is read again, to its last byte, before it takes the place of anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from device_agent import __version__
from device_agent.clock import Clock
from device_agent.durable import synced
from device_agent.errors import ConfigInvalid, StationFailed, UsageInvalid
from gateway.backup.archive import Cost, SealedReader, SealedWriter, read_header
from gateway.backup.contents import (
    CERTIFICATE,
    KEYS,
    SALT_KEY,
    SALT_MASTERS,
    SALT_MASTERS_MOST,
    SMALL_BYTES,
    STORE,
    TRUST,
    Contents,
    Entry,
    copy,
    is_salt_master,
    read_contents,
    written,
)
from gateway.backup.place import state_folder, workshop
from gateway.backup.settings_files import settings_files
from gateway.backup.snapshot import Progress, devices_of, schema_of, take_snapshot
from gateway.config import StationSettings
from gateway.fleet.private_file import read_private
from upstream.salt.rsa_keys import PEM_CHARACTERS


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be backed up, and to where. ``config`` is the settings file that ``settings`` came from."""

    settings: StationSettings
    config: Path
    target: Path
    passphrase: bytes = field(repr=False)
    with_keys: bool = True
    overwrite: bool = False
    cost: Cost | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """A backup that is on disk."""

    path: Path
    size: int
    contents: Contents


def check_target(target: Path, *, overwrite: bool) -> None:
    """Whether a backup may be written there. Raises ``UsageInvalid``."""
    if target.is_dir() or not target.parent.is_dir():
        raise UsageInvalid(
            "a backup is a file in a folder that exists",
            error_id="backup.bad_target",
            where=str(target),
            found="a folder" if target.is_dir() else f"no folder {target.parent}",
            allowed="a path of a new file",
            hint=f"outstation gateway backup {target / 'NAME.backup' if target.is_dir() else 'FILE'}",
        )
    if target.exists() and not overwrite:
        raise UsageInvalid(
            "there is a file of this name",
            error_id="backup.exists",
            where=str(target),
            allowed="a path of a new file: it may be the only backup that is good",
            hint="take another name, or replace it: --force",
        )


def take_backup(wish: Wish, clock: Clock, progress: Progress) -> Taken:
    """Write a backup. Raises ``UsageInvalid``, ``ConfigInvalid`` and ``StationFailed``; then nothing was replaced."""
    check_target(wish.target, overwrite=wish.overwrite)
    state = state_folder(wish.settings)
    now = clock.wall()
    with workshop(state) as folder, _written_whole(wish) as out:
        small = _small_files(state, wish)
        store = take_snapshot(state / STORE, folder, now, progress)
        entries = [Entry(name, len(body)) for name, body in small.items()]
        contents = Contents(
            site=wish.settings.name,
            taken=int(now),
            release=__version__,
            schema=schema_of(store),
            has_keys=wish.with_keys,
            devices=devices_of(store),
            files=(*entries, Entry(STORE, store.stat().st_size)),
        )
        writer = SealedWriter(out, wish.passphrase, cost=wish.cost)
        writer.write(written(contents))
        for body in small.values():
            writer.write(body)
        with store.open("rb") as file:
            copy(file.read, writer.write, contents.files[-1].size, lambda part: progress("encrypting", part))
        writer.finish()
        out.flush()
        os.fsync(out.fileno())
        size = out.tell()
        # From the medium, not from memory.
        os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        out.seek(0)
        _read_again(out, wish, progress)
    return Taken(wish.target, size, contents)


def _read_again(file: BinaryIO, wish: Wish, progress: Progress) -> None:
    """What was written opens with the passphrase, from its beginning to its end."""
    name = str(wish.target)
    archive = SealedReader(file, read_header(file, name), wish.passphrase, name)
    contents = read_contents(archive, name)
    copy(archive.read, _nowhere, contents.size, lambda part: progress("reading it again", part))
    archive.finish()


def _nowhere(_: bytes) -> None:
    """Reading alone is what is wanted."""


def _small_files(state: Path, wish: Wish) -> dict[str, bytes]:
    """Every file but the store, by its name in the backup. Raises ``ConfigInvalid``."""
    found: dict[str, bytes] = {}
    for name in (*TRUST, *((*KEYS, SALT_KEY) if wish.with_keys else ())):
        body = read_private(state / name, SMALL_BYTES)
        if body is not None:
            found[name] = body
        elif name in KEYS:
            raise ConfigInvalid(
                "this station has no keys yet",
                where=str(state / name),
                found="no such file",
                allowed="a gateway that was started once; it makes its keys then",
                hint="start it, or take the backup without keys: --without-keys",
            )
    found |= _salt_masters(state)
    if not wish.with_keys:
        # It stands for keys that are not there.
        found.pop(CERTIFICATE, None)
    return found | settings_files(wish.settings, wish.config)


def _salt_masters(state: Path) -> dict[str, bytes]:
    """The public keys of Salt masters that this gateway holds to. Raises ``ConfigInvalid``."""
    names = [
        name
        for folder in SALT_MASTERS
        for path in sorted((state / folder).glob("*.pub"))
        if is_salt_master(name := f"{folder}/{path.name}")
    ]
    if len(names) > SALT_MASTERS_MOST:
        raise ConfigInvalid(
            "too many keys of Salt masters are kept",
            where=str(state / SALT_MASTERS[0]),
            found=f"{len(names)} files",
            allowed=f"at most {SALT_MASTERS_MOST}",
            hint="remove those of masters that are not in the settings any more",
        )
    bodies = {name: read_private(state / name, PEM_CHARACTERS) for name in names}
    return {name: body for name, body in bodies.items() if body is not None}


@contextmanager
def _written_whole(wish: Wish) -> Iterator[BinaryIO]:
    """A file of mode 0600 that takes its name when all of it is on disk, and leaves nothing otherwise."""
    target = wish.target
    fresh = target.with_name(f".{target.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w+b") as file:
            yield file
        # Asked again: it took its time.
        check_target(target, overwrite=wish.overwrite)
        fresh.rename(target)
        synced(target.parent)
    except OSError as error:
        raise StationFailed(
            "the backup could not be written",
            error_id="backup.not_written",
            where=str(target),
            found=error.strerror or str(error),
            allowed="a folder that this user may write, with space left",
            hint=f"ls -ld {target.parent}; df -h {target.parent}",
        ) from None
    finally:
        fresh.unlink(missing_ok=True)
