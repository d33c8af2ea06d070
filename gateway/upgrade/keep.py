"""What the package that runs does before another takes its place: it keeps itself, and has the guard look on.

Called by its ``prerm`` with the version that comes. Never fails: a package that cannot be kept is still replaced.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from device_agent.clock import Clock
from gateway.upgrade import machine, repack
from gateway.upgrade.judging import Unit
from gateway.upgrade.record import FILE_NAME, FOLDER, PREVIOUS, UNDER_WAY, Record, read, write

GUARD: Final = "outstation-upgrade-guard.service"


class Looks(Protocol):
    """What is looked at, and how the guard is started."""

    def package(self) -> tuple[str, str]:
        """Status and version of our package."""

    def unit(self, name: str) -> Unit:
        """One unit."""

    def is_booted(self) -> bool:
        """Whether systemd runs this machine."""

    def command(self, words: Sequence[str], seconds: float = 0.0) -> tuple[int, str]:
        """Run a command."""


def keep(
    coming: str,
    folder: Path,
    clock: Clock,
    *,
    looks: Looks,
    pack: Callable[[str, Path], None] = repack.repack,
) -> str:
    """Keep the package that is installed. What was done, in words for whoever reads dpkg's output."""
    _, current = looks.package()
    last = read(folder)
    if not current or coming == current:
        return ""
    if last is not None and (last.state, last.after, last.before) == ("watching", current, coming):
        return f"{coming} comes back by hand, before {current} was found healthy"
    judged = last is None or last.state not in UNDER_WAY or last.after != current
    if last is not None and not judged:
        # The one that is replaced was not found healthy yet: the way back stays the one before it.
        units, errors, before = last.units, last.errors, last.before
        said = f"{current} was not found healthy yet, so the way back stays {before}"
    else:
        running = {name: looks.unit(name) for name in machine.UNITS}
        units = tuple(name for name, unit in running.items() if unit.runs)
        errors = tuple(sorted({check for unit in running.values() for check in unit.errors}))
        before = current
        said = f"{current} is kept in {folder / PREVIOUS}"
    record = Record(
        id=secrets.token_hex(8),
        state="keeping",
        before=before,
        after=coming,
        at=clock.wall(),
        units=units,
        errors=errors,
        rollbacks=last.rollbacks if last is not None else 0,
        rejected=last.rejected if last is not None else (),
    )
    if before == current:
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            # On disk before it is packed: from here on dpkg wants the whole package again when the machine goes down.
            write(folder, record)
            pack(machine.PACKAGE, folder / PREVIOUS)
        except (repack.NotKept, OSError) as error:
            # What is kept of an older one is no way back from here.
            (folder / PREVIOUS).unlink(missing_ok=True)
            _as_before(folder, last)
            return f"{current} is not kept, so there is no way back: {error}"
    if not units or not looks.is_booted():
        _as_before(folder, last)
        return f"{said}; nothing of it runs, so nobody judges {coming}"
    record = record.now("watching", clock.wall())
    write(folder, record)
    # Returns when the guard has read all of its code, which is about to be replaced.
    status, failed = looks.command(["systemctl", "start", GUARD], machine.COMMAND_SECONDS)
    if status:
        write(folder, record.now("withdrawn", clock.wall(), f"the guard could not be started: {failed}"))
        return f"{said}; the guard could not be started, so nobody judges {coming}: {failed.strip()[-200:]}"
    return f"{said}; it comes back when {coming} does not become healthy"


def _as_before(folder: Path, last: Record | None) -> None:
    """Nobody judges this upgrade: what is told is how the one before it ended."""
    if last is None:
        (folder / FILE_NAME).unlink(missing_ok=True)
    else:
        write(folder, last)


def main(arguments: Sequence[str], environment: dict[str, str]) -> int:
    """Keep the package; the exit status, which is always 0."""
    if machine.ROLLBACK_VARIABLE in environment or len(arguments) != 1:
        return 0
    try:
        said = keep(arguments[0], FOLDER, Clock(), looks=machine)
    except OSError as error:
        said = f"there is no way back: {error}"
    if said:
        sys.stdout.write(f"outstation: {said}\n")
    return 0


if __name__ == "__main__":
    import os

    sys.exit(main(sys.argv[1:], dict(os.environ)))
