"""``memusage`` and ``swapusage``: memory and swap that are fuller than they may be."""

from __future__ import annotations

from device_agent.beacons.given import Given
from device_agent.beacons.port import Around, Found, Looking
from device_agent.readings import counts


class _Usage(Looking):
    """``percent``: from how much on it is told."""

    def __init__(self, given: Given) -> None:
        given.only("percent")
        if "percent" not in given.values:
            raise given.wrong("requires percent.", None, "- percent: 80%")
        self._limit = given.percent("percent", given.values["percent"])

    async def _figures(self, around: Around) -> dict[str, int]:
        text = (await around.host.read(str(around.proc / "meminfo"))).decode(errors="replace")
        said = counts.meminfo(text)
        return {name: int(each["value"]) for name, each in said.items() if each.get("value", "").isdecimal()}

    def _told(self, name: str, used: int, whole: int) -> list[Found]:
        percent = round(100.0 * used / whole, 1) if whole else 0.0
        return [Found({name: percent})] if whole and percent >= self._limit else []


class MemUsage(_Usage):
    """Memory that nothing could use at once."""

    async def look(self, around: Around) -> list[Found]:
        """How much of the memory is used, if it is too much."""
        said = await self._figures(around)
        # Kernels before 3.14 do not say what is available.
        free = said.get("MemAvailable", said.get("MemFree", 0) + said.get("Buffers", 0) + said.get("Cached", 0))
        whole = said.get("MemTotal", 0)
        return self._told("memusage", whole - free, whole)


class SwapUsage(_Usage):
    """Swap; where there is none, nothing is told."""

    async def look(self, around: Around) -> list[Found]:
        """How much of the swap is used, if it is too much."""
        said = await self._figures(around)
        whole = said.get("SwapTotal", 0)
        return self._told("swapusage", whole - said.get("SwapFree", 0), whole)
