"""``network_settings``: settings of network interfaces that change: whether there is a link, addresses, flags."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from device_agent.beacons.aside import Aside
from device_agent.beacons.given import Given
from device_agent.beacons.port import Around, Found, Looking
from device_agent.links import interfaces_of

FILES: Final = {
    "operstate": "operstate",
    "carrier": "carrier",
    "carrier_changes": "carrier_changes",
    "mtu": "mtu",
    "address": "address",
    "broadcast": "broadcast",
    "flags": "flags",
    "txqlen": "tx_queue_len",
    "index": "ifindex",
    "linkmode": "link_mode",
    "ifi_type": "type",
    "group": "netdev_group",
}
"""Salt's names, and the files of sysfs(5) that have them."""

MADE: Final = ("ifname", "ipaddr", "num_rx_queues", "num_tx_queues", "promiscuity")
ATTRIBUTES: Final = (*FILES, *MADE)
PROMISCUOUS: Final = 0x100


class _Wanted(NamedTuple):
    fits: Callable[[str], bool]
    attributes: dict[str, Any]


class NetworkSettings(Looking):
    """``interfaces``: by name, or expression in names, the attributes to watch; ``onvalue`` tells that value alone.

    ``coalesce`` tells all changes of a look in one event.
    """

    def __init__(self, given: Given) -> None:
        given.only("interfaces", "coalesce")
        interfaces = given.values.get("interfaces", {})
        if not isinstance(interfaces, dict):
            sentence = "interfaces section for network_settings beacon must be a dictionary."
            raise given.says(sentence, interfaces, "eth0: {operstate: null}")
        self._coalesce = given.typed("coalesce", given.values.get("coalesce", False), bool, "a boolean")
        self._wanted: dict[str, _Wanted] = {}
        for name, attributes in interfaces.items():
            if not isinstance(attributes, dict):
                sentence = "Interface attributes for network_settings beacon must be a dictionary."
                raise given.says(sentence, attributes, f"{name}: {{operstate: null}}")
            if wrong := sorted(map(str, set(attributes) - set(ATTRIBUTES))):
                sentence = "Invalid attributes in beacon configuration."
                raise given.says(sentence, wrong[0], f"allowed: {', '.join(ATTRIBUTES)}")
            # As in Salt the name may be anywhere in that of the interface.
            fits = given.regex(str(name), f".*(?:{name})")
            self._wanted[str(name)] = _Wanted(fits, dict(attributes))
        self._last: dict[str, dict[str, Any]] | None = None
        self._told = 0
        self._aside = Aside()

    async def look(self, around: Around) -> list[Found]:
        """What is otherwise than at the look before; the first one tells nothing."""
        folder = around.sys / "class/net"
        now = await self._aside.call(lambda: {place.name: settings(place) for place in sorted(folder.iterdir())})
        if any("ipaddr" in each.attributes for each in self._wanted.values()):
            for name, each in (await interfaces_of(around.host)).items():
                if name in now:
                    now[name]["ipaddr"] = [f"{address.address}/{address.prefix}" for address in each.addresses]
        last, self._last = self._last, now
        if last is None:
            return []
        changes = {}
        for name in sorted({*now, *last}):
            changed = self._changed(name, last.get(name, {}), now.get(name, {}))
            if changed:
                changes[name] = changed
        # Each change is news, also one that was there before.
        self._told += 1
        if self._coalesce:
            return [Found({"changes": changes}, tag="result", same=self._told)] if changes else []
        return [
            Found({"interface": name, "change": changed}, tag=name, same=self._told)
            for name, changed in changes.items()
        ]

    def _changed(self, name: str, before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
        """Of one interface the attributes that are told; of one that is gone they are nothing."""
        wanted = self._wanted.get(name) or next((each for each in self._wanted.values() if each.fits(name)), None)
        changed = {}
        for attribute, how in wanted.attributes.items() if wanted else ():
            value = now.get(attribute)
            if value == before.get(attribute):
                continue
            if not isinstance(how, dict) or "onvalue" not in how or how["onvalue"] == value:
                changed[attribute] = value
        return changed


def settings(place: Path) -> dict[str, Any]:
    """What the kernel says of one interface."""
    found: dict[str, Any] = {"ifname": place.name}
    for name, file in FILES.items():
        try:
            said = (place / file).read_text(errors="replace").strip()
        except OSError:
            continue  # An interface that is down has no carrier to tell.
        found[name] = _value(said)
    if isinstance(state := found.get("operstate"), str):
        found["operstate"] = state.upper()
    if isinstance(flags := found.get("flags"), int):
        found["promiscuity"] = 1 if flags & PROMISCUOUS else 0
    queues = [each.name.partition("-")[0] for each in (place / "queues").glob("*-*")]
    return found | {"num_rx_queues": queues.count("rx"), "num_tx_queues": queues.count("tx")}


def _value(text: str) -> int | str:
    if re.fullmatch(r"\d{1,19}", text):
        return int(text)
    return int(text, 16) if re.fullmatch(r"0x[0-9a-f]{1,16}", text) else text
