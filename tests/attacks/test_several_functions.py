"""Whoever may order some functions puts one among them that he may not: no device calls any of them.

The device judges it for itself; the stations that could have told him so are his.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_agent.protocol.messages import Return
from device_agent.protocol.several import SEVERAL
from device_agent.trust.keys import SigningKey
from device_agent.trust.policy import SitePolicy
from device_agent.trust.root_list import MASTER_ROLES
from tests.peers.agent_process import agent_settings, joined
from tests.peers.broker import running_broker
from tests.peers.fleet import Fleet
from tests.peers.played_station import PlayedStation, a_job, played_station
from tests.peers.trusted_site import TrustedSite
from tests.peers.waiting import until

POLICY = SitePolicy(
    fun=("test.*", "file.dirname", "_several.*", "cmd.run"),
    arg={"cmd.run": ("uptime",)},
    org={"salt": ("test.*", "_several.*")},
)
ECHO: list[Any] = ["test.echo", ["hello"], {}]


def among(call: list[Any]) -> list[list[Any]]:
    """Ways to put a call among others that are granted."""
    fun, arg, kwarg = call
    return [
        [ECHO, call],
        [call, ECHO],
        [ECHO, ECHO, call, ECHO],
        [call],
        [[f"test.echo,{fun}", arg, kwarg]],
        [[f"test.echo, {fun}", arg, kwarg]],
        [ECHO, [SEVERAL, [call], {}]],
        [[SEVERAL, [[SEVERAL, [call], {}]], {}]],
        [ECHO, [fun, arg, kwarg, {}]],
        [ECHO, [[fun], arg, kwarg]],
    ]


class Attack:
    """Orders of several functions, and what the one device says to them."""

    def __init__(self, station: PlayedStation, name: str) -> None:
        self._station = station
        self._name = name
        self._number = 0

    async def order(self, calls: list[Any], key: SigningKey | None, origin: str = "", fun: str = SEVERAL) -> Return:
        """The answer to one job, by master A unless another key signs it."""
        self._number += 1
        job = a_job(self._number, fun=fun, arg=calls, origin=origin)
        await self._station.deliver(job, key=key)
        await until(lambda: self._station.returns[job.jid][self._name], what=f"the answer to {calls}")
        return self._station.returns[job.jid][self._name][0]


@pytest.mark.parametrize("origin", ["", "salt"])
async def test_a_gateway_gets_nothing_past_its_grants_among_others(tmp_path: Path, origin: str) -> None:
    """The master that certified it has the role, so that the grants alone decide."""
    way = tmp_path / "way"
    fleet = Fleet("lisbon", policy=POLICY)
    fleet.next_root(masters=(fleet.a.as_master([*MASTER_ROLES, "root-shell"]), fleet.b.as_master()))
    async with (
        running_broker(tmp_path) as broker,
        played_station(broker.address, TrustedSite(fleet)) as station,
        joined(station, agent_settings(station, tmp_path)) as agent,
    ):
        attack, key = Attack(station, agent.identity.name), fleet.site.key
        for call in (["cmd.run", [f"touch {way}"], {}], ["file.write", [str(way), "x"], {}], ["sys.doc", [], {}]):
            for calls in among(call):
                told = await attack.order(calls, key, origin)
                assert (told.outcome, told.executions, told.value) == ("refused", 0, None), calls
                assert told.why.partition(":")[0] in {"not_granted", "malformed"}, told.why
        assert not way.exists()
        # What it may, it may all the same.
        told = await attack.order([ECHO, ["test.true", [], {}]], key, origin)
        assert (told.outcome, told.value) == ("ok", {"test.echo": "hello", "test.true": True})
        told = await attack.order([ECHO, ["cmd.run", ["uptime"], {}], ["file.dirname", ["/a/b"], {}]], key, origin)
        assert told.outcome == ("refused" if origin else "ok"), told


async def test_a_master_without_the_role_has_no_root_shell_among_others(tmp_path: Path) -> None:
    way = tmp_path / "way"
    site = TrustedSite(Fleet("lisbon"))
    async with (
        running_broker(tmp_path) as broker,
        played_station(broker.address, site) as station,
        joined(station, agent_settings(station, tmp_path)) as agent,
    ):
        attack = Attack(station, agent.identity.name)
        for call in (["cmd.run", [f"touch {way}"], {}], ["file.find", [str(tmp_path)], {"exec": f"touch {way}"}]):
            for calls in among(call):
                told = await attack.order(calls, None)
                assert (told.outcome, told.executions, told.value) == ("refused", 0, None), calls
        assert not way.exists()
        assert (await attack.order([ECHO, ["file.find", [str(tmp_path)], {"name": "way"}]], None)).outcome == "ok"
        # The test could have failed: with the role it is let through.
        fleet = site.fleet
        fleet.next_root(masters=(fleet.a.as_master([*MASTER_ROLES, "root-shell"]), fleet.b.as_master()))
        await station.publish_bundle()
        assert (await attack.order([ECHO, ["cmd.run", [f"touch {way}"], {}]], None)).outcome == "ok"
        assert way.exists()


async def test_a_device_that_knows_of_no_such_job_says_so(tmp_path: Path) -> None:
    """A release that has it not looks for a function of that name, as this one looks for the name beside it."""
    site = TrustedSite(Fleet("lisbon"))
    async with (
        running_broker(tmp_path) as broker,
        played_station(broker.address, site) as station,
        joined(station, agent_settings(station, tmp_path)) as agent,
    ):
        told = await Attack(station, agent.identity.name).order([ECHO], None, fun=f"{SEVERAL}_to_come")
        assert (told.outcome, told.executions) == ("refused", 0)
        assert told.why.startswith("unknown_function")
