"""Devices that joined a real gateway as they should, and say in their sessions what a test likes.

They come over a broker without rules, on one connection. Their keys, their certificates and their seals are real.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from device_agent.clock import Clock
from device_agent.identity import new_identity
from device_agent.joining import Joining, invited_by_token
from device_agent.mqtt import BrokerAddress
from device_agent.protocol import topics
from device_agent.trust.token import JoinToken
from gateway.rehearsal import join_token
from tests.peers.fleet import PlayedDevice
from tests.peers.played_device import Camera, Cameras, played
from tests.peers.system import System
from tests.peers.waiting import until

CLOCK = Clock()


async def _joined(cameras: Cameras, token: JoinToken, name: str) -> Camera:
    """A device that asked under this serial number, was let in, and said so."""
    identity = new_identity()
    joining = Joining(identity, invited_by_token(token), name, "rogue-1", CLOCK)
    answers = cameras.published[topics.enrol_response(token.site, identity.did)]
    await cameras.publish(*joining.request())
    await until(lambda: answers, what=f"the answer to {name}")
    answer = joining.judge(answers[-1])
    assert answer is None, answer
    await cameras.publish(*joining.confirmation())
    keys = PlayedDevice(identity.name, identity.sig, identity.kem, identity.certificate)
    return Camera(keys, token.root, CLOCK)


@asynccontextmanager
async def rogues(system: System, site: str, names: Sequence[str]) -> AsyncIterator[Cameras]:
    """Devices of a site with an open session each, for as long as the block lasts; nobody has said hello yet."""
    token = JoinToken.from_text(join_token(system.stations[site], uses=len(names)))
    async with played(BrokerAddress(port=system.ports[site]), None, CLOCK) as cameras:
        for name in names:
            cameras.take(await _joined(cameras, token, name))
        await cameras.open(*names)
        yield cameras
