"""May the station use its own files, and nobody else its secrets? ``outstation check --fix`` mends it."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from gateway.checks import open_secrets
from gateway.checks.box import Box, user_name
from gateway.checks.finding import Facts, Finding

FOLDER_MODE: Final = 0o700
SECRETS: Final = ("curve.key", "trust.keys", "broker-authority.pem", "gateway.pem")
"""Whoever has one of these is the station."""

OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
LOOKED_AT: Final = 2_000
"""So many files of the state folder are looked at; it has a few dozen."""

NAMED: Final = 8


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with one file or folder, and what it should be."""

    path: Path
    kind: Literal["missing", "owner", "open", "writable", "foreign"]
    found: str
    owner: int
    mode: int = FOLDER_MODE

    @property
    def command(self) -> str:
        """What mends it, for a shell."""
        if self.kind == "missing":
            return f"install -d -m {self.mode:o} -o {user_name(self.owner)} {self.path}"
        if self.kind in ("owner", "foreign"):
            return f"chown -h {user_name(self.owner)} {self.path}"
        return f"chmod {self.mode:o} {self.path}"


async def check(facts: Facts) -> list[Finding]:
    """A finding for each kind of fault."""
    return await asyncio.to_thread(at_rest, facts.box())


def at_rest(box: Box) -> list[Finding]:
    """The same without a station."""
    found = [_finding(box, kind, faults) for kind, faults in _by_kind(faults_of(box)).items()]
    found += open_secrets.look(box)
    return found or [Finding(check="permissions", severity="ok", finding=f"{box.state_dir} is its owner's alone")]


def faults_of(box: Box) -> list[Fault]:
    """Everything that is wrong with the station's own folder, its settings and its policy."""
    return [*_folder(box.state_dir, box.owner()), *_settings(box)]


def _folder(folder: Path, owner: int) -> Iterator[Fault]:
    try:
        found = folder.stat()
    except FileNotFoundError:
        yield Fault(folder, "missing", "it is not there", owner)
        return
    except OSError as error:
        yield Fault(folder, "owner", error.strerror or str(error), owner)
        return
    if found.st_uid != owner:
        yield Fault(folder, "owner", f"it belongs to {user_name(found.st_uid)}", owner)
    if found.st_mode & OTHERS:
        yield Fault(folder, "open", f"its mode is {stat.S_IMODE(found.st_mode):04o}", owner)
    for path, entry in _entries(folder):
        if entry.st_uid != owner:
            yield Fault(path, "owner", f"it belongs to {user_name(entry.st_uid)}", owner)
        if path.name in SECRETS and entry.st_mode & OTHERS:
            yield Fault(path, "open", f"its mode is {stat.S_IMODE(entry.st_mode):04o}", owner, 0o600)


def _entries(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Plain files and folders just below, never through a link."""
    try:
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                if number >= LOOKED_AT:
                    return
                found = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
                    yield Path(entry.path), found
    except OSError:
        # It cannot be entered, and that was said of the folder itself, or it has just gone.
        return


def of_config(box: Box) -> list[Finding]:
    """A finding about the settings file alone, whose path a running station does not know."""
    found = [_finding(box, kind, faults) for kind, faults in _by_kind([*_writable(box.config, box.owner())]).items()]
    return [*found, *open_secrets.look(box)]


def _settings(box: Box) -> Iterator[Fault]:
    yield from _writable(box.config, box.owner())
    if box.settings.policy:
        yield from _writable(Path(box.settings.policy), box.owner())


def _writable(path: Path | None, owner: int) -> Iterator[Fault]:
    """Faults of a file of settings, of its pieces in the folder beside it, and of that folder: one may be added."""
    if path is None:
        return
    folder = path.with_name(f"{path.stem}.d")
    pieces = [each for each, _ in _entries(folder) if each.suffix == ".yaml"]
    for each in (path, folder, *sorted(pieces)):
        try:
            found = each.stat()
        except OSError:
            # That it is not there says whoever reads it.
            continue
        if found.st_uid not in (0, owner, os.geteuid()):
            yield Fault(each, "foreign", f"it belongs to {user_name(found.st_uid)}", 0)
        if found.st_mode & OTHERS_WRITE:
            mode = stat.S_IMODE(found.st_mode)
            yield Fault(each, "writable", f"its mode is {mode:04o}", found.st_uid, mode & ~OTHERS_WRITE)


def _by_kind(faults: list[Fault]) -> dict[str, list[Fault]]:
    kinds: dict[str, list[Fault]] = {}
    for fault in faults:
        kinds.setdefault(fault.kind, []).append(fault)
    return kinds


def _finding(box: Box, kind: str, faults: list[Fault]) -> Finding:
    words, meaning = _WORDS[kind]
    more = f" and {len(faults) - NAMED} more" if len(faults) > NAMED else ""
    named = "; ".join(f"{fault.path}: {fault.found}" for fault in faults[:NAMED])
    return Finding(
        check="permissions",
        # A gateway that was never started has no folder yet: it makes it.
        severity="warning" if kind == "missing" else "error",
        finding=f"{words.format(owner=user_name(box.owner()))}: {named}{more}",
        meaning=meaning,
        fix="outstation check --fix, or: " + "; ".join(fault.command for fault in faults[:NAMED]),
        about=kind,
    )


_WORDS: Final = {
    "missing": ("there is no state folder", "the station has not started here yet, or its state was moved away"),
    "owner": (
        "not all of the station's files belong to {owner}, who runs it",
        "it cannot read or write them, so it does not start, or stops when it needs them",
    ),
    "open": (
        "other users may look at what is the station's alone",
        "who reads its keys can speak in its name to devices and masters",
    ),
    "writable": (
        "other users may write what the station obeys",
        "who writes settings or policy decides what this station does",
    ),
    "foreign": (
        "settings belong to somebody who is neither root nor {owner}",
        "whose file it is writes into it what this station obeys",
    ),
}
