"""How long a unit that fails again and again waits before its next start.

systemd starts a unit that has failed after ``RestartSec=``, for ever; the systemd of Debian 12 cannot let that pause
grow. So each unit runs this file when it has ended (``ExecStopPost=``), which keeps in its state folder how often it
has failed in a row; and what is started next waits for the rest of its pause before it does anything. It waits as the
main process, which systemd ends at once when somebody restarts or stops the unit, and an end that was asked for forgets
all failures. It needs little beside the standard library, since the agent's device is small.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from device_agent.clock import Clock
from device_agent.durable import open_regular
from device_agent.errors import EXIT_CONFIG, EXIT_USAGE
from device_agent.notify import Notifier

RESTART_SECONDS: Final = 5.0
"""``RestartSec=`` of every unit: the first pause, and the part of each that systemd keeps."""
MOST_SECONDS: Final = 300.0
"""The longest pause."""
WELL_SECONDS: Final = 600.0
"""A run of so long was a good one: what it ends with is a first failure."""
LATE_SECONDS: Final = 60.0
"""By so much the next start of a loaded machine may be late. One that comes later is nobody's but an operator's."""
START_SECONDS: Final = 180.0
"""The longest ``TimeoutStartSec=`` of the units: after the pause a start has all its time."""

FAILURES: Final = "failures"
"""The name of the file, in the unit's state folder."""
FILE_BYTES: Final = 1024
"""Its size, always: what is written over itself needs no room on a disk that is full."""
SAID_CHARACTERS: Final = 300
BOOT_VARIABLE: Final = "OUTSTATION_BOOT"
"""Which boot this is, from the unit: one that sees nothing of ``/proc`` but processes cannot read it."""
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
ASK_SECONDS: Final = 5.0
WAITS: Final = "has failed"
"""How the status of a unit begins that waits."""
STARTS: Final = "starting"
"""The status of one that has waited, until it has another: loading the program takes its time."""


@dataclass(frozen=True)
class Failures:
    """What is kept of a unit that has failed: how often in a row, when last, in seconds since this boot, and how."""

    boot: str
    count: int
    ended: float
    how: str = ""

    def text(self) -> str:
        """The line in the file."""
        return f"{self.boot} {self.count} {self.ended:.3f} {self.how}\n"

    @classmethod
    def of(cls, text: str) -> Self | None:
        """The failures in a line; None for any other text."""
        boot, _, rest_of = text.partition("\n")[0].partition(" ")
        number, _, rest_of = rest_of.partition(" ")
        seconds, _, how = rest_of.partition(" ")
        try:
            count, ended = int(number), float(seconds)
        except ValueError:
            return None
        return cls(boot, count, ended, how) if count > 0 and ended >= 0 else None


def pause(count: int) -> float:
    """Seconds from the end of a unit to its next start, after so many failures in a row."""
    return min(MOST_SECONDS, RESTART_SECONDS * 2.0 ** min(count - 1, 16))


def failed(before: Failures | None, boot: str, now: float, how: str = "") -> Failures:
    """What is kept when a unit has failed now."""
    # One that lies ahead was in another boot, whatever that is called.
    other = before is None or before.boot != boot or before.ended > now
    if before is None or other or now - (before.ended + pause(before.count)) >= WELL_SECONDS:
        return Failures(boot, 1, now, how)
    return Failures(boot, before.count + 1, now, how)


def rest(kept: Failures | None, boot: str, now: float) -> float:
    """Seconds that a unit which starts now has still to wait; 0 where it was not systemd that starts it again."""
    if kept is None or kept.boot != boot:
        return 0.0
    since = now - kept.ended
    # Whoever does not wait for the first pause has typed something.
    if not RESTART_SECONDS <= since < RESTART_SECONDS + LATE_SECONDS:
        return 0.0
    return max(0.0, pause(kept.count) - since)


def is_failure(environment: Mapping[str, str]) -> bool:
    """Whether a unit that ended so is started again because of it (systemd.exec(5), ``$SERVICE_RESULT``)."""
    asked_for = environment.get("SERVICE_RESULT", "success") == "success"
    settings = (environment.get("EXIT_CODE"), environment.get("EXIT_STATUS")) == ("exited", str(EXIT_CONFIG))
    return not asked_for and not settings


def wait(
    unit: str,
    notifier: Notifier,
    *,
    ready: bool = False,
    environment: Mapping[str, str] = os.environ,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait, at the beginning of a daemon, for what is left of the pause; nothing where no unit keeps failures.

    ``ready``: whether the unit counts as started meanwhile, where others are ordered after it.
    """
    place = _place(unit, environment)
    kept = _read(place) if place is not None else None
    clock = clock or Clock()
    seconds = rest(kept, _boot(environment), clock.monotonic())
    if kept is None or seconds <= 0:
        return
    sentence = waiting(unit, kept, time.strftime("%H:%M:%S", time.localtime(clock.wall() + seconds)))
    sys.stderr.write(f"{unit} {sentence}\n")
    if ready:
        notifier.ready(sentence)
    else:
        notifier.extend(seconds + START_SECONDS, sentence)
    sleep(seconds)
    notifier.status(STARTS)


def waiting(unit: str, kept: Failures, until: str) -> str:
    """What a unit says of itself while it waits: until when, and why."""
    return (
        f"{WAITS} {kept.count} times in a row: waits {pause(kept.count):.0f} s, until {until};"
        f" at once: systemctl restart {unit}; the last time: {kept.how}"
    )


def ended(unit: str, environment: Mapping[str, str] = os.environ, clock: Clock | None = None) -> None:
    """Keep, when a unit has ended, that it has failed; or forget what was, when it was told to. Raises ``OSError``."""
    place = _place(unit, environment)
    if place is None:
        return
    text = "none\n"
    if is_failure(environment):
        text = failed(_read(place), _boot(environment), (clock or Clock()).monotonic(), _how(unit, environment)).text()
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode()[:FILE_BYTES].ljust(FILE_BYTES))


def _how(unit: str, environment: Mapping[str, str]) -> str:
    """How it ended, with what it said last where it ended by itself."""
    result = environment.get("SERVICE_RESULT", "")
    code, status = environment.get("EXIT_CODE", ""), environment.get("EXIT_STATUS", "")
    if code != "exited":
        return f"{result}, {code} by {status}" if code else result
    said = _said(unit)
    told = bool(said) and said != STARTS and not said.startswith(WAITS)
    return f"ended with {status}; it said: {said}" if told else f"ended with {status}"


def _said(unit: str) -> str:
    """The status that the unit still has; empty where systemd cannot be asked."""
    words = ["systemctl", "show", "--property=StatusText", "--value", unit]
    try:
        shown = subprocess.run(words, capture_output=True, timeout=ASK_SECONDS, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return " ".join(shown.decode(errors="replace").split())[:SAID_CHARACTERS]


def _place(unit: str, environment: Mapping[str, str]) -> Path | None:
    """The file of a unit, in its own folder of those that systemd names, which it sorts."""
    folders = [Path(folder) for folder in environment.get("STATE_DIRECTORY", "").split(":") if folder]
    own = [folder for folder in folders if unit.removesuffix(".service") in {folder.name, f"outstation-{folder.name}"}]
    return own[0] / FAILURES if own else None


def _read(place: Path) -> Failures | None:
    try:
        with open_regular(place) as file:
            return Failures.of(file.read(FILE_BYTES).decode(errors="replace").rstrip())
    except OSError:
        return None


def _boot(environment: Mapping[str, str]) -> str:
    if given := "".join(environment.get(BOOT_VARIABLE, "").split()):
        return given
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python3 -m device_agent.next_start UNIT\n")
        sys.exit(EXIT_USAGE)
    try:
        ended(sys.argv[1])
    except OSError as error:
        # Then the next start comes after what is kept from before, or after the first pause.
        sys.stderr.write(f"that this unit has failed is not kept: {error}\n")
