"""Into which jobs of this station an order of a Salt master goes. The master knows all of them by the one jid it gave.

For most orders that is one job. Several are made of one whose signed target would name more devices than there is room
for, and of one that ends the parts of a batch, each of which has a jid of its own here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from device_agent.clock import Clock
from device_agent.protocol import limits
from device_agent.protocol.jid import JidMaker
from gateway.devices.device import Device
from gateway.jobs.nodegroups import TypedKind
from gateway.salt.asked import ENDS, JobTable
from gateway.salt.book import SaltBook, defines
from gateway.salt.resource_targets import ResourceTargets, by_resource
from upstream.salt.order import SaltOrder

KINDS: Final[Mapping[str, TypedKind]] = {
    "glob": "glob",
    "pcre": "pcre",
    "list": "list",
    "grain": "grain",
    "grain_pcre": "grain_pcre",
    "pillar": "pillar",
    "pillar_pcre": "pillar_pcre",
    "pillar_exact": "pillar_exact",
    "ipcidr": "ipcidr",
    "range": "range",
    "compound": "compound",
    "nodegroup": "nodegroup",
}


class Parting:
    """Makes the parts, each an order with the devices that it is for."""

    def __init__(
        self, table: JobTable, resources: ResourceTargets, book: SaltBook, jids: JidMaker, clock: Clock
    ) -> None:
        self._table = table
        self._resources = resources
        self._book = book
        self._jids = jids
        self._clock = clock

    async def parts(self, order: SaltOrder, meant: Sequence[Device]) -> list[tuple[SaltOrder, list[Device]]]:
        """The jobs that an order comes to: each has as many names in its target as can be signed."""
        found = []
        for aimed, devices in await self._aimed(order, meant):
            if len(self.signed(aimed, devices)[0]) <= limits.TARGET_CHARACTERS:
                found.append((aimed, devices))
                continue
            for number, some in enumerate(_that_fit(devices)):
                jid = await self._own_jid(order.jid) if number else aimed.jid
                found.append((_for_these(aimed, some, jid), some))
        return found

    async def left(self, order: SaltOrder, meant: Sequence[Device], known: set[str]) -> list[Device]:
        """Whom an order under a jid that is known was not given to yet. Nobody, where it is another order.

        All parts of a batch of 3008 have one jid. And of the parts that are made here the last ones may be missing: a
        kill came between, and the master publishes it again.
        """
        first = await self._book.get(order.jid)
        if first is None:
            return []
        same: tuple[str, ...] = ("fun", "arg")
        if order.tgt_type != "list":
            if not by_resource(expression(order), KINDS[order.tgt_type]):
                return []
            same = ("fun", "arg", "tgt", "tgt_type")
        again = defines(order.load)
        if any(first.load.get(key) != again.get(key) for key in same):
            return []
        return [device for device in meant if device.id not in known]

    async def later(self, order: SaltOrder, meant: Sequence[Device]) -> SaltOrder:
        """The order for these devices alone, as a job of its own."""
        return _for_these(order, meant, await self._own_jid(order.jid))

    def signed(self, order: SaltOrder, meant: Sequence[Device]) -> tuple[str, TypedKind]:
        """The target that is signed."""
        return self._resources.signed(expression(order), KINDS[order.tgt_type], meant)

    async def _aimed(self, order: SaltOrder, meant: Sequence[Device]) -> list[tuple[SaltOrder, list[Device]]]:
        """What ends a job names the jid of a whole batch of 3008; a device knows its part of it by another."""
        aims = await self._table.aims(order, meant) if order.fun in ENDS else {}
        if not aims:
            return [(order, list(meant))]
        found = []
        for number, (aim, devices) in enumerate(aims.items()):
            part = _for_these(order, devices, await self._own_jid(order.jid) if number else order.jid)
            if order.arg:
                part = msgspec.structs.replace(part, arg=[aim, *order.arg[1:]])
            else:
                part = msgspec.structs.replace(part, kwarg={**order.kwarg, "jid": aim})
            found.append((part, devices))
        return found

    async def _own_jid(self, other: str) -> str:
        """A jid that no Salt master has used here, and that is another than this one of theirs."""
        own = self._jids.next(self._clock.wall())
        while own == other or await self._book.known(own) is not None:
            own = self._jids.next(self._clock.wall())
        return own


def expression(order: SaltOrder) -> str:
    """The target as one text."""
    return ",".join(order.tgt) if isinstance(order.tgt, tuple) else order.tgt


def _for_these(order: SaltOrder, devices: Sequence[Device], jid: str) -> SaltOrder:
    """The order under a jid for some devices alone; what is kept and told of it stays as it was published."""
    return msgspec.structs.replace(
        order, jid=jid, tgt=tuple(sorted({device.id for device in devices})), tgt_type="list"
    )


def _that_fit(devices: Sequence[Device]) -> list[list[Device]]:
    """Parts whose names fit into a target each. Devices of one name, of several sites, are in one: a name means all."""
    parts: list[list[Device]] = []
    room, last = 0, ""
    for device in sorted(devices, key=lambda each: each.id):
        if device.id != last:
            last, room = device.id, room - len(device.id) - 1
            if room < 0:
                parts.append([])
                room = limits.TARGET_CHARACTERS - len(device.id)
        parts[-1].append(device)
    return parts
