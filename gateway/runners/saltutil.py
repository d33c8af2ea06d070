"""``saltutil``: bring what the site released for its stations, this one's own runners among it."""

from __future__ import annotations

from typing import Final

from device_agent.custom.kinds import FIRST_ENVIRONMENT, KINDS
from device_agent.custom.modules import CustomModules
from device_agent.errors import OutstationError
from device_agent.questions import Station
from gateway.calls.call import CallFailed
from gateway.calls.functions import Function, Run
from gateway.calls.running import Running

Saltenv = str | list[str] | None
RUNNERS: Final = "runners"


class SaltutilRunner:
    """The runner. ``station`` is where files are asked for: this station, as it answers itself."""

    def __init__(self, custom: CustomModules, station: Station) -> None:
        self._custom = custom
        self._station = station

    def functions(self) -> list[Function]:
        """What it has: what is brought was released by a key of the fleet, whoever has it brought."""
        table: dict[str, Run] = {"sync_all": self.sync_all, "sync_runners": self.sync_runners}
        table |= {"sync_modules": self.sync_modules, "sync_engines": self.sync_engines, "sync_grains": self.sync_grains}
        return [Function(f"saltutil.{name}", run, again=True) for name, run in table.items()]

    async def sync_all(self, _: Running, saltenv: Saltenv = None) -> dict[str, list[str]]:
        """Bring everything that the files have for this station and that was released; what changed, by kind.

        CLI example: ``outstation runner saltutil.sync_all``
        """
        return await self._brought(list(KINDS), saltenv)

    async def sync_runners(self, _: Running, saltenv: Saltenv = None) -> list[str]:
        """Bring the runners in salt://_runners that were released; the names of those that changed.

        CLI example: ``outstation runner saltutil.sync_runners``
        """
        return (await self._brought([RUNNERS], saltenv))[RUNNERS]

    async def sync_modules(self, _: Running, saltenv: Saltenv = None) -> list[str]:
        """Bring the modules in salt://_modules that were released, for the station as a device.

        CLI example: ``outstation runner saltutil.sync_modules``
        """
        return (await self._brought(["modules"], saltenv))["modules"]

    async def sync_engines(self, _: Running, saltenv: Saltenv = None) -> list[str]:
        """Bring the engines in salt://_engines that were released.

        CLI example: ``outstation runner saltutil.sync_engines``
        """
        return (await self._brought(["engines"], saltenv))["engines"]

    async def sync_grains(self, _: Running, saltenv: Saltenv = None) -> list[str]:
        """Bring what tells grains in salt://_grains and was released, for the station as a device.

        CLI example: ``outstation runner saltutil.sync_grains``
        """
        return (await self._brought(["grains"], saltenv))["grains"]

    async def _brought(self, kinds: list[str], saltenv: Saltenv) -> dict[str, list[str]]:
        given = saltenv.split(",") if isinstance(saltenv, str) else saltenv or []
        environments = [each.strip() for each in given if each.strip()] or [FIRST_ENVIRONMENT]
        try:
            synced = await self._custom.sync(self._station, kinds, environments)
        except (OSError, OutstationError) as error:
            raise CallFailed(f"nothing more was brought: {error}") from None
        if synced.refused:
            raise CallFailed(f"module_refused: {synced.why}")
        return dict(synced.changed)
