"""Pillar of devices from a Salt master, which compiles for the id of the gateway alone.

So the gateway's pillar has its devices: ``devices``, a mapping of names to what each of them gets, over
``all_devices``, which every one gets. What else is in it is the gateway's own, and no device sees it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.protocol.messages import check_plain, decode_bounded
from device_agent.protocol.pillar import PillarOfWanted, PillarTold
from device_agent.protocol.questions import ANSWER_BYTES, QUESTION_BYTES
from gateway.devices.pillar_merge import merge
from upstream.salt.ports import SaltAbove

DEVICES: Final = "devices"
ALL: Final = "all_devices"
FRESH_SECONDS: Final = 10.0
"""So long one compilation of a master counts: two thousand devices that ask at once are one."""

KEPT: Final = 4
MOST_BYTES: Final = ANSWER_BYTES - 64
_wanted: Final = msgspec.msgpack.Decoder(PillarOfWanted)


class SaltPillar:
    """Cuts the gateway's pillar down to one device."""

    def __init__(self, site: str, grains: Callable[[], Mapping[str, Any]], clock: Clock) -> None:
        self._site = site
        self._grains = grains
        self._clock = clock
        self._whole: OrderedDict[tuple[int, str], tuple[float, dict[str, Any]]] = OrderedDict()
        self._asking = asyncio.Lock()

    async def of(self, above: SaltAbove, body: bytes, patience: float) -> bytes:
        """The pillar of a device of this site. Raises ``Refused`` and ``Unanswered``."""
        wanted = decode_bounded(_wanted, body, QUESTION_BYTES)
        if wanted.site != self._site:
            raise Refused("not_found", f"{wanted.site} is another site, whose pillar this gateway does not have")
        whole = await self._gateway(above, wanted.env or "", patience)
        found: dict[Any, Any] = {}
        for said in (whole.get(ALL), _devices(whole).get(wanted.device), wanted.given):
            if said is not None and not isinstance(said, dict):
                raise Refused("malformed", f"the gateway's pillar has no mapping for {wanted.device}")
            found = merge(found, said or {}, "smart")
        if isinstance(errors := whole.get("_errors"), list):
            found["_errors"] = [str(error)[:200] for error in errors[:100]]
        try:
            check_plain(found)
            packed = msgspec.msgpack.encode(found)
        except (TypeError, ValueError, OverflowError):
            raise Refused("not_plain", f"the pillar of {wanted.device} holds what cannot travel") from None
        if len(packed) > MOST_BYTES:
            raise Refused("too_large", f"the pillar of {wanted.device} has {len(packed)} bytes, at most {MOST_BYTES}")
        return msgspec.msgpack.encode(PillarTold(packed))

    async def _gateway(self, above: SaltAbove, env: str, patience: float) -> dict[str, Any]:
        async with self._asking:
            key, now = (id(above), env), self._clock.monotonic()
            if (known := self._whole.get(key)) is not None and now - known[0] < FRESH_SECONDS:
                return known[1]
            fields = {"saltenv": env, "pillarenv": env} if env else {}
            whole = await above.pillar(dict(self._grains()), patience=patience, **fields)
            self._whole[key] = (self._clock.monotonic(), whole)
            while len(self._whole) > KEPT:
                self._whole.popitem(last=False)
            return whole


def _devices(whole: Mapping[str, Any]) -> Mapping[str, Any]:
    said = whole.get(DEVICES)
    if said is None:
        return {}
    if not isinstance(said, dict):
        raise Refused("malformed", f"{DEVICES} in the gateway's pillar is a {type(said).__name__}, not a mapping")
    return said
