"""Machines that live in another century: jobs of the right time run, jobs of another do not, and nothing is for good.

The processes are real; what is lied to is what their program takes the machine's clock for.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from device_agent.protocol import topics
from tests.peers.stolen_disk import RUN, StolenDisk, now, run_changed
from tests.peers.stranger import stranger
from tests.peers.system import QUICK, System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

YEAR = 365 * 86_400
WRONG = """\
import device_agent.clock
right = device_agent.clock.Clock.wall
device_agent.clock.Clock.wall = lambda clock: right(clock) + {seconds}
"""
HASTY = """\
import gateway.devices.authority
gateway.devices.authority.FLOOR_SECONDS = 0.2
"""
"""A change to a station's program: what it keeps each hour it keeps all the time."""


def in_1970() -> str:
    return WRONG.format(seconds=-now())


def in_2100() -> str:
    return WRONG.format(seconds=74 * YEAR)


def add_agent(system: System, name: str, change: str) -> None:
    """A real agent on a machine whose clock is wrong; its settings are the usual."""
    system.add_agent(name, "lisbon")
    system.kill(name)
    system.start(
        name, [sys.executable, "-c", f"{change}\n{RUN}", "agent", "run", "--config", f"{system.folder}/{name}.yaml"]
    )


def run_gateway(system: System, change: str) -> None:
    run_changed(system, "lisbon", "gateway", change, dict(system._settings["lisbon"]))


async def test_a_site_in_another_century_does_what_is_of_today_and_nothing_else() -> None:
    with whole_system() as system:
        system.add_master()
        system.fleet.pin(system.state_of("lisbon"))
        broker = system.add_broker()
        system.ports["lisbon"] = broker["port"]
        system._settings["lisbon"] = {"masters": [system.address("central")], **QUICK, "broker": broker}
        run_gateway(system, in_1970())
        system.join("lisbon")
        add_agent(system, "cam-1", in_1970())
        add_agent(system, "cam-2", in_2100())
        system.present(2, "lisbon", "central")
        for station in ("central", "lisbon"):
            jid = system.issue(station, "*", "test.ping")
            assert system.ended(station, jid).words() == {"cam-1": "ok", "cam-2": "ok"}
        await what_has_expired_does_not_run(system)

        # Its clock is set wrong the other way, for longer than an hour: nobody believes it, until it is set right.
        system.stop("lisbon")
        run_gateway(system, HASTY + in_2100())
        system.until((system.state_of("lisbon") / "time-floor").exists, "the gateway keeps its time")
        jid = system.issue("central", "*", "test.ping", late="run")
        system.stop("lisbon")
        system.restart("lisbon")
        assert system.ended("central", jid).words() == {"cam-1": "ok", "cam-2": "ok"}


async def what_has_expired_does_not_run(system: System) -> None:
    """Signed by the master itself, an hour ago by the right time."""
    master = StolenDisk(system.state_of("central"), "lisbon")
    harm = system.folder / "harm"
    hour: dict[str, Any] = {"issued": now() - 3600, "expires": now() - 3300}
    body = master.job("cmd.run", f"/bin/sh -c 'echo >> {harm}'", group=master.told_group_key("lisbon"), **hour)
    async with stranger(system, "lisbon") as somebody:
        await somebody.say([(topics.group_job("lisbon"), body)])
    for name in ("cam-1", "cam-2"):
        system.until(lambda: "refused reason=expired " in system.log(name), f"{name} refuses it")  # noqa: B023 - called at once
    assert not harm.exists()
