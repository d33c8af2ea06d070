"""How an agent does, in a sentence: in a file for ``outstation-agent status``, and for whoever else is told."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
from pathlib import Path
from typing import Final

from device_agent.config import load
from device_agent.device import Device
from device_agent.disk_threads import DiskThreads
from device_agent.durable import open_regular
from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK
from device_agent.identity import Identity, IdentityFile
from device_agent.mqtt import MqttLink
from device_agent.state_folder import LOCK
from device_agent.write_health import WriteHealth

FILE: Final = "status"
CONNECTED: Final = "connected"
"""How the sentence of an agent begins that has its gateway."""

BYTES: Final = 2048


class Standing:
    """Keeps the sentence: written when it is another one than before, and not synced, as a start says a new one."""

    def __init__(self, folder: Path, *others: WriteHealth | DiskThreads) -> None:
        self._path = folder / FILE
        self._others = others
        self._kept = ""
        self.said = ""

    async def sentence(self) -> str:
        """What was said last, for whoever asks again and again."""
        return self.said or "starts"

    def say(self, sentence: str) -> None:
        """Let this be how it is now, with what is wrong at disks. A disk that fails costs the file alone."""
        self.said = "; ".join(filter(None, (sentence, *(other.words() for other in self._others))))
        if self.said == self._kept:
            return
        beside = self._path.with_name(f"{FILE}.new")
        with contextlib.suppress(OSError):
            beside.write_text(self.said + "\n", encoding="utf-8")
            beside.replace(self._path)
            self._kept = self.said


def how(identity: Identity, device: Device | None, link: MqttLink | None) -> str:
    """How a device of a site does; empty while it belongs to none."""
    if device is None or link is None:
        return ""
    whose = f"{identity.name} of {identity.site}"
    if not link.state.connected:
        return f"not connected, {whose}: the broker at {link.address}: {link.state.last_error or 'no answer yet'}"
    if not device.welcomed:
        return f"not connected, {whose}: the broker at {link.address} answers, the gateway has not yet"
    return f"{CONNECTED} to {link.address} as {whose}"


def running(folder: Path) -> bool:
    """Whether an agent has this state directory now."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def sentence(folder: Path) -> str:
    """What the agent that has this directory said last of how it does; empty when it said nothing."""
    try:
        with open_regular(folder / FILE) as file:
            return file.read(BYTES).decode(errors="replace").strip()
    except OSError:
        return ""


def show(config: Path, *, as_json: bool) -> int:
    """Say whether the agent runs and is connected; the exit status. Raises ``ConfigInvalid``."""
    folder = Path(load(config).state_dir)
    identity = IdentityFile(folder).load()
    runs = running(folder)
    said = sentence(folder) if runs else ""
    connected = said.startswith(CONNECTED)
    facts = {
        "name": identity.name if identity is not None else "",
        "site": identity.site if identity is not None else "",
        "running": runs,
        "connected": connected,
        "status": said or ("it starts" if runs else "the agent does not run: systemctl start outstation-agent"),
    }
    if as_json:
        sys.stdout.write(json.dumps(facts, separators=(",", ":")) + "\n")
    else:
        words = {True: "yes", False: "no", "": "-"}
        sys.stdout.write("".join(f"{name + ':':<11}{words.get(fact, fact)}\n" for name, fact in facts.items()))
    return EXIT_OK if connected else EXIT_NOT_ALL_OK
