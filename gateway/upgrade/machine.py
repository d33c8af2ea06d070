"""The machine as the guard sees it and changes it: dpkg, systemd and the API of each station on it."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from device_agent import package_lock
from gateway.upgrade.judging import Unit
from gateway.upgrade.repack import repack

PACKAGE: Final = "outstation"
UNITS: Final = ("outstation-broker.service", "outstation-gateway.service", "outstation-master.service")
SOCKETS: Final[Mapping[str, Path]] = {
    "outstation-gateway.service": Path("/run/outstation/gateway.sock"),
    "outstation-master.service": Path("/run/outstation/master.sock"),
}
PIN: Final = Path("/etc/apt/preferences.d/outstation-rolled-back.pref")
ASK_SECONDS: Final = 20.0
COMMAND_SECONDS: Final = 60.0
PUT_BACK_SECONDS: Final = 900.0
ANSWER_BYTES: Final = 1024 * 1024
ROLLBACK_VARIABLE: Final = "OUTSTATION_ROLLBACK"
"""In the environment of the package scripts while the guard puts a package back: nothing is kept and nobody judges."""


def is_booted() -> bool:
    """Whether systemd runs this machine (sd_booted(3))."""
    return Path("/run/systemd/system").is_dir()


def command(words: Sequence[str], seconds: float = COMMAND_SECONDS, **environment: str) -> tuple[int, str]:
    """Run a command: its exit status and the end of what it said. A command that cannot be run or is late is 124."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8", **environment},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 124, str(error)
    return done.returncode, done.stdout


def package() -> tuple[str, str]:
    """Status and version of our package; empty when dpkg does not know it."""
    status, said = command(["dpkg-query", "--show", "--showformat=${Status}\t${Version}", PACKAGE])
    found, _, version = said.strip().partition("\t")
    return (found, version) if status == 0 else ("", "")


def is_busy() -> bool:
    """Whether a package manager works. Asked without taking its lock, which would make the next one fail."""
    return package_lock.is_busy()


def unit(name: str) -> Unit:
    """One unit, with what its API says."""
    wanted = ("LoadState", "ActiveState", "SubState", "Result", "NRestarts", "MainPID")
    _, said = command(["systemctl", "show", f"--property={','.join(wanted)}", name])
    shown = dict(line.partition("=")[::2] for line in said.splitlines())
    if shown.get("LoadState") in ("not-found", "masked"):
        return Unit("missing")
    active = shown.get("ActiveState", "unknown")
    answers, errors = (True, ()) if active != "active" or name not in SOCKETS else ask(SOCKETS[name])
    return Unit(
        active=active,
        sub=shown.get("SubState", ""),
        result=shown.get("Result", ""),
        restarts=_number(shown.get("NRestarts")),
        pid=_number(shown.get("MainPID")),
        answers=answers,
        errors=errors,
    )


def ask(path: Path) -> tuple[bool, tuple[str, ...]]:
    """Whether the API at a socket answers, and the checks that find an error."""
    connection = http.client.HTTPConnection("outstation", timeout=ASK_SECONDS)
    try:
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(ASK_SECONDS)
        connection.sock.connect(str(path))
        connection.request("GET", "/check")
        answer = connection.getresponse()
        found = json.loads(answer.read(ANSWER_BYTES))
        if answer.status != http.client.OK:
            return False, ()
        findings = found["findings"]
        return True, tuple(sorted({each["check"] for each in findings if each["severity"] == "error"}))
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return False, ()
    finally:
        connection.close()


def put_back(file: Path) -> tuple[bool, str]:
    """Install a package that is on this disk, and nothing else; whether that went well, and what dpkg said last."""
    return _dpkg("--install", str(file))


def set_up() -> tuple[bool, str]:
    """Finish what dpkg has unpacked of our package; whether that went well, and what dpkg said last."""
    return _dpkg("--configure", PACKAGE)


def pack(file: Path) -> None:
    """Write our package, as it is installed, into a file. Raises ``NotKept``."""
    repack(PACKAGE, file)


def _dpkg(*words: str) -> tuple[bool, str]:
    status, said = command(
        ["dpkg", "--force-confdef", "--force-confold", *words],
        PUT_BACK_SECONDS,
        DEBIAN_FRONTEND="noninteractive",
        **{ROLLBACK_VARIABLE: "1"},
    )
    return status == 0, said.strip()[-400:]


def start(units: Sequence[str]) -> None:
    """Start units anew, whatever became of them before."""
    for words in (["systemctl", "daemon-reload"], ["systemctl", "reset-failed", *units]):
        command(words)
    command(["systemctl", "start", "--no-block", *units])


def turn_away(version: str) -> None:
    """Have apt not take this version again by itself; a later one it takes (apt_preferences(5)). Raises ``OSError``."""
    if PIN.parent.is_dir():
        PIN.write_text(
            "# Written by the upgrade guard of outstation: this version was taken back. Remove it to allow it again.\n"
            f"Package: {PACKAGE}\nPin: version {version}\nPin-Priority: -1\n",
            encoding="utf-8",
        )


def allow_again() -> None:
    """No version is turned away any more."""
    PIN.unlink(missing_ok=True)


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else 0
