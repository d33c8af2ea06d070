"""The files outside the state folder that belong to a gateway: its settings, its policy, and the pieces of both."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from device_agent.errors import StationFailed
from gateway.backup.contents import POLICY, POLICY_PIECES, SETTINGS, SETTINGS_PIECES, SMALL_BYTES, is_piece
from gateway.config import StationSettings
from gateway.fleet.private_file import read_private, write_private

COPY: Final = "gateway.yaml"
POLICY_COPY: Final = "policy.yaml"
RESTORED: Final = "00-restored"
"""The piece that the settings file of a backup becomes, where there is one already."""


def settings_files(settings: StationSettings, config: Path) -> dict[str, bytes]:
    """Every one that there is, by its name in a backup. Raises ``ConfigInvalid`` for what cannot be read."""
    places = [(config, SETTINGS, SETTINGS_PIECES)]
    if settings.policy is not None:
        places.append((Path(settings.policy), POLICY, POLICY_PIECES))
    found: dict[str, bytes] = {}
    for path, main, pieces in places:
        folder = pieces_of(path)
        named = {main: path}
        for piece in sorted(folder.glob("*.yaml")) if folder.is_dir() else []:
            if is_piece(f"{pieces}{piece.name}"):
                named[f"{pieces}{piece.name}"] = piece
        bodies = {name: read_private(file, SMALL_BYTES) for name, file in named.items()}
        found |= {name: body for name, body in bodies.items() if body is not None}
    return found


def pieces_of(path: Path) -> Path:
    """The folder of the pieces of a file."""
    return path.with_name(f"{path.stem}.d")


def write_copies(small: Mapping[str, bytes], folder: Path) -> Path:
    """Lay all of them into one folder; returns the path of the settings there. Raises ``OSError``."""
    for path, body in _placed(small, folder / COPY, folder / POLICY_COPY, folder / COPY):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_private(path, body)
    return folder / COPY


def write_settings(small: Mapping[str, bytes], config: Path, settings: StationSettings, state: Path) -> None:
    """Write them where the gateway looks for them; what is there already stays. Raises ``StationFailed``.

    Over a settings file that is there the main one of the backup is laid as the first piece. The gateway's user must be
    able to read them, and nobody else: passwords may be in them.
    """
    policy = Path(settings.policy) if settings.policy is not None else None
    main = _first_piece(small, config) if config.exists() else config
    for path, body in _placed(small, config, policy, main):
        if path.exists():
            continue
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_private(path, body)
            if os.geteuid() == 0:
                os.chown(path, 0, state.stat().st_gid)
            path.chmod(0o640)
        except OSError as error:
            raise _not_written(path, state, error.strerror or str(error)) from None
        except StationFailed as failed:
            raise _not_written(path, state, failed.found or "") from None


def _first_piece(small: Mapping[str, bytes], config: Path) -> Path:
    """A piece that goes before all others of the backup."""
    name = RESTORED
    while f"{SETTINGS_PIECES}{name}.yaml" in small:
        # A hyphen is before the point of the one that was restored before.
        name += "-1"
    return pieces_of(config) / f"{name}.yaml"


def _not_written(path: Path, state: Path, found: str) -> StationFailed:
    return StationFailed(
        "the backup is restored, but its settings could not be written",
        error_id="backup.settings",
        where=str(path),
        found=found,
        allowed="a folder that this user may write",
        hint=f"copy them from {state / 'settings-from-backup'}",
    )


def _placed(small: Mapping[str, bytes], config: Path, policy: Path | None, main: Path) -> Iterator[tuple[Path, bytes]]:
    """Each file of them with the path where it belongs."""
    for name, body in small.items():
        if name == SETTINGS:
            yield main, body
        elif name.startswith(SETTINGS_PIECES):
            yield pieces_of(config) / name.removeprefix(SETTINGS_PIECES), body
        elif policy is not None and name == POLICY:
            yield policy, body
        elif policy is not None and name.startswith(POLICY_PIECES):
            yield pieces_of(policy) / name.removeprefix(POLICY_PIECES), body
