"""What the machine says: versions, disks, units, the end of the journal, and who owns which file."""

from __future__ import annotations

import grp
import importlib.metadata
import os
import platform
import pwd
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from device_agent import __version__
from device_agent.clock import iso

COMMAND_SECONDS: Final = 20.0
OUTPUT_BYTES: Final = 2 * 1024 * 1024
FILES_LISTED: Final = 5000
FILES_IN_FOLDER: Final = 1000

COMMANDS: Final[dict[str, Sequence[str]]] = {
    "units.txt": ("systemctl", "status", "--no-pager", "--full", "--lines=0", "outstation-*"),
    "disks.txt": ("df", "--human-readable", "--print-type"),
    "clock.txt": ("timedatectl", "show"),
    "package.txt": (
        "dpkg-query",
        "--show",
        "--showformat=${Package} ${Version} ${Status}\n",
        "outstation*",
        "mosquitto",
    ),
}
FOLDERS: Final = (Path("/etc/outstation"), Path("/run/outstation"), Path("/var/cache/outstation"))


def command(words: Sequence[str]) -> str:
    """What a command says, or why it says nothing. Bounded in time and in size; the end of it counts."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_SECONDS,
            check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{words[0]}: {error}\n"
    return done.stdout[-OUTPUT_BYTES:].decode("utf-8", "replace")


def journal(lines: int) -> str:
    """The last lines of our units."""
    return command(
        ("journalctl", "--no-pager", "--quiet", "--output=short-iso", f"--lines={lines}", "--unit=outstation-*")
    )


def versions() -> dict[str, Any]:
    """What runs here."""
    names = ("aiomqtt", "asyncssh", "cbor2", "cryptography", "msgspec", "pyzmq", "starlette", "uvicorn", "uvloop")
    packages = {}
    for name in names:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            packages[name] = "not installed"
    return {
        "outstation": __version__,
        "python": sys.version.split()[0],
        "sqlite": sqlite3.sqlite_version,
        "packages": packages,
        "kernel": platform.release(),
        "machine": platform.machine(),
        "system": _os_release(),
        "mosquitto": next(iter(command(("mosquitto", "-h")).splitlines()), ""),
    }


def memory() -> dict[str, str]:
    """Load and memory, as the kernel shows them."""
    found = {}
    for name in ("loadavg", "uptime", "meminfo"):
        try:
            found[name] = (Path("/proc") / name).read_text(encoding="ascii")[:4096]
        except OSError as error:
            found[name] = str(error)
    return found


def files(folders: Sequence[Path]) -> str:
    """Mode, owner, size and time of each file in these folders; not what is in them."""
    lines: list[str] = []
    for folder in folders:
        for path in _below(folder):
            if len(lines) >= FILES_LISTED:
                return "\n".join([*lines, f"(more than {FILES_LISTED} files)", ""])
            lines.append(_listed(path))
    return "\n".join([*lines, ""])


def _below(folder: Path) -> Iterator[Path]:
    """A folder and what is in it, folder by folder; links are not followed."""
    yield folder
    waiting = [folder]
    while waiting:
        inner = waiting.pop()
        try:
            entries = sorted(inner.iterdir())
        except OSError:
            continue
        yield from entries[:FILES_IN_FOLDER]
        waiting += [path for path in entries[:FILES_IN_FOLDER] if path.is_dir() and not path.is_symlink()]


def _listed(path: Path) -> str:
    try:
        found = path.lstat()
    except OSError as error:
        return f"? {path}: {error.strerror}"
    owner = f"{_user(found.st_uid)}:{_group(found.st_gid)}"
    return f"{stat.filemode(found.st_mode)} {owner:<24} {found.st_size:>12} {iso(found.st_mtime)} {path}"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _os_release() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""
