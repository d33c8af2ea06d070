"""Gathers the archive: every piece by itself, so that one that fails leaves the others, and all of it redacted."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from device_agent.clock import Clock, iso
from device_agent.errors import OutstationError, StationFailed, UsageInvalid
from device_agent.settings import written
from device_agent.settings_file import Scalar, Section
from gateway.support import machine
from gateway.support.redaction import Redaction
from gateway.support.settings_shown import hidden, shown
from gateway.support.stored import stored
from gateway.upgrade import record as upgrades

Ask = Callable[[Path, str], bytes]
"""Asks a station at a socket. Raises ``OutstationError`` and ``OSError``."""

PIECE_CHARACTERS: Final = 4 * 1024 * 1024
SECRET_FILE_BYTES: Final = 64 * 1024
KEY_FILES: Final = (
    "trust.keys",
    "curve.key",
    "broker-authority.pem",
    "broker/login",
    "ssh.secrets",
    "salt/gateway.pem",
)
ASKED: Final = {
    "station.json": "/station",
    "check.json": "/check",
    "ledger.json": "/spool",
    "metrics.txt": "/metrics",
    "engines.json": "/engines",
    "returners.json": "/returners",
}


@dataclass(frozen=True, slots=True)
class Station:
    """One station that this machine may run: its settings, state folder and socket."""

    role: str
    config: Path
    state: Path
    socket: Path


@dataclass
class Bundle:
    """What was gathered. ``missing`` says of each piece that is not there why not."""

    name: str
    pieces: dict[str, bytes] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    redacted: int = 0


@dataclass(frozen=True)
class _Settings:
    """The settings of a station as far as they can be read."""

    station: Station
    tree: Section | None
    wrong: str = ""


def station_of(role: str, config: Path) -> Station:
    """Where a station with these settings keeps what it has, also when they are wrong in other places."""
    tree = _read(config)[0]
    entries = tree.entries if tree is not None else {}

    def said(name: str, default: str) -> Path:
        value = entries.get(name)
        return Path(value.text if isinstance(value, Scalar) and value.text else default)

    return Station(
        role, config, said("state_dir", f"/var/lib/outstation/{role}"), said("socket", f"/run/outstation/{role}.sock")
    )


def gather(stations: Sequence[Station], ask: Ask, clock: Clock, lines: int) -> Bundle:
    """Everything, as far as it can be had. Never waits for anything without a bound."""
    settings = [_Settings(station, *_read(station.config)) for station in stations]
    redaction = Redaction(_known(settings))
    bundle = Bundle(f"outstation-support-{iso(clock.wall()).replace(':', '').replace('-', '')}")
    for name, make in _pieces(settings, ask, clock, lines):
        try:
            value = make()
        except (OutstationError, OSError, sqlite3.Error, ValueError) as error:
            what = error.what if isinstance(error, OutstationError) else str(error)
            bundle.missing[name] = redaction.text(what)[:500]
            continue
        if isinstance(value, str):
            text = redaction.text(value[-PIECE_CHARACTERS:])
        else:
            text = json.dumps(redaction.value(value), indent=1, ensure_ascii=False, default=str)[:PIECE_CHARACTERS]
        bundle.pieces[name] = text.encode("utf-8", "replace")
    bundle.redacted = redaction.taken
    about = {
        "made": iso(clock.wall()),
        "stations": [{"role": station.role, "settings": str(station.config)} for station in stations],
        "pieces": {name: len(body) for name, body in bundle.pieces.items()},
        "missing": bundle.missing,
        "redacted": bundle.redacted,
    }
    bundle.pieces["about.json"] = json.dumps(about, indent=1).encode()
    return bundle


def write_bundle(bundle: Bundle, target: Path, *, force: bool) -> int:
    """Write the archive, for its owner alone; its size. Raises ``UsageInvalid`` and ``StationFailed``."""
    if target.exists() and not force:
        raise UsageInvalid(
            "the file is there already",
            where=str(target),
            allowed="a name that is not in use",
            hint="--force replaces it, --out FILE writes another",
        )
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w:gz") as archive:
        for name, piece in sorted(bundle.pieces.items()):
            entry = tarfile.TarInfo(f"{bundle.name}/{name}")
            entry.size, entry.mode = len(piece), 0o600
            archive.addfile(entry, io.BytesIO(piece))
    fresh = target.with_name(f".{target.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(body.getbuffer())
        fresh.replace(target)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise StationFailed(
            "the archive could not be written",
            error_id="support.not_written",
            where=str(target),
            found=error.strerror or str(error),
            allowed="a folder that this user may write, with space left",
            hint="--out /tmp/support.tar.gz",
        ) from None
    return body.getbuffer().nbytes


def _read(config: Path) -> tuple[Section | None, str]:
    """The settings as they are written, and what is wrong with them; what was found there is not told."""
    try:
        return written(config), ""
    except OutstationError as error:
        return None, f"{error.what} ({error.where})"


def _known(settings: Sequence[_Settings]) -> Iterator[str | bytes]:
    """What must not be in the archive, wherever it stands: settings that are not shown, and keys."""
    for each in settings:
        if each.tree is not None:
            yield from hidden(each.tree)
        for name in KEY_FILES:
            with suppress(OSError):
                body = (each.station.state / name).read_bytes()[:SECRET_FILE_BYTES]
                yield body
                yield from (line for line in body.decode("utf-8", "replace").split() if len(line) >= 16)


def _pieces(
    settings: Sequence[_Settings], ask: Ask, clock: Clock, lines: int
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Each piece with what makes it."""
    yield "versions.json", machine.versions
    yield "memory.json", machine.memory
    for name, words in machine.COMMANDS.items():
        yield name, partial(machine.command, words)
    yield "log.txt", lambda: machine.journal(lines)
    yield "upgrade.json", _upgrade
    folders = [*machine.FOLDERS, *(each.station.state for each in settings)]
    yield "files.txt", lambda: machine.files(folders)
    for each in settings:
        yield from _of_station(each, ask, clock)


def _of_station(each: _Settings, ask: Ask, clock: Clock) -> Iterator[tuple[str, Callable[[], Any]]]:
    station = each.station
    yield f"{station.role}/settings.json", lambda: _shown(each)
    yield f"{station.role}/store.json", lambda: stored(station.state / "station.sqlite", clock.monotonic)
    answers = True
    for name, path in ASKED.items():
        if answers:
            yield f"{station.role}/{name}", partial(_asked, ask, station.socket, path)
        answers = station.socket.exists()


def _shown(each: _Settings) -> Any:
    return shown(each.tree) if each.tree is not None else {"(wrong)": each.wrong}


def _upgrade() -> Any:
    last = upgrades.read(upgrades.FOLDER)
    if last is None:
        return {}
    return {name: getattr(last, name) for name in ("state", "before", "after", "reason", "rollbacks", "rejected")}


def _asked(ask: Ask, socket: Path, path: str) -> Any:
    body = ask(socket, path)
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")
