"""What a join leaves in the settings: the gateway's name, where its broker listens, and masters without a fleet.

It goes into a piece of its own beside the settings, ``gateway.d/50-join.yaml``, so that what people wrote stays as they
wrote it. The file belongs to whoever may change the settings, and everybody may read it: there is no secret in it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from device_agent.durable import synced
from device_agent.errors import StationFailed, UsageInvalid
from device_agent.settings import load, says
from gateway.config import StationSettings
from gateway.fleet.join_file import JoinWish
from gateway.fleet.join_words import JOIN

PIECE = "50-join.yaml"
HEAD = "# Written by `outstation gateway join`; what is in pieces with a later name goes before it.\n"
EMPTY = "# The gateway of this site; what it joined with is in gateway.d/50-join.yaml.\n"
FILE_MODE = 0o644
FOLDER_MODE = 0o755


def name_of(config: Path) -> str:
    """The name that the settings give this gateway; empty for none. Raises ``ConfigInvalid``."""
    return load(StationSettings, config).name if config.exists() and says(config, "name") else ""


def write_wish(config: Path, wish: JoinWish) -> Path:
    """Put a wish into the settings, which are made when there are none; the file it stands in.

    Raises ``UsageInvalid`` for a gateway that has another name, ``ConfigInvalid`` when the settings would be wrong with
    it, and ``StationFailed`` when a file cannot be written. In each case the settings are what they were.
    """
    known = name_of(config)
    if known not in ("", wish.site):
        raise UsageInvalid(
            "this gateway is the gateway of another site",
            error_id="join.other_site",
            where=str(config),
            found=known,
            allowed=f"{known}, or a gateway without a name",
            hint=f"outstation gateway join, with the site {known}; for another site begin with an empty state folder"
            " and no name in the settings",
        )
    said: dict[str, Any] = {"name": wish.site}
    if wish.broker.host is not None:
        said["broker"] = {"host": wish.broker.host}
    if wish.masters and wish.fleet is None:
        said["masters"] = [{"address": each.address, "key": each.key} for each in wish.masters]
    piece = config.with_name(f"{config.stem}.d") / PIECE
    text = HEAD + yaml.safe_dump(said, sort_keys=False, allow_unicode=True)
    try:
        if not config.exists():
            _replace(config, EMPTY)
        before = piece.read_text(encoding="utf-8") if piece.exists() else None
        _replace(piece, text)
        try:
            load(StationSettings, config)
        except BaseException:
            if before is None:
                piece.unlink()
            else:
                _replace(piece, before)
            raise
    except OSError as error:
        raise StationFailed(
            "the settings cannot be written",
            error_id="join.settings",
            where=str(error.filename or piece),
            found=error.strerror or str(error),
            allowed="a user who may change the settings of this machine",
            hint=JOIN,
        ) from None
    return piece


def _replace(path: Path, text: str) -> None:
    """Put a file in a path's place: a crash leaves the old one or the new one. Raises ``OSError``."""
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
        path.parent.chmod(FOLDER_MODE)
    # A piece is a file that ends in .yaml, so what is not finished counts for nothing.
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, FILE_MODE)
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    fresh.replace(path)
    synced(path.parent)
