"""A backup is put back: read to its end and verified in a folder beside, which then takes the state folder's place.

What was there is moved aside and kept. Until the last step nothing has changed.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from device_agent.clock import Clock, iso
from device_agent.errors import StationFailed, UsageInvalid
from device_agent.settings import load, says
from gateway.backup.archive import SealedReader, read_header
from gateway.backup.contents import (
    CERTIFICATE,
    KEYS,
    SALT_KEY,
    SETTINGS,
    STORE,
    TRUST,
    Contents,
    copy,
    is_salt_master,
    read_contents,
)
from gateway.backup.place import check_place, kept_still, put_in_place, staged, state_folder
from gateway.backup.refusals import BackupRefused
from gateway.backup.renewal import Restoration, check_store, renew_store
from gateway.backup.settings_files import write_copies, write_settings
from gateway.backup.snapshot import Progress, devices_of
from gateway.config import StationSettings
from gateway.devices.authority import Authority
from gateway.devices.enrolled import BELONGING
from gateway.fleet.private_file import write_private
from gateway.store.migrate import steps
from upstream.curve import fingerprint, load_or_make

COPIES: Final = "settings-from-backup"
"""Where in the state folder the settings lie as they were backed up."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be put back. ``config`` is where the settings stand, or will; ``passphrase`` is asked when needed."""

    source: Path
    config: Path
    passphrase: Callable[[], bytes] = field(repr=False)
    user: str = ""
    new_keys: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True)
class Restored:
    """What is there now.

    ``names`` are the devices that belong here. With ``new_keys`` no master knows this gateway, and tells it from others
    by ``fingerprint``. ``aside`` is where the folder is that was there before.
    """

    contents: Contents
    folder: Path
    names: tuple[str, ...]
    devices: Mapping[str, int]
    new_keys: bool
    fingerprint: str
    aside: Path | None
    settings_written: bool


def put_back(wish: Wish, clock: Clock, progress: Progress) -> Restored:
    """Restore a backup. Raises ``UsageInvalid``, ``ConfigInvalid`` and ``StationFailed``; then nothing has changed."""
    name = str(wish.source)
    # Settings that name no site are those of a box that has just been installed: the backup's are laid over them.
    known = load(StationSettings, wish.config) if wish.config.exists() and says(wish.config, "name") else None
    try:
        file = wish.source.open("rb")
    except OSError as error:
        raise UsageInvalid(
            "the backup cannot be read",
            error_id="backup.unreadable",
            where=name,
            found=error.strerror,
            allowed="a file that this user may read",
            hint=f"ls -l {name}",
        ) from None
    with file:
        header = read_header(file, name)
        if known is not None:
            # Said before anybody types a passphrase.
            with kept_still(state_folder(known)):
                check_place(state_folder(known), force=wish.force)
        archive = SealedReader(file, header, wish.passphrase(), name)
        contents = read_contents(archive, name)
        newest = steps()[-1][0]
        if contents.schema > newest:
            raise BackupRefused("newer", name, f"a store of schema {contents.schema}, this release knows {newest}")
        small = {entry.name: archive.exactly(entry.size) for entry in contents.files[:-1]}
        settings = known or _settings_in(small, wish)
        if settings.name != contents.site:
            raise BackupRefused("other_site", name, f"site {contents.site}, the settings name {settings.name}")
        state = state_folder(settings)
        with kept_still(state):
            check_place(state, force=wish.force)
            with staged(state) as folder:
                restored = _filled(folder, archive, contents, small, wish, clock, progress)
                aside = put_in_place(folder, state, iso(clock.wall()).replace(":", "").replace("-", ""))
    if known is None:
        write_settings(small, wish.config, settings, state)
    return Restored(
        contents=contents,
        folder=state,
        names=restored.names,
        devices=restored.devices,
        new_keys=restored.new_keys,
        fingerprint=restored.fingerprint,
        aside=aside,
        settings_written=known is None,
    )


@dataclass(frozen=True, slots=True)
class _Filled:
    names: tuple[str, ...]
    devices: Mapping[str, int]
    new_keys: bool
    fingerprint: str


def _settings_in(small: Mapping[str, bytes], wish: Wish) -> StationSettings:
    """The settings in a backup, for a machine that has none. Raises ``UsageInvalid``."""
    if SETTINGS not in small:
        raise UsageInvalid(
            "there are no settings that name a site, and none in the backup",
            error_id="backup.no_settings",
            where=str(wish.config),
            allowed="a settings file that names the site of the backup",
            hint="write one, or give its path: --config FILE",
        )
    with tempfile.TemporaryDirectory(prefix="outstation-restore-") as folder:
        return load(StationSettings, write_copies(small, Path(folder)))


def _filled(
    folder: Path,
    archive: SealedReader,
    contents: Contents,
    small: Mapping[str, bytes],
    wish: Wish,
    clock: Clock,
    progress: Progress,
) -> _Filled:
    """Everything in its place in a folder nobody uses yet, and verified as the station will."""
    new_keys = wish.new_keys or not contents.has_keys
    wanted = {*TRUST, *KEYS, SALT_KEY} - ({*KEYS, SALT_KEY, CERTIFICATE} if new_keys else set())
    try:
        for file_name, body in small.items():
            if file_name in wanted or is_salt_master(file_name):
                for parent in reversed((folder / file_name).relative_to(folder).parents):
                    (folder / parent).mkdir(mode=0o700, exist_ok=True)
                write_private(folder / file_name, body)
        (folder / COPIES).mkdir(mode=0o700)
        write_copies(small, folder / COPIES)
        store = folder / STORE
        with os.fdopen(os.open(store, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as out:
            copied = copy(archive.read, out.write, contents.files[-1].size, lambda part: progress("decrypting", part))
    except OSError as error:
        raise _not_unpacked(folder, contents, error.strerror or str(error)) from None
    if copied != contents.files[-1].size:
        raise BackupRefused(
            "malformed", str(wish.source), f"{copied:,} bytes of a store of {contents.files[-1].size:,}"
        )
    archive.finish()
    progress("checking the store", 0.0)
    check_store(store, str(wish.source))
    curve = load_or_make(folder / "curve.key")
    # Raises for root lists that prove nothing, and makes the keys that are missing.
    authority = Authority(folder, role="gateway", site=contents.site, curve=curve, clock=clock)
    told = Restoration(
        site=contents.site,
        taken=contents.taken,
        at=clock.wall(),
        user=wish.user,
        kid=authority.signing.kid,
        new_keys=new_keys,
    )
    try:
        renew_store(store, told)
    except sqlite3.Error as error:
        raise _not_unpacked(folder, contents, str(error)) from None
    return _Filled(_names(store), devices_of(store), new_keys, fingerprint(curve.public))


def _not_unpacked(folder: Path, contents: Contents, found: str) -> StationFailed:
    return StationFailed(
        "the backup could not be unpacked",
        error_id="backup.not_unpacked",
        where=str(folder),
        found=found,
        allowed=f"{2 * contents.size:,} bytes free",
        hint=f"df -h {folder.parent}",
    )


def _names(store: Path) -> tuple[str, ...]:
    marks = ", ".join("?" * len(BELONGING))
    with closing(sqlite3.connect(store)) as connection:
        rows = connection.execute(
            f"SELECT name FROM enrolled WHERE state IN ({marks}) ORDER BY name",  # noqa: S608 - only places in it
            BELONGING,
        )
        return tuple(name for (name,) in rows)
