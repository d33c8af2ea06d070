"""The installed package as a file again: dpkg keeps no archive of what it installs.

From dpkg's own list of files and its control files, after every file was held against its sum. So the file is there
whichever way the package came: apt, unattended-upgrades, or ``dpkg -i``.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

Run = Callable[[Sequence[str]], str]
"""Runs a command and gives back its output. Raises ``NotKept`` when it fails."""

LEFT_OUT: Final = ("Status", "Config-Version", "Conffiles")
"""Fields of dpkg's status file that no package has."""

BUILD_SECONDS: Final = 300.0
ROOM: Final = 3
"""So many times the size of what is installed must be free: a copy of it, the package of that, and what is to come."""


class NotKept(Exception):
    """The package could not be kept, and why. The upgrade goes on without a way back."""


def run(command: Sequence[str]) -> str:
    """Run a command. Raises ``NotKept``."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotKept(f"{command[0]}: {error}") from None
    if done.returncode:
        raise NotKept(f"{' '.join(command[:3])}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


def repack(package: str, target: Path, root: Path = Path("/"), run: Run = run) -> None:
    """Write the installed package into a file. Raises ``NotKept``; then there is no such file."""
    changed = run(["dpkg", f"--root={root}", "--verify", package]).strip()
    # A settings file that was edited has a "c" in its line, and goes along as it is.
    damaged = [line for line in changed.splitlines() if not re.match(r"\S+\s+c\s", line)]
    if damaged:
        raise NotKept(f"its files are not those of the package any more: {damaged[0]}")
    query = ["dpkg-query", f"--admindir={root / 'var/lib/dpkg'}"]
    status = run([*query, "--status", package])
    listed = run([*query, "--listfiles", package]).splitlines()
    size = _installed_bytes(status)
    free = shutil.disk_usage(target.parent).free
    if free < ROOM * size:
        raise NotKept(f"{free >> 20} MiB free at {target.parent}, {ROOM * size >> 20} MiB wanted")
    staging, fresh = target.with_name(f".{target.name}.tree"), target.with_name(f".{target.name}.new")
    shutil.rmtree(staging, ignore_errors=True)
    try:
        staging.mkdir(mode=0o755)
        _lay_out(listed, root, staging)
        control = staging / "DEBIAN"
        control.mkdir(mode=0o755)
        for name in run([*query, "--control-list", package]).split():
            body = run([*query, "--control-show", package, name])
            (control / name).write_text(body, encoding="utf-8")
            (control / name).chmod(0o755 if name in ("preinst", "postinst", "prerm", "postrm", "config") else 0o644)
        (control / "control").write_text(control_of(status), encoding="utf-8")
        run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(staging), str(fresh)])
        fresh.replace(target)
    except OSError as error:
        raise NotKept(str(error)) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        fresh.unlink(missing_ok=True)


def control_of(status: str) -> str:
    """The control file of a package from its entry in dpkg's status."""
    kept: list[str] = []
    leaving = False
    for line in status.splitlines():
        if not line.startswith((" ", "\t")):
            leaving = line.partition(":")[0] in LEFT_OUT
        if not leaving and line:
            kept.append(line)
    return "\n".join(kept) + "\n"


def _installed_bytes(status: str) -> int:
    found = re.search(r"^Installed-Size: (\d+)$", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _lay_out(listed: Sequence[str], root: Path, staging: Path) -> None:
    """Copy what is listed. What has something below it is a folder, also where the machine has a link (/lib)."""
    names = [line.strip("/") for line in listed if line.startswith("/") and line not in ("/", "/.")]
    folders = {parent for name in names for parent in _parents(name)}
    for name in sorted(names):
        source, copy = root / name, staging / name
        try:
            found = source.lstat()
        except FileNotFoundError:
            raise NotKept(f"{source} is missing") from None
        if name in folders or stat.S_ISDIR(found.st_mode):
            copy.mkdir(mode=0o755, parents=True, exist_ok=True)
            copy.chmod(stat.S_IMODE(source.stat().st_mode))
        elif stat.S_ISLNK(found.st_mode):
            copy.symlink_to(source.readlink())
        elif stat.S_ISREG(found.st_mode):
            shutil.copyfile(source, copy)
            copy.chmod(stat.S_IMODE(found.st_mode))
            # The times are in the package; the same bits are packed from the same files.
            os.utime(copy, ns=(found.st_mtime_ns, found.st_mtime_ns))
        else:
            raise NotKept(f"{source} is no file")


def _parents(name: str) -> list[str]:
    return [str(parent) for parent in Path(name).parents if str(parent) != "."]
