"""What the functions of ``pkg`` want of whatever installs the packages of a device."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct

from device_agent.commands import Said


class Wanted(Struct, frozen=True):
    """A package to install; without a version the newest. ``file`` is where it lies on the device, if it does."""

    name: str
    version: str = ""
    file: str = ""


class How(Struct, frozen=True):
    """How to install."""

    fromrepo: str = ""
    skip_verify: bool = False
    reinstall: bool = False
    downloadonly: bool = False
    only_upgrade: bool = False
    install_recommends: bool = True
    dist_upgrade: bool = False


class Packages(Protocol):
    """The packages of one host."""

    async def installed(self) -> dict[str, str]:
        """Name to version of all that is installed."""

    async def removed(self) -> dict[str, str]:
        """Name to version of what is gone but for its settings."""

    async def broken(self) -> dict[str, str]:
        """Name to version of what is neither installed nor gone: an installation or removal of it failed."""

    async def refresh(self) -> dict[str, bool | None]:
        """Fetch the lists; by source ``True`` when there were news, ``None`` when none, ``False`` when it failed."""

    async def upgrades(self, *, dist: bool) -> dict[str, str]:
        """Name to new version of what an upgrade would change."""

    async def candidates(self, names: list[str]) -> dict[str, str]:
        """Name to the version that would be installed; empty where that is there already, or nothing is."""

    async def install(self, wanted: list[Wanted], how: How) -> Said:
        """Install."""

    async def remove(self, names: list[str], *, purge: bool) -> Said:
        """Remove, and with ``purge`` the settings too."""

    async def upgrade(self, how: How) -> Said:
        """Upgrade everything."""

    async def info(self, names: list[str]) -> dict[str, dict[str, Any]]:
        """What is known of installed packages."""

    async def held(self) -> list[str]:
        """What is kept as it is."""

    async def hold(self, names: list[str], *, held: bool) -> Said:
        """Keep packages as they are, or not any longer."""
