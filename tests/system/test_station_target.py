"""A station is a target: it answers in its own name through the same jobs, and nobody means it by the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from device_agent.errors import PolicyRefused
from tests.peers.system import System, assert_exactly_once, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 3


@pytest.fixture(scope="module")
def live() -> Iterator[System]:
    with whole_system() as system:
        (system.folder / "facts").write_text("rack: 7\nfloor: 1\n")
        own = {"grains": {"floor": 4}, "grains_file": str(system.folder / "facts")}
        system.add_master(station=own)
        system.add_gateway("lisbon", "central", station={**own, "grants": ["looks", "grains.set"]})
        system.join("lisbon", grants=["changes"])
        system.add_swarm(DEVICES, "lisbon")
        system.present(DEVICES)
        yield system


def ran(system: System, station: str, tgt: str, fun: str, *arg: Any, **given: Any) -> dict[str, Any]:
    """What came of a job, by device."""
    return system.ended(station, system.issue(station, tgt, fun, *arg, **given)).by_device()


@pytest.mark.parametrize(
    ("station", "name"), [("lisbon", "lisbon-station"), ("central", "lisbon-station"), ("central", "central-station")]
)
def test_a_station_answers_in_its_own_name_once(live: System, station: str, name: str) -> None:
    jid = live.issue(station, name, "test.ping")
    ended = live.ended(station, jid)
    assert_exactly_once(ended, [name])
    assert (ended.outcomes[0].value, ended.outcomes[0].executions) == (True, 1)
    done = live.command("run", name, "grains.get", "station", "--json", station=station, status=0)
    assert "gateway" in done.out or "master" in done.out


def test_it_has_the_grains_of_its_machine_and_its_own(live: System) -> None:
    for name, role in (("lisbon-station", "gateway"), ("central-station", "master")):
        live.until(lambda: ran(live, "central", name, "grains.get", "rack")[name].value == 7, "its file of grains")  # noqa: B023 - called at once
        grains = ran(live, "central", name, "grains.items")[name].value
        assert (grains["id"], grains["station"], grains["floor"], grains["kernel"]) == (name, role, 4, "Linux")
    both = ran(live, "central", "G@station:* and G@rack:7", "test.ping", tgt_type="compound")
    assert {name: outcome.outcome for name, outcome in both.items()} == {
        "lisbon-station": "ok",
        "central-station": "ok",
    }


def test_nobody_means_it_by_the_way(live: System) -> None:
    for station in ("central", "lisbon"):
        assert len(ran(live, station, "*", "test.ping")) == DEVICES
        assert len(ran(live, station, "os:*", "test.ping", tgt_type="grain")) == DEVICES
        view = live.view(station)
        assert (view["devices"], view["present"]) == (DEVICES, DEVICES)
    listed = live.command("devices", "list", "--json", status=0)
    stations = {row["id"]: row for row in map(json.loads, listed.out.splitlines()) if row["id"].endswith("-station")}
    assert {name: (row["site"], row["present"]) for name, row in stations.items()} == {
        "central-station": ("central", True),
        "lisbon-station": ("lisbon", True),
    }
    matched = live.command("devices", "match", "*-station", "--json", status=0)
    assert len(matched.out.splitlines()) == 2


def test_what_touches_it_takes_a_grant_of_the_issuer_and_of_its_settings(live: System) -> None:
    refused = ran(live, "lisbon", "lisbon-station", "grains.setval", "a", 1)["lisbon-station"]
    assert (refused.outcome, "not_granted" in refused.why, "station.grants" in refused.why) == ("refused", True, True)
    shell = ran(live, "central", "lisbon-station,central-station", "cmd.run", "id", tgt_type="list")
    assert {outcome.outcome for outcome in shell.values()} == {"refused"}
    done = ran(live, "lisbon", "lisbon-station", "grains.set", "shelf", "low")["lisbon-station"]
    assert done.outcome == "ok", done
    assert "shelf: low" in (live.folder / "facts").read_text()
    sealed = ran(live, "central", "lisbon-station", "test.echo", "x", sealed=True)["lisbon-station"]
    assert (sealed.outcome, "not_sealed" in sealed.why) == ("refused", True)
    with pytest.raises(PolicyRefused):
        live.issue("lisbon", "lisbon-station", "cmd.run", "id")


def test_its_name_is_reserved(live: System) -> None:
    live.add_agent("lisbon-station", "lisbon")
    live.until(lambda: "name_taken" in live.log("lisbon-station") + live.log("lisbon"), "it is turned away")
    live.stop("lisbon-station")
    assert ran(live, "lisbon", "lisbon-station", "test.ping")["lisbon-station"].outcome == "ok"


def test_it_is_there_again_after_a_kill_and_runs_nothing_twice(live: System) -> None:
    first = live.issue("lisbon", "lisbon-station", "test.sleep", 600)
    live.until(lambda: live.waiting("lisbon", first) == {"running": 1}, "it runs")
    live.kill("lisbon")
    live.restart("lisbon")
    assert live.ended("lisbon", first).words() == {"lisbon-station": "unknown"}
    assert ran(live, "lisbon", "lisbon-station", "test.ping")["lisbon-station"].outcome == "ok"
    live.connected("lisbon")
    assert ran(live, "central", "lisbon-station", "test.ping")["lisbon-station"].outcome == "ok"


def test_it_has_values_in_the_mine(live: System) -> None:
    found = live.command("mine", "get", "*", "test.ping", "--json", station="lisbon", status=0)
    assert found.out == ""
    assert ran(live, "lisbon", "lisbon-station", "mine.get", "*", "test.ping")["lisbon-station"].value == {}
