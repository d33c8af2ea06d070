"""``config``: the settings of the station. They are a file that it reads and never writes."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.calls.functions import Function
from gateway.calls.running import Running
from gateway.config import StationSettings

READ_ONLY: Final = (
    "a station never writes its own settings; change the file and send it SIGHUP (systemctl reload), "
    "which says what takes a restart"
)


class ConfigWheel:
    """The wheel."""

    def __init__(self, settings: StationSettings) -> None:
        self._settings = settings

    def functions(self) -> list[Function]:
        """What it has. There are secrets in settings, so they are an admin's."""
        return [
            Function("config.values", self.values, need="admin", private=True),
            Function("config.apply", self.apply, need="admin", refused=READ_ONLY),
            Function("config.update_config", self.update_config, need="admin", refused=READ_ONLY),
        ]

    async def values(self, _: Running) -> dict[str, Any]:
        """Show the settings with which the station was started, defaults too.

        CLI example: ``outstation wheel config.values``
        """
        told: dict[str, Any] = msgspec.to_builtins(self._settings)
        return told

    async def apply(self, _: Running, key: str, value: Any) -> None:
        """Change a setting: refused here.

        CLI example: ``outstation wheel config.apply log_level debug``
        """

    async def update_config(self, _: Running, file_name: str, yaml_contents: Any) -> None:
        """Write a settings file: refused here.

        CLI example: ``outstation wheel config.update_config more '{}'``
        """
