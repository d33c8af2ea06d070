"""Runners that a site wrote itself: ``_runners/NAME.py``, brought signed, and verified anew for each call.

    async def lights(running, on=True):
        '''Switch the lights. CLI example: ``outstation runner site.lights``'''

A function is given the running call, as those of this release are, and runs beside the station's loop. What its
``__reach__`` calls ``looks`` may be called by all who may look, ``reads`` and ``changes`` by operators; everything else
is an admin's.
"""

from __future__ import annotations

from functools import lru_cache, wraps
from typing import Any, Final

from device_agent.custom.beside import beside
from device_agent.custom.kinds import path_of
from device_agent.custom.loading import Function as Custom
from device_agent.custom.modules import CustomModules
from device_agent.errors import PolicyRefused, Refused
from device_agent.trust.reach import CLASSES, Reach
from gateway.calls.functions import Function, Run
from gateway.calls.running import Running
from gateway.devices.policy import Need

NEEDS: Final[dict[Reach, Need]] = {"looks": "view", "reads": "run", "changes": "run", "shell": "admin"}


class CustomRunners:
    """Finds them."""

    def __init__(self, custom: CustomModules) -> None:
        self._custom = custom

    async def get(self, name: str) -> Function | None:
        """A function by ``module.function``; None where there is no such module. Raises ``PolicyRefused``."""
        module, _, fun = name.partition(".")
        try:
            path = path_of("runners", module)
            if path not in self._custom.hashes("runners"):
                return None
            found = (await self._custom.functions_of(path)).get(fun)
            released = self._custom.release().of(path)
            classes: list[Reach] = [each.reaches.get(fun, "shell") for each in released]
            reach: Reach = max(classes, key=CLASSES.index) if classes else "shell"
        except Refused as refused:
            raise PolicyRefused(
                f"runner.{name} does not run: {refused.reason}",
                error_id="calls.module_refused",
                found=refused.detail,
                hint="docs/modules.md",
            ) from None
        return None if found is None else Function(name, _beside(found), need=NEEDS[reach])


@lru_cache(maxsize=1024)
def _beside(found: Custom) -> Run:
    """Run in a thread and a loop of its own: what blocks there holds up neither the station nor another call."""

    @wraps(found)
    async def called(running: Running, *arg: Any, **kwarg: Any) -> Any:
        return await beside(found, running, *arg, **kwarg)

    return called
