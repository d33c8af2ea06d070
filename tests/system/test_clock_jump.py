"""A clock that jumps by a day, either way, at a gateway, a master and a device, and is set right again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.jumping_clock import JumpingClock
from tests.peers.system import System, assert_exactly_once, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DAY = 86_400


@pytest.fixture(scope="module")
def clocks() -> dict[str, JumpingClock]:
    return {}


@pytest.fixture(scope="module")
def site(clocks: dict[str, JumpingClock]) -> Iterator[System]:
    """A master, a gateway and two devices, each with a clock of its own."""
    with whole_system() as system:
        for name in ("central", "lisbon", "cam-0"):
            clocks[name] = JumpingClock(system.folder / f"{name}.clock")
        with clocks["central"].within():
            system.add_master()
        with clocks["lisbon"].within():
            system.add_gateway("lisbon", "central")
        system.join("lisbon")
        with clocks["cam-0"].within():
            system.add_agent("cam-0", "lisbon")
        system.present(1)
        yield system


def assert_all_answer(site: System, *names: str) -> None:
    # By name: those of the other tests are known here too.
    jid = site.issue("central", ",".join(names), "test.ping", tgt_type="list")
    assert_exactly_once(site.ended("central", jid), names)


def answers(site: System, name: str) -> str:
    return site.ended("central", site.issue("central", name, "test.ping")).words()[name]


def test_a_job_that_waits_is_not_expired_by_a_jump_and_what_is_kept_stays(
    site: System, clocks: dict[str, JumpingClock]
) -> None:
    before = site.issue("central", "*", "test.ping")
    site.ended("central", before)
    for name in ("lisbon", "central", "cam-0"):
        running = site.issue("central", "cam-0", "test.sleep", 8)
        site.until(lambda: site.waiting("lisbon", running) == {"running": 1}, "it runs")  # noqa: B023 - called at once
        for jump in (DAY, 0, -DAY, 0):
            clocks[name].set(jump)
            # A master that is a day behind gives jobs that expired yesterday: no device takes one.
            if (name, jump) != ("central", -DAY):
                assert_all_answer(site, "cam-0")
        assert site.ended("central", running).words() == {"cam-0": "ok"}, name
    assert site.job("central", before).state == site.job("lisbon", before).state == "closed"


@pytest.mark.parametrize("jump", [2 * DAY, -DAY])
def test_a_device_that_joined_while_the_clock_was_wrong_answers_when_it_is_right(
    site: System, clocks: dict[str, JumpingClock], jump: int
) -> None:
    name = f"cam{jump}"
    clocks["lisbon"].set(jump)
    site.until(lambda: f"seconds={jump:+d}" in site.log("lisbon"), "the gateway has seen the jump")
    site.add_agent(name, "lisbon")
    site.until(lambda: site.is_here(name, "lisbon"), "it has joined")
    clocks["lisbon"].set(0)
    # A job that comes before the device was told the right time may be refused as expired, and none after that.
    site.until(lambda: answers(site, name) == "ok", "it answers by itself")
    assert answers(site, name) == "ok"
    assert answers(site, "cam-0") == "ok"
    site.stop(name)
