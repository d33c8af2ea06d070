"""The guard: watches the version that came, and puts the one before it back when it does not become healthy.

Runs as root, from ``outstation-upgrade-guard.service``. Started by the package that goes, so that its code is the one
that was healthy; started again at boot when the machine went down meanwhile. It decides once for each upgrade.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from device_agent.clock import Clock
from gateway.upgrade import machine
from gateway.upgrade.judging import INSTALLED, Limits, Seen, Unit, Watch, step
from gateway.upgrade.record import FOLDER, PREVIOUS, UNDER_WAY, Record, read, write
from gateway.upgrade.repack import NotKept

log = logging.getLogger("outstation.upgrade")

LOOK_SECONDS: Final = 2.0
MOST_ATTEMPTS: Final = 2
"""Times that putting back is begun, when the machine goes down in the middle of it."""


class Machine(Protocol):
    """What the guard looks at and does. ``gateway.upgrade.machine`` is the real one."""

    def package(self) -> tuple[str, str]:
        """Status and version of our package."""

    def is_busy(self) -> bool:
        """Whether a package manager works."""

    def unit(self, name: str) -> Unit:
        """One unit."""

    def put_back(self, file: Path) -> tuple[bool, str]:
        """Install a kept package."""

    def set_up(self) -> tuple[bool, str]:
        """Finish what dpkg has unpacked."""

    def pack(self, file: Path) -> None:
        """Keep the package that is installed. Raises ``NotKept``."""

    def start(self, units: Sequence[str]) -> None:
        """Start units anew."""

    def turn_away(self, version: str) -> None:
        """Have apt not take this version again."""

    def allow_again(self) -> None:
        """No version is turned away any more."""


@dataclass
class Guard:
    """One run of the guard. ``pause`` waits for so many seconds."""

    folder: Path
    machine: Machine
    clock: Clock
    pause: Callable[[float], object]
    limits: Limits = field(default_factory=Limits)

    def run(self) -> Record | None:
        """Judge the upgrade that waits for it, and act; what became of it, None when none waits."""
        record = read(self.folder)
        if record is None or record.state not in UNDER_WAY:
            return record
        if record.state == "rolling_back":
            return self._roll_back(record)
        watch = Watch(before=record.before, errors=frozenset(record.errors), begun=self.clock.monotonic())
        while True:
            # Another version may have come meanwhile: the same way back, another name.
            record = read(self.folder) or record
            status, version = self.machine.package()
            seen = Seen(
                at=self.clock.monotonic(),
                busy=self.machine.is_busy(),
                status=status,
                version=version,
                units={name: self.machine.unit(name) for name in record.units},
            )
            watch, verdict = step(watch, seen, self.limits)
            if verdict.todo == "wait":
                self.pause(LOOK_SECONDS)
                continue
            if verdict.todo == "set_up":
                log.warning("%s; setting it up", verdict.why)
                self.machine.set_up()
                continue
            if verdict.todo == "mend":
                return self._mend(record, verdict.why)
            record = replace(record, after=version or record.after)
            if verdict.todo == "roll_back":
                return self._roll_back(record.now("rolling_back", self.clock.wall(), verdict.why))
            if verdict.todo == "healthy":
                self.machine.allow_again()
            return self._ended(record.now(_ENDS[verdict.todo], self.clock.wall(), verdict.why))

    def _roll_back(self, record: Record) -> Record:
        """Put the package before back. Never begun a third time: what cannot be put back is told."""
        if self.machine.package() != (INSTALLED, record.before):
            if failed := self._cannot_begin(record):
                return self._ended(record.now("failed", self.clock.wall(), f"{record.reason}; {failed}"))
            record = replace(record, attempts=record.attempts + 1)
            # On disk before anything is done: whoever starts on it knows that this is the way back.
            write(self.folder, record)
            log.error("%s is not healthy: %s; putting %s back", record.after, record.reason, record.before)
            if failed := self._put_back(record):
                return self._ended(record.now("failed", self.clock.wall(), f"{record.reason}; {failed}"))
        try:
            self.machine.turn_away(record.after)
        except OSError as error:
            log.error("apt may take %s again: %s", record.after, error)
        self.machine.start(record.units)
        serves = self._wait(
            lambda: all(unit.runs and unit.answers for unit in map(self.machine.unit, record.units)),
            self.limits.deadline,
        )
        why = record.reason if serves else f"{record.reason}; {record.before} is back and does not run either"
        return self._ended(record.rolled_back(self.clock.wall(), why))

    def _mend(self, record: Record, why: str) -> Record:
        """The machine went down before the new version was unpacked: make the one before whole. Nobody is to blame."""
        failed = self._cannot_begin(record)
        if not failed:
            record = replace(record, attempts=record.attempts + 1)
            write(self.folder, record)
            log.warning("%s; making %s whole again", why, record.before)
            try:
                if record.state == "keeping":
                    self.machine.pack(self.folder / PREVIOUS)
                failed = self._put_back(record)
            except NotKept as error:
                failed = f"{record.before} cannot be packed: {error}"
        if failed:
            return self._ended(record.now("failed", self.clock.wall(), f"{why}; {failed}"))
        self.machine.start(record.units)
        return self._ended(record.now("withdrawn", self.clock.wall(), f"{why}; {record.before} is whole again"))

    def _cannot_begin(self, record: Record) -> str:
        """Why there is no way back any more; empty when there is."""
        if record.state != "keeping" and not (self.folder / PREVIOUS).is_file():
            return f"{self.folder / PREVIOUS} is gone"
        if record.attempts >= MOST_ATTEMPTS:
            return f"putting {record.before} back was cut short {record.attempts} times"
        return ""

    def _put_back(self, record: Record) -> str:
        """Put the kept package in its place; empty when it is whole then, or what went wrong."""
        self._wait(lambda: not self.machine.is_busy(), self.limits.package)
        put, said = self.machine.put_back(self.folder / PREVIOUS)
        if put and self.machine.package() == (INSTALLED, record.before):
            return ""
        self.machine.start(record.units)
        return f"{record.before} could not be put back: {said}"

    def _ended(self, record: Record) -> Record:
        write(self.folder, record)
        level = logging.INFO if record.state in ("healthy", "withdrawn") else logging.ERROR
        log.log(level, "upgrade from %s to %s: %s: %s", record.before, record.after, record.state, record.reason)
        return record

    def _wait(self, until: Callable[[], bool], seconds: float) -> bool:
        end = self.clock.monotonic() + seconds
        while not until():
            if self.clock.monotonic() >= end:
                return False
            self.pause(LOOK_SECONDS)
        return True


_ENDS: Final = {"healthy": "healthy", "withdraw": "withdrawn"}


def say_ready(address: str | None) -> None:
    """Tell systemd that all code is read (sd_notify(3)): what is on disk may be replaced from now on."""
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.sendto(b"READY=1\nSTATUS=looking at the version that was installed", _abstract(address))


def _abstract(address: str) -> str:
    return "\0" + address[1:] if address.startswith("@") else address


def main(arguments: Sequence[str]) -> int:
    """Run the guard; the exit status. ``--deadline`` and ``--steady`` take seconds."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    given = dict(zip(arguments[::2], arguments[1::2], strict=False))
    usual = Limits()
    limits = replace(
        usual,
        deadline=float(given.get("--deadline", usual.deadline)),
        steady=float(given.get("--steady", usual.steady)),
    )
    # Read now, while it is there: encodings and the like are loaded when they are first used.
    machine.package()
    say_ready(os.environ.get("NOTIFY_SOCKET"))
    Guard(FOLDER, machine, Clock(), threading.Event().wait, limits).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
