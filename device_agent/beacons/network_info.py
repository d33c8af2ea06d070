"""``network_info``: counters of network interfaces that have come to a value."""

from __future__ import annotations

from typing import Any, Final

from device_agent.beacons.given import Given
from device_agent.beacons.port import Around, Found, Looking
from device_agent.readings import counts

COUNTERS: Final = {
    "bytes_sent": "tx_bytes",
    "bytes_recv": "rx_bytes",
    "packets_sent": "tx_packets",
    "packets_recv": "rx_packets",
    "errin": "rx_errs",
    "errout": "tx_errs",
    "dropin": "rx_drop",
    "dropout": "tx_drop",
}
"""Salt's names, and those of proc(5)."""

MOST: Final = 2.0**64


class NetworkInfo(Looking):
    """``interfaces``: by name the values to come to, and with ``type`` whether ``equal`` or ``greater``."""

    def __init__(self, given: Given) -> None:
        given.only("interfaces")
        interfaces = given.typed("interfaces", given.values.get("interfaces", {}), dict, "a dictionary")
        self._wanted: dict[str, tuple[bool, dict[str, int]]] = {}
        for name, wanted in interfaces.items():
            if not isinstance(wanted, dict):
                raise given.wrong("must be a list of dictionaries.", wanted, f"{name}: {{type: greater, errin: 100}}")
            values = {key: value for key, value in wanted.items() if key != "type"}
            if wrong := sorted(map(str, set(values) - set(COUNTERS))):
                sentence = "Invalid configuration item in Beacon configuration."
                raise given.says(sentence, wrong[0], f"allowed: type, {', '.join(COUNTERS)}")
            kind = wanted.get("type", "equal")
            if kind not in {"equal", "greater"}:
                raise given.wrong("option type must be equal or greater.", kind)
            limits = {key: int(given.number(key, value, 0, MOST)) for key, value in values.items()}
            self._wanted[str(name)] = (kind == "greater", limits)

    async def look(self, around: Around) -> list[Found]:
        """Each interface of which one counter has come to its value."""
        text = (await around.host.read(str(around.proc / "net/dev"))).decode(errors="replace")
        told = counts.netdev(text)
        found = []
        for name, (greater, limits) in self._wanted.items():
            if name not in told:
                continue
            shown: dict[str, Any] = {ours: told[name][theirs] for ours, theirs in COUNTERS.items()}
            hit = tuple(
                key for key, limit in limits.items() if (shown[key] > limit if greater else shown[key] == limit)
            )
            if hit:
                found.append(Found({"interface": name, "network_info": shown}, about=name, same=hit))
        return found
