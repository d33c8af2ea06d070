"""``temperature``: what gets too hot. Not one of Salt's."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from device_agent.beacons.aside import Aside
from device_agent.beacons.given import Given
from device_agent.beacons.port import Around, Found, Looking

LEAST, MOST = -100.0, 1000.0
THOUSAND: Final = 1000.0
"""The kernel tells thousandths of a degree."""


class Temperature(Looking):
    """``max``: degrees Celsius from which on a sensor is told; ``sensors``: the same by names, or globs of names."""

    def __init__(self, given: Given) -> None:
        given.only("max", "sensors")
        if not given.values:
            raise given.wrong("requires max or sensors.", None, "- max: 70")
        most = given.values.get("max")
        sensors = given.typed("sensors", given.values.get("sensors", {}), dict, "a dictionary", "cpu*: 70")
        self._limits = {str(name): given.number(str(name), limit, LEAST, MOST) for name, limit in sensors.items()}
        self._most = None if most is None else given.number("max", most, LEAST, MOST)
        self._aside = Aside()

    async def look(self, around: Around) -> list[Found]:
        """Each sensor that is too hot. It is an error that there is none."""
        found = await self._aside.call(lambda: sensors(around.sys))
        if not found:
            raise OSError(f"there is no sensor below {around.sys}/class/thermal and {around.sys}/class/hwmon")
        told = []
        for name, celsius in found.items():
            limit = self._limit(name)
            if limit is not None and celsius >= limit:
                told.append(Found({"celsius": celsius, "limit": limit, "sensor": name}, tag=name))
        return told

    def _limit(self, name: str) -> float | None:
        """An exact name counts before the globs, and they before ``max``."""
        if name in self._limits:
            return self._limits[name]
        return next((limit for glob, limit in self._limits.items() if fnmatchcase(name, glob)), self._most)


def sensors(sys: Path) -> dict[str, float]:
    """Degrees Celsius by sensor: the thermal zones by their type, and what monitors have by chip and label.

    Names that are there twice have a number behind.
    """
    found: dict[str, float] = {}
    for name, place in _places(sys):
        try:
            celsius = int(place.read_text().strip()) / THOUSAND
        except (OSError, ValueError):
            continue  # A sensor of a chip that sleeps says nothing.
        number, shown = 1, name
        while shown in found:
            number += 1
            shown = f"{name}-{number}"
        found[shown] = round(celsius, 1)
    return found


def _places(sys: Path) -> Iterator[tuple[str, Path]]:
    for zone in sorted((sys / "class/thermal").glob("thermal_zone*")):
        yield _word(zone / "type", zone.name), zone / "temp"
    for chip in sorted((sys / "class/hwmon").glob("hwmon*")):
        name = _word(chip / "name", chip.name)
        for place in sorted(chip.glob("temp*_input")):
            label = _word(place.with_name(place.name.replace("_input", "_label")), place.name.removesuffix("_input"))
            yield f"{name}-{label}", place


def _word(place: Path, otherwise: str) -> str:
    """A name as it can stand in a tag."""
    try:
        said = place.read_text(errors="replace").strip()
    except OSError:
        said = ""
    return "-".join(said.replace("/", "-").split())[:64] or otherwise
