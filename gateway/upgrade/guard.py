"""The guard: watches the version that came, and puts the one before it back when it does not become healthy.

Runs as root, from ``outstation-upgrade-guard.service``. Started by the package that goes, so that its code is the one
that was healthy; started again at boot when the machine went down meanwhile. It decides once for each upgrade.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from device_agent.clock import Clock
from gateway.upgrade import machine
from gateway.upgrade.judging import INSTALLED, Limits, Seen, Unit, Watch, step
from gateway.upgrade.record import FOLDER, PREVIOUS, UNDER_WAY, Record, read, write_if_same
from gateway.upgrade.repack import NotKept

log = logging.getLogger("outstation.upgrade")

LOOK_SECONDS: Final = 2.0
MOST_ATTEMPTS: Final = 2
"""Times that putting back is begun, when the machine goes down in the middle of it."""

LOCKED: Final = "locked by another process"
"""What dpkg says when another package manager was quicker."""


class Stopped(Exception):
    """The guard was told to stop; at its next start it goes on from the record."""


class _Replaced(Exception):
    """Another replacement of the package has begun; its record is the one to judge by."""


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
        while True:
            try:
                return self._judge()
            except _Replaced:
                log.info("another version has come meanwhile; looking at that one")

    def _judge(self) -> Record | None:
        record = read(self.folder)
        if record is None or record.state not in UNDER_WAY:
            return record
        if record.state == "rolling_back":
            return self._roll_back(record)
        watch = Watch(before=record.before, errors=frozenset(record.errors), begun=self.clock.monotonic())
        while True:
            # Another version may have come meanwhile: the same way back, another name.
            record = read(self.folder) or record
            if record.state not in UNDER_WAY:
                return record
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
                self._pin(self.machine.allow_again)
            return self._ended(record.now(_ENDS[verdict.todo], self.clock.wall(), verdict.why))

    def _roll_back(self, record: Record) -> Record:
        """Put the package before back. Never begun a third time: what cannot be put back is told."""
        if self.machine.package() != (INSTALLED, record.before):
            if failed := self._cannot_begin(record):
                return self._ended(record.now("failed", self.clock.wall(), f"{record.reason}; {failed}"))
            record = replace(record, attempts=record.attempts + 1)
            # On disk before anything is done: whoever starts on it knows that this is the way back.
            self._keep(record)
            log.error("%s is not healthy: %s; putting %s back", record.after, record.reason, record.before)
            if failed := self._put_back(record):
                return self._ended(record.now("failed", self.clock.wall(), f"{record.reason}; {failed}"))
        self._pin(lambda: self.machine.turn_away(record.after))
        self.machine.start(record.units)
        serves = self._wait(
            lambda: all(unit.runs and unit.answers for unit in map(self.machine.unit, record.units)),
            self.limits.deadline,
        )
        why = record.reason if serves else f"{record.reason}; {record.before} is back and does not run either"
        if not serves:
            # Then it was not that version's fault, and a later look at it by apt may be what helps.
            self._pin(self.machine.allow_again)
        return self._ended(record.rolled_back(self.clock.wall(), why, blamed=serves))

    def _pin(self, change: Callable[[], None]) -> None:
        try:
            change()
        except OSError as error:
            log.error("what apt may take stays as it was: %s", error)

    def _mend(self, record: Record, why: str) -> Record:
        """The machine went down before the new version was unpacked: make the one before whole. Nobody is to blame."""
        failed = self._cannot_begin(record)
        if not failed:
            record = replace(record, attempts=record.attempts + 1)
            self._keep(record)
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
        end = self.clock.monotonic() + self.limits.package
        while True:
            free = self._wait(lambda: not self.machine.is_busy(), end - self.clock.monotonic())
            put, said = self.machine.put_back(self.folder / PREVIOUS)
            if put and self.machine.package() == (INSTALLED, record.before):
                return ""
            # Another package manager may have taken the lock between the look and dpkg's own.
            final = not free or put or not (LOCKED in said or self.machine.is_busy())
            # The machine going down may be why it failed: then this does not come back, and the next boot tries again.
            self.pause(LOOK_SECONDS)
            if final:
                break
        self.machine.start(record.units)
        return f"{record.before} could not be put back: {said}"

    def _keep(self, record: Record) -> None:
        if not write_if_same(self.folder, record):
            raise _Replaced

    def _ended(self, record: Record) -> Record:
        self._keep(record)
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


class Pause:
    """Waits, until SIGTERM is there. What the guard does between two waits, as a run of dpkg, it finishes first."""

    def __init__(self) -> None:
        self._asked = False
        # No more than this in a handler: it may run in the middle of anything.
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, _number: int, _frame: object) -> None:
        self._asked = True

    def __call__(self, seconds: float) -> None:
        """Wait for so many seconds. Raises ``Stopped``."""
        if not self._asked:
            # The handler raises nothing and so does not cut it short (PEP 475): it is the pause between two looks.
            time.sleep(seconds)
        if self._asked:
            raise Stopped


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
    pause = Pause()
    # Read now, while it is there: encodings and the like are loaded when they are first used.
    machine.package()
    say_ready(os.environ.get("NOTIFY_SOCKET"))
    try:
        Guard(FOLDER, machine, Clock(), pause, limits).run()
    except Stopped:
        log.info("stopped before it had decided; it goes on at its next start")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
