"""A relay is a gateway that has sites of its own: what is asked at the top reaches the leaf, and no word is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.database import look
from tests.peers.system import Ended, System, assert_executed_once, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

LEAF, OWN = 40, 10
EVERYBODY = LEAF + OWN


@pytest.fixture(scope="module")
def shared() -> Iterator[System]:
    """Central, below it the relay Iberia with devices of its own, below that the site Lisbon."""
    with whole_system() as system:
        # The brokers stand beside the stations, so that devices stay connected while those are away.
        system.add_master()
        system.add_relay("iberia", "central", broker=system.add_broker("iberia-broker"))
        system.join("iberia")
        system.add_gateway("lisbon", "iberia", broker=system.add_broker("lisbon-broker"))
        system.join("lisbon", "iberia")
        system.add_swarm(LEAF, "lisbon")
        # The same ids at two sites are two devices.
        system.add_swarm(OWN, "iberia", name="own")
        yield system


@pytest.fixture
def relay(shared: System) -> System:
    for station in ("central", "iberia", "lisbon"):
        if station not in shared.children:
            shared.restart(station)
    shared.present(LEAF, "lisbon")
    shared.present(EVERYBODY, "central", "iberia")
    return shared


def assert_each_once(relay: System, ended: Ended, jid: str) -> None:
    devices = {("lisbon", f"cam-{number:05d}") for number in range(LEAF)}
    devices |= {("iberia", f"cam-{number:05d}") for number in range(OWN)}
    assert len(ended.outcomes) == EVERYBODY
    assert {(outcome.site, outcome.id) for outcome in ended.outcomes} == devices
    assert ended.job.counts == {"ok": EVERYBODY}
    assert ended.job.expected == EVERYBODY
    assert_executed_once(relay.report(), jid, LEAF)
    assert_executed_once(relay.report("own"), jid, OWN)


def test_a_job_at_the_top_reaches_every_device_and_says_which_site_it_is_of(relay: System) -> None:
    finished = relay.command("run", "*", "test.ping", "--json", status=0)
    (summary,) = finished.json("summary")
    assert summary["counts"] == {"ok": EVERYBODY}
    assert_each_once(relay, relay.ended("central", summary["jid"]), summary["jid"])
    assert relay.job("central", summary["jid"]).sites[0].site == "iberia"


def test_the_top_lists_every_device_with_its_own_site_and_the_way_to_it(relay: System) -> None:
    devices = relay.view("central", "/devices")["devices"]
    assert len(devices) == EVERYBODY
    assert {(device["site"], device["link"]) for device in devices} == {("lisbon", "iberia"), ("iberia", "iberia")}
    assert [site["site"] for site in relay.view("central", "/sites")["sites"]] == ["iberia"]


def test_what_the_leaf_says_comes_to_the_top_with_its_signature(relay: System) -> None:
    jid = relay.issue("central", "*", "test.ping")
    assert_each_once(relay, relay.ended("central", jid), jid)
    store = relay.state_of("central") / "station.sqlite"

    def unproven() -> list[str]:
        rows = look(store, "SELECT id FROM devices WHERE site = 'lisbon' AND coalesce(proven, x'') = x''")
        return [device for (device,) in rows]

    relay.until(lambda: not unproven(), "the leaf's signature is on the row of each of its devices")
    ((site, link, proven, refused),) = look(store, "SELECT site, link, proven > 0, refused FROM relayed_sites")
    assert (site, link, proven, refused) == ("lisbon", "iberia", 1, 0)
    (finding,) = [each for each in relay.command("check", "--json").json("finding") if each["check"] == "relayed"]
    assert finding["severity"] == "ok"


def test_a_job_that_was_issued_at_the_leaf_is_known_at_the_top(relay: System) -> None:
    jid = relay.issue("lisbon", "cam-0000*", "test.echo", "from the leaf")
    relay.ended("lisbon", jid)
    relay.until(lambda: relay.counts("central", jid) == {"ok": 10}, "the top has every outcome")
    ended = relay.ended("central", jid)
    assert {(outcome.site, outcome.value) for outcome in ended.outcomes} == {("lisbon", "from the leaf")}


def test_the_relay_is_killed_in_the_middle_of_a_job(relay: System) -> None:
    jid = relay.issue("central", "*", "test.sleep", 2)
    relay.until(lambda: relay.job("central", jid).expected == EVERYBODY, "the top knows who will answer")
    relay.kill("iberia")
    relay.restart("iberia")
    assert_each_once(relay, relay.ended("central", jid), jid)


def test_the_mine_of_the_leaf_is_known_at_the_relay_and_at_the_top(relay: System) -> None:
    jid = relay.issue("central", "cam-00001", "mine.send", "test.ping")
    relay.until(lambda: relay.counts("central", jid) == {"ok": 2}, "both devices of that name have told it")
    for station in ("iberia", "central"):
        relay.until(
            lambda: (
                {
                    (row["site"], row["device"])
                    for row in relay.command("mine", "show", "cam-00001", "--json", station=station).json("value")  # noqa: B023 - called at once
                }
                == {("lisbon", "cam-00001"), ("iberia", "cam-00001")}
            ),
            f"{station} knows both",
        )


def test_the_leaf_is_killed_in_the_middle_of_a_job(relay: System) -> None:
    jid = relay.issue("central", "*", "test.sleep", 2)
    relay.until(lambda: relay.job("central", jid).expected == EVERYBODY, "the top knows who will answer")
    relay.kill("lisbon")
    relay.restart("lisbon")
    assert_each_once(relay, relay.ended("central", jid), jid)


def test_every_station_is_killed_in_the_middle_of_a_job(relay: System) -> None:
    jid = relay.issue("central", "*", "test.sleep", 2)
    relay.until(lambda: relay.job("central", jid).expected == EVERYBODY, "the top knows who will answer")
    for station in ("central", "iberia", "lisbon"):
        relay.kill(station)
    for station in ("lisbon", "iberia", "central"):
        relay.restart(station)
    assert_each_once(relay, relay.ended("central", jid), jid)


def test_a_cancel_at_the_top_reaches_the_devices_of_the_leaf(relay: System) -> None:
    busy = relay.occupy("lisbon", "*", LEAF, 10)
    jid = relay.issue("central", "*", "test.ping")
    relay.until(lambda: relay.job("central", jid).counts == {"ok": OWN}, "the relay's own devices have answered")
    relay.stations["central"].cancel(jid)
    assert relay.ended("central", jid).job.counts == {"ok": OWN, "cancelled": LEAF}
    for other in busy:
        assert relay.ended("central", other).job.counts == {"ok": LEAF}
    executed = relay.report()["executed"]
    assert jid not in executed


def test_a_dark_leaf_is_said_to_be_dark_and_the_rest_is_ok(relay: System) -> None:
    relay.stop("lisbon")
    relay.until(lambda: not relay.site_state("lisbon", "iberia"), "the relay knows that its site is dark")
    finished = relay.command("run", "*", "test.ping", "--json", "--expires", "15s", status=1)
    (summary,) = finished.json("summary")
    assert summary["counts"] == {"ok": OWN, "site_dark": LEAF}
    dark = [outcome for outcome in finished.json("outcome") if outcome["outcome"] == "site_dark"]
    assert {outcome["site"] for outcome in dark} == {"lisbon"}
    relay.restart("lisbon")
