"""``outstation-agent check``: is this device healthy, and if not, what to do. Each check looks and says one thing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from device_agent import RELEASED, standing
from device_agent.clock import Clock, iso
from device_agent.command_line.safe_text import safe
from device_agent.config import AgentSettings, load
from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, ConfigInvalid
from device_agent.exhausted import exhausted
from device_agent.host_port import host_port
from device_agent.identity import Identity, IdentityFile
from device_agent.trust.device_certificate import read_device_certificate

CONNECT_SECONDS = 5.0
ASK_SECONDS = 10.0
DAY_SECONDS = 86_400.0
EXPIRES_SOON_SECONDS = 7 * DAY_SECONDS
WARN_FREE_BYTES = 16 * 2**20
ERROR_FREE_BYTES = 1 * 2**20
"""Below it a journal cannot be written anew; above the other one it can grow to its bound twice."""

OPEN_TO_OTHERS = 0o077
CANNOT_WRITE = "cannot be written"
NOT_RETURNED = "not returned since"
"""As the agent says of a file that it cannot write (``write_health``)."""

PACKAGE = "outstation-agent"


@dataclass(frozen=True)
class Finding:
    """One finding, with the fields that a station's have. ``fix`` is a command or a setting."""

    check: str
    severity: Literal["ok", "info", "warning", "error"]
    finding: str
    meaning: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Looked:
    """What all checks look at."""

    table: AgentSettings
    folder: Path
    identity: Identity | None
    now: float


def main(config: Path, *, as_json: bool) -> int:
    """Print what every check found; the exit status. Raises ``ConfigInvalid`` for settings that are wrong."""
    table = load(config)
    findings = every(table, Clock().wall())
    for finding in findings:
        if as_json:
            sys.stdout.write(json.dumps({"type": "finding", **asdict(finding)}, separators=(",", ":")) + "\n")
            continue
        sys.stdout.write(f"{finding.severity:<8}  {finding.check:<16}  {safe(finding.finding)}\n")
        for name, words in (("means", finding.meaning), ("fix", finding.fix)):
            if words and finding.severity != "ok":
                sys.stdout.write(f"{'':<28}{name + ':':<7}{safe(words)}\n")
    return EXIT_NOT_ALL_OK if any(finding.severity == "error" for finding in findings) else EXIT_OK


def every(table: AgentSettings, now: float) -> list[Finding]:
    """What every check finds at this time, in seconds since 1970."""
    folder = Path(table.state_dir)
    try:
        identity = IdentityFile(folder).load()
    except ConfigInvalid as error:
        damaged = Finding(
            "identity", "error", error.what, "this device can prove to nobody who it is", error.hint or ""
        )
        return [damaged, *(check(Looked(table, folder, None, now)) for check in (clock, state, disk, files))]
    looked = Looked(table, folder, identity, now)
    return [check(looked) for check in CHECKS]


def clock(looked: Looked) -> Finding:
    """No time before the release is the present."""
    if looked.now >= RELEASED:
        return Finding("clock", "ok", iso(looked.now))
    return Finding(
        "clock",
        "warning",
        f"it shows {iso(looked.now)}, before this release was made",
        "jobs still come and expire as they should; times in logs and the schedule are wrong",
        "timedatectl set-ntp true, or give it an NTP server",
    )


def state(looked: Looked) -> Finding:
    """The state directory is ours alone."""
    folder = looked.folder
    try:
        mode = folder.stat().st_mode
    except OSError as error:
        return Finding(
            "state",
            "error",
            f"{folder}: {error.strerror or error}",
            "there is nowhere to keep keys and jobs",
            f"install -d -m 700 {folder}",
        )
    if not os.access(folder, os.W_OK):
        return Finding(
            "state", "error", f"{folder} cannot be written by this user", "jobs are refused", "run this as root"
        )
    if mode & OPEN_TO_OTHERS:
        return Finding(
            "state",
            "warning",
            f"{folder} is open to others (mode {mode & 0o777:o})",
            "others on this device may read what is in there; the keys in it have modes of their own",
            f"chmod 700 {folder}",
        )
    return Finding("state", "ok", str(folder))


def disk(looked: Looked) -> Finding:
    """The journal has room."""
    try:
        free = shutil.disk_usage(looked.folder).free
    except OSError as error:
        return Finding("disk", "error", f"{looked.folder}: {error.strerror or error}", "see state", "see state")
    words = f"{free / 2**20:,.0f} MiB free at {looked.folder}"
    if free >= WARN_FREE_BYTES:
        return Finding("disk", "ok", words)
    return Finding(
        "disk",
        "warning" if free >= ERROR_FREE_BYTES else "error",
        words,
        "when it is full no job starts here, and events wait in memory and are dropped",
        f"du -xh {looked.folder} / | sort -h | tail",
    )


def files(looked: Looked) -> Finding:
    """The files in which jobs and events are kept can be written: the agent has said so, and it is tried here."""
    said = standing.sentence(looked.folder) if standing.running(looked.folder) else ""
    failing = [part for part in said.split("; ") if CANNOT_WRITE in part]
    if not failing and os.access(looked.folder, os.W_OK):
        failing = _tried(looked.folder)
    hung = [part for part in said.split("; ") if NOT_RETURNED in part]
    if not failing and hung:
        return Finding(
            "files",
            "warning",
            "; ".join(hung),
            "jobs that use these folders time out, or fail as busy; all others run",
            "findmnt; detach the disk that does not answer with umount -l and its folder",
        )
    if not failing:
        return Finding("files", "ok", "jobs and events can be kept")
    return Finding(
        "files",
        "error",
        "; ".join(failing),
        "no job starts here, since a crash would forget that it ran; what ran is told to the gateway as long as the"
        " agent runs; events that are fired are refused",
        f"look at the disk: dmesg -T | tail -n 50; findmnt -T {looked.folder}; df -h {looked.folder};"
        f" df -i {looked.folder}",
    )


def _tried(folder: Path) -> list[str]:
    """Write, flush and remove a file there; why that failed."""
    path = folder / f"check-{os.getpid()}"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, b"x")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            path.unlink()
    except OSError as error:
        found = exhausted(error, folder)
        return [f"a file {CANNOT_WRITE} in {folder}: {found.what if found is not None else error.strerror or error}"]
    return []


def identity(looked: Looked) -> Finding:
    """It belongs to a site, and can prove it."""
    own = looked.identity
    if own is None or not own.joined:
        return Finding(
            "identity",
            "error",
            "this device belongs to no site" + (f"; its fingerprint is {own.fingerprint}" if own else ""),
            "no job comes here",
            "on the gateway: outstation keys token new; here: outstation-agent join 'TOKEN'",
        )
    expires = read_device_certificate(own.certificate).expires
    words = f"{own.name} of {own.site}, fingerprint {own.fingerprint}, certificate until {iso(expires)}"
    left = expires - looked.now
    if left > EXPIRES_SOON_SECONDS:
        return Finding("identity", "ok", words)
    return Finding(
        "identity",
        "warning" if left > 0 else "error",
        words,
        "the gateway renews it when the device is connected; it has not done so",
        "mend the connection; or on the gateway: outstation keys token new, and join again",
    )


def agent(looked: Looked) -> Finding:
    """It runs."""
    if standing.running(looked.folder):
        return Finding("agent", "ok", "it runs")
    return Finding("agent", "error", "it does not run", "no job comes here", "systemctl start outstation-agent")


def connection(looked: Looked) -> Finding:
    """It is connected; where it is not, whether the broker can be reached at all."""
    said = standing.sentence(looked.folder) if standing.running(looked.folder) else ""
    if said.startswith(standing.CONNECTED):
        return Finding("connection", "ok", said)
    own, broker = looked.identity, looked.table.broker
    host = broker.host or (own.host if own is not None else "")
    port = (own.port if own is not None and own.joined else broker.port) or 0
    if not host or not port:
        return Finding("connection", "info", said or "no broker is known before this device has joined")
    try:
        socket.create_connection((host, port), CONNECT_SECONDS).close()
    except OSError as error:
        return Finding(
            "connection",
            "error",
            f"the broker at {host_port(host, port)} cannot be reached: {error.strerror or error}",
            "no job comes here; what ran is kept and told later",
            "is the gateway on, and is its address right? broker: in the settings has another one",
        )
    return Finding(
        "connection",
        "error",
        f"the broker at {host_port(host, port)} answers; {said or 'the agent has not said more'}",
        "no job comes here; what ran is kept and told later",
        "journalctl -u outstation-agent; on the gateway: outstation check",
    )


def package(_: Looked) -> Finding:
    """What dpkg has of it is whole. A device that lost its power in an upgrade may have half of it."""
    asked = ["dpkg-query", "--show", "--showformat=${Status}\t${Version}", PACKAGE]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Finding("package", "ok", "it did not come by dpkg")
    status, version = done.stdout.split("\t")[0], done.stdout.split("\t")[-1]
    if done.returncode or not status.startswith("install "):
        return Finding("package", "ok", "it did not come by dpkg")
    if status == "install ok installed":
        return Finding("package", "ok", f"release {version}")
    # From this word on dpkg takes nothing but the whole package again.
    cut = " reinstreq " in status
    return Finding(
        "package",
        "error",
        f"release {version} is half installed: dpkg says {status!r}",
        "its installation was cut short; until it is finished apt may refuse every other package",
        f"apt install --reinstall ./{PACKAGE}_{version}_*.deb" if cut else "dpkg --configure -a",
    )


CHECKS: tuple[Callable[[Looked], Finding], ...] = (agent, connection, identity, clock, state, disk, files, package)
