"""The Debian packages that ``make deb`` has built into dist/, and their way onto a booted machine."""

from __future__ import annotations

from pathlib import Path

from device_agent.host import Completed
from tests.peers.machines import Machine

DIST = Path(__file__).resolve().parents[2] / "dist"
PREVIOUS = "0.0.1"
"""The version of a package of the same tree that is there to be upgraded from: ``make deb VERSION=0.0.1``."""

SECONDS = 300.0
INSTALL = (
    *("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "--allow-downgrades", "--reinstall"),
    *("--option", "Dpkg::Options::=--force-confdef", "--option", "Dpkg::Options::=--force-confold"),
)


class NotBuilt(Exception):
    """A package is not in dist/; what to type."""


def packages(name: str = "outstation") -> tuple[Path, Path]:
    """The package of the previous version and that of this one. Raises NotBuilt."""
    found = {path.name.split("_")[1]: path for path in DIST.glob(f"{name}_*_amd64.deb")}
    previous = found.pop(PREVIOUS, None)
    if previous is None or len(found) != 1:
        mend = f"rm -rf dist; make deb FAST=1 VERSION={PREVIOUS}; make deb FAST=1"
        raise NotBuilt(f"one {name} of {PREVIOUS} and one other are wanted in {DIST}; try: {mend}")
    (current,) = found.values()
    return previous, current


async def install(machine: Machine, package: Path) -> Completed:
    """Install a package from its file alone: over nothing, over another version, or over itself."""
    there = f"/var/tmp/{package.name}"
    await machine.push(package, there)
    return await machine.run(*INSTALL, there, seconds=SECONDS)
