"""What a stock master is told of devices that are not there, and of jobs that it did not order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from device_agent.trust.policy import SitePolicy
from tests.peers.salt_bus import listening
from tests.peers.salt_master import SaltMaster
from tests.peers.system import System

NAMES = ["cam-00000", "cam-00001"]


@pytest.fixture(scope="module")
def site(master: SaltMaster) -> Iterator[System]:
    """A gateway that the master has accepted, with a swarm."""
    with System() as system:
        upstream = {"type": "salt", "masters": [master.address], "acceptance_wait_time": 1, "random_reauth_delay": 0.5}
        granted = SitePolicy(org={"salt": ("looks",)})
        system.add_gateway("lisbon", granted=granted, upstream=upstream, broker={"mode": "embedded"})
        master.accept("lisbon")
        system.add_swarm(len(NAMES), "lisbon")
        system.present(len(NAMES), "lisbon")
        system.until(lambda: system.view("lisbon")["uplink"]["state"] == "connected", "it is connected")
        yield system


def test_a_job_of_the_gateway_is_in_the_job_cache_of_the_master(site: System, master: SaltMaster) -> None:
    jid = site.issue("lisbon", "cam-*", "test.ping")
    site.until(lambda: sorted(master.returned(jid)) == NAMES, "every answer is in the job cache")
    job = master.runner("jobs.print_job", jid)[jid]
    assert (job["Function"], job["Target"]) == ("test.ping", "cam-*")


def test_what_a_device_runs_by_its_schedule_is_returned_as_a_minion_returns_it(
    site: System, master: SaltMaster
) -> None:
    schedule = {"beat": {"function": "test.echo", "args": ["here"], "seconds": 5}}
    with listening(master) as bus:
        site.add_agent("door", "lisbon", {"schedule": schedule})
        master.until(lambda: bus.events("salt/job/*/ret/door"), "the first run")
    told = bus.events("salt/job/*/ret/door")[0][1]
    site.stop("door")
    assert (told["schedule"], told["return"], told["success"]) == ("beat", "here", True)
    assert master.returned(told["jid"]) == {"door": "here"}
    job = master.runner("jobs.print_job", told["jid"])[told["jid"]]
    assert (job["Function"], job["Target"], job["User"]) == ("test.echo", ["door"], "schedule")


def test_a_device_that_is_not_there_is_said_to_be_so_at_once(site: System, master: SaltMaster) -> None:
    (gone,) = site.add_swarm(1, "lisbon", prefix="lamp-", name="lamps")
    site.present(len(NAMES) + 1, "lisbon")
    site.stop("lamps")
    site.present(len(NAMES), "lisbon")
    answers = master.salt("lamp-*", "test.ping")
    assert answers.by_device()[gone].startswith("unreachable")
    assert answers.status != 0
    assert [row["user"] for row in site.view("lisbon", "/audit")["rows"]][:1] == [f"root@{master.address}"]
