"""Somebody who has a site's broker to himself: he hears everything and says anything, and holds no key that counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from device_agent.lean_mqtt import encode_publish
from device_agent.mqtt import BrokerAddress
from tests.peers.system import System
from tests.peers.visitor import Visitor, visit
from tests.peers.waiting import until

Message = tuple[str, bytes]

NAMED = re.compile(r"^(\d+) refused on (\w+): (\w+), from (.+)$")


class Stranger:
    """One connection with every right there is."""

    def __init__(self, visitor: Visitor) -> None:
        self._visitor = visitor

    async def listen(self, site: str) -> None:
        """From now on he keeps what he hears."""
        await self._visitor.subscribe(f"os/{site}/#")

    async def heard(self) -> list[Message]:
        """Everything that was said until now."""
        await self._visitor.settled()
        return list(self._visitor.heard)

    async def hears(self, kind: str, wanted: Callable[[bytes], bool], *, about: str = "") -> bytes:
        """The newest payload like this on a topic that ends so and has this in it, as soon as there is one."""

        def found() -> list[bytes]:
            said = [(topic, payload) for topic, payload in self._visitor.heard if topic.endswith(kind)]
            return [payload for topic, payload in said if about in topic and wanted(payload)]

        return (await until(found, what=f"something on {kind} of {about}"))[-1]

    async def say(self, messages: Sequence[Message], *, retain: bool = False) -> int:
        """Say all of this in order; returns how much it was, when the broker has passed it on."""
        for topic, payload in messages:
            packet = encode_publish(topic, payload)
            self._visitor.send(bytes((packet[0] | retain,)) + packet[1:])
        await self._visitor.settled()
        assert self._visitor.inside, "the broker has thrown him out"
        return len(messages)


@asynccontextmanager
async def stranger(system: System, site: str) -> AsyncIterator[Stranger]:
    """Somebody at the broker of a site, which has no rules."""
    visitor = await visit(BrokerAddress(port=system.ports[site]), "stranger")
    assert visitor.inside
    try:
        yield Stranger(visitor)
    finally:
        visitor.leave()


def refused_from(system: System, station: str) -> Counter[tuple[str, str]]:
    """What a station says it refused, by reason and by whom it names; the most frequent ones."""
    found: Counter[tuple[str, str]] = Counter()
    for finding in system.view(station, "/check")["findings"]:
        named = NAMED.match(finding["finding"])
        if named is not None:
            found[named[3], named[4]] += int(named[1])
    return found


def refused_by_devices(system: System, name: str = "swarm") -> Counter[str]:
    """What the devices of a swarm refused so far, by reason."""
    return Counter(system.report(name)["refused"])


def dids(system: System, station: str) -> dict[str, str]:
    """The identities of a station's devices, by name."""
    keys = system.view(station, "/keys?kind=device&state=accepted")["keys"]
    return {key["name"]: key["did"] for key in keys}
