"""``load``: how many processes run or wait to run, outside of what is usual."""

from __future__ import annotations

from typing import Final

from device_agent.beacons.given import Given
from device_agent.beacons.port import Around, Found, Looking
from device_agent.readings import counts

SPANS: Final = {"1m": "1-min", "5m": "5-min", "15m": "15-min"}
MOST: Final = 1e6


class Load(Looking):
    """``averages``: by span (``1m``, ``5m``, ``15m``) what is too little and what is too much."""

    def __init__(self, given: Given) -> None:
        given.only("averages")
        if "averages" not in given.values:
            raise given.says(
                "Averages configuration is required for load beacon.", None, "- averages: {1m: [0.0, 2.0]}"
            )
        averages = given.typed("averages", given.values["averages"], dict, "a dictionary")
        if not averages or not set(averages) <= set(SPANS):
            raise given.says("Averages configuration for load beacon must contain 1m, 5m or 15m items.", averages)
        self._bounds: dict[str, tuple[float, float]] = {}
        for span, bounds in averages.items():
            if not isinstance(bounds, list) or len(bounds) != 2:
                sentence = "Averages configuration for load beacon: 1m, 5m and 15m items must be a list of two items."
                raise given.says(sentence, bounds, f"{span}: [0.0, 2.0]")
            low, high = (given.number(span, bound, 0.0, MOST) for bound in bounds)
            self._bounds[span] = (low, high)

    async def look(self, around: Around) -> list[Found]:
        """All three averages, if one of them is too small or too large."""
        said = counts.loadavg((await around.host.read(str(around.proc / "loadavg"))).decode(errors="replace"))
        averages = {span: said[name] for span, name in SPANS.items()}
        beside = tuple(
            (span, averages[span] > high)
            for span, (low, high) in self._bounds.items()
            if not low <= averages[span] <= high
        )
        return [Found(averages, same=beside)] if beside else []
