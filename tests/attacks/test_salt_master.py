"""A Salt master above a gateway is taken over: through the gateway's own key it orders what was granted to it, and
nothing else, whatever the gateway itself may order. The device judges that for itself.
"""

from __future__ import annotations

from pathlib import Path

from device_agent.trust.policy import SitePolicy
from tests.peers.agent_process import agent_settings, joined
from tests.peers.broker import running_broker
from tests.peers.fleet import Fleet
from tests.peers.played_station import a_job, played_station
from tests.peers.trusted_site import TrustedSite
from tests.peers.waiting import until

POLICY = SitePolicy(fun=("test.*", "grains.*"), org={"salt": ("grains.items",)})


async def test_a_device_holds_it_to_what_was_granted_to_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        site = TrustedSite(Fleet("lisbon", policy=POLICY))
        async with (
            played_station(broker.address, site) as station,
            joined(station, agent_settings(station, tmp_path)) as agent,
        ):
            key = site.fleet.site.key
            asked = {
                1: ("test.ping", "salt"),
                2: ("grains.items", "salt"),
                3: ("test.ping", ""),
                4: ("test.ping", "puppet"),
            }
            for number, (function, origin) in asked.items():
                await station.deliver(a_job(number, fun=function, origin=origin), key=key)
            await until(lambda: len(station.returns) == len(asked), what="every answer")
            said = {number: station.returns[a_job(number).jid][agent.identity.name][0].outcome for number in asked}
            assert said == {1: "refused", 2: "ok", 3: "ok", 4: "refused"}
