"""A beacon that the site brought: a signed file in ``_beacons`` with Salt's functions ``beacon`` and ``validate``."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Final

from device_agent.beacons.given import Given, InvalidBeacon
from device_agent.beacons.port import Around, Found, Looking
from device_agent.custom.beside import beside

ITEMS: Final = 1000


class CustomBeacon(Looking):
    """Its file is verified anew at each look. What it may tell, nobody here knows."""

    reads: ClassVar[bool] = True

    def __init__(self, given: Given) -> None:
        self._module = given.module
        # Salt tells it its name so.
        self._config = [*given.rest, {"_beacon_name": given.name}]

    async def look(self, around: Around) -> list[Found]:
        """What it returns: mappings, of which ``tag`` goes behind the tag."""
        functions = await around.custom.beacon(self._module)
        if "beacon" not in functions:
            raise InvalidBeacon(f"_beacons/{self._module}.py has no async def beacon(host, config)")
        if "validate" in functions:
            said = await beside(_asked(functions["validate"]), around.host, self._config)
            valid, why = said if isinstance(said, tuple | list) and len(said) == 2 else (bool(said), "it says no more")
            if not valid:
                raise InvalidBeacon(f"Configuration for {self._module} beacon is not valid: {why}")
        told = await beside(functions["beacon"], around.host, self._config)
        if not isinstance(told, list) or not all(isinstance(each, dict) for each in told):
            raise InvalidBeacon(f"_beacons/{self._module}.py: beacon returned no list of dictionaries")
        return [_found(each) for each in told[:ITEMS]]


def _asked(validate: Any) -> Any:
    """It is told the configuration alone, as in Salt."""

    async def call(_host: Any, config: Any) -> Any:
        return await validate(config)

    return call


def _found(told: dict[str, Any]) -> Found:
    data = {str(key): value for key, value in told.items() if key != "tag"}
    return Found(data, tag=str(told.get("tag", "")), about=json.dumps(data, sort_keys=True, default=repr))
