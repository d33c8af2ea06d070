"""Beacons of a real agent: a disk that is full is told, reacted to and mended, whoever was killed in between."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers.small_disk import SmallDisk, small_disk
from tests.peers.system import System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

POLICY = """\
users:
  root: admin
  reactor: admin
"""
MEND = """\
{% if data['diskusage'] > 90 %}
make room:
  local.file.remove:
    - tgt: {{ data['data']['id'] }}
    - args:
      - path: {{ data['mount'] }}/filler
{% endif %}
"""


def agent(disk: SmallDisk, **settings: Any) -> dict[str, Any]:
    return {"beacons": {"diskusage": [{str(disk.folder): "90%"}, {"interval": 0.2}]}, **settings}


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    with small_disk(tmp_path_factory.mktemp("disk") / "small", 4) as mounted:
        yield mounted


@pytest.fixture(scope="module")
def site(disk: SmallDisk) -> Iterator[System]:
    with whole_system() as system:
        (system.folder / "mend.sls").write_text(MEND)
        policy = system.folder / "policy.yaml"
        policy.write_text(POLICY)
        policy.chmod(0o600)
        system.add_master()
        system.add_gateway(
            "lisbon",
            "central",
            broker=system.add_broker(),
            policy=str(policy),
            reactor=[{"salt/beacon/*/diskusage/": str(system.folder / "mend.sls")}],
            pillar_roots={"base": [str(system.folder / "pillar")]},
        )
        system.join("lisbon", grants=["reads", "changes", "file.remove"])
        system.add_agent("cam-1", "lisbon", agent(disk))
        system.until(lambda: system.is_here("cam-1", "lisbon"), "the device is here")
        yield system


def events(site: System, tag: str) -> list[dict[str, Any]]:
    done = site.command("events", tag, "--no-follow", "--json", station="lisbon", status=0)
    return [json.loads(line) for line in done.out.splitlines()]


def told(site: System, device: str = "cam-1") -> list[dict[str, Any]]:
    return [event["data"] for event in events(site, f"salt/beacon/{device}/diskusage/")]


def value(site: System, tgt: str, fun: str, *arg: Any, **kwarg: Any) -> Any:
    outcome = site.ended("lisbon", site.issue("lisbon", tgt, fun, *arg, kwarg=kwarg)).by_device()[tgt]
    assert outcome.outcome == "ok", outcome
    return outcome.value


def test_a_full_disk_is_told_in_salts_shape_and_the_reaction_makes_room(site: System, disk: SmallDisk) -> None:
    before = len(told(site))
    disk.fill()
    site.until(lambda: len(told(site)) > before, "the beacon's event is at the gateway")
    site.until(lambda: not (disk.folder / "filler").exists(), "the reaction has made room")
    data = told(site)[-1]
    assert isinstance(data.pop("_stamp"), str)
    # How often it was found in a test before is told with it.
    data.pop("_repeats", None)
    assert data == {"id": "cam-1", "diskusage": 100.0, "mount": str(disk.folder)}
    why = site.command("reactor", "why", "salt/beacon/cam-1/diskusage/", station="lisbon", status=0).out
    assert "local.file.remove on glob cam-1" in why


def test_with_the_uplink_cut_the_site_mends_itself_and_the_master_hears_of_it_afterwards(
    site: System, disk: SmallDisk
) -> None:
    before = len(told(site))
    site.kill("central")
    disk.fill()
    site.until(lambda: not (disk.folder / "filler").exists(), "the reaction has made room")
    assert len(told(site)) == before + 1
    site.restart("central")
    tag = "salt/beacon/cam-1/diskusage/"

    def above() -> int:
        done = site.command("events", tag, "--no-follow", "--json", station="central", status=0)
        return len(done.out.splitlines())

    site.until(lambda: above() == before + 1, "the master has the event")

    def why() -> str:
        return site.command("reactor", "why", tag, station="central").out

    site.until(lambda: "file.remove" in why() and "cam-1 of lisbon: ok" in why(), "the master knows the whole chain")
    # A later test counts on the master.
    site.connected("lisbon")


def test_what_was_found_while_nobody_listened_outlives_the_agent(site: System, disk: SmallDisk) -> None:
    before = len(told(site))
    site.kill("lisbon")
    kept = site.state_of("cam-1") / "events"
    size = kept.stat().st_size
    disk.fill()
    site.until(lambda: kept.stat().st_size > size, "the event is on the device's disk")
    site.stop("cam-1", signal.SIGKILL)
    # The disk is as it was before anybody could be told: what comes now is what was kept.
    (disk.folder / "filler").rename(disk.folder / "filler.kept")
    disk.folder.joinpath("filler.kept").unlink()
    disk.folder.joinpath("filler").write_bytes(b"little")
    site.restart("lisbon")
    site.add_agent("cam-1", "lisbon", agent(disk))
    site.until(lambda: len(told(site)) == before + 1, "the event is at the gateway")
    site.until(lambda: not (disk.folder / "filler").exists(), "it was reacted to")
    assert told(site)[-1]["diskusage"] == 100.0


def test_beacons_are_changed_while_they_run_and_saved(site: System) -> None:
    added = value(site, "cam-1", "beacons.add", "memusage", [{"percent": 0}, {"interval": 0.2}])
    assert added == {"result": True, "comment": "Added beacon: memusage."}
    site.until(lambda: events(site, "salt/beacon/cam-1/memusage/"), "the new beacon tells")
    assert value(site, "cam-1", "beacons.save")["result"] is True
    site.stop("cam-1", signal.SIGKILL)
    site.add_agent("cam-1", "lisbon", {"beacons": {}})
    site.until(lambda: len(events(site, "salt/beacon/cam-1/memusage/")) > 1, "it tells after the next start as well")
    assert set(value(site, "cam-1", "beacons.list", return_yaml=False)) == {"diskusage", "memusage"}


def test_the_pillar_configures_beacons_and_a_refresh_changes_them(site: System) -> None:
    folder = site.folder / "pillar"
    folder.mkdir(exist_ok=True)
    (folder / "top.sls").write_text("base:\n  cam-2:\n    - watched\n")
    (folder / "watched.sls").write_text("beacons:\n  swapusage:\n    - percent: 100\n")
    site.add_agent("cam-2", "lisbon")
    site.until(lambda: site.is_here("cam-2", "lisbon"), "the device is here")
    site.until(
        lambda: value(site, "cam-2", "beacons.list", return_yaml=False) == {"swapusage": [{"percent": 100}]},
        "the pillar's beacon is there",
    )
    (folder / "watched.sls").write_text("beacons:\n  memusage:\n    - percent: 0%\n")
    assert value(site, "cam-2", "saltutil.refresh_pillar") is True
    site.until(lambda: events(site, "salt/beacon/cam-2/memusage/"), "the other beacon tells")


def test_an_agent_whose_own_disk_is_full_still_says_so(site: System) -> None:
    with small_disk(site.state_of("cam-3"), 4) as own:
        site.add_agent("cam-3", "lisbon", {"beacons": {"load": [{"averages": {"1m": [0, 1e6]}}]}})
        site.until(lambda: site.is_here("cam-3", "lisbon"), "the device is here")
        assert value(site, "cam-3", "beacons.add", "diskusage", [{str(own.folder): "95%"}, {"interval": 0.2}])["result"]
        own.fill()
        site.until(lambda: told(site, "cam-3"), "the full disk is told")
        assert told(site, "cam-3")[0]["mount"] == str(own.folder)
        site.stop("cam-3", signal.SIGKILL)


def test_a_station_watches_its_own_machine(site: System, disk: SmallDisk) -> None:
    site.change("lisbon", station={"beacons": {"ps": [{"processes": {"mosquitto": "running"}}]}})
    site.stop("lisbon")
    site.restart("lisbon")
    site.until(lambda: events(site, "salt/beacon/lisbon-station/ps/"), "the station's own beacon tells")
    data = events(site, "salt/beacon/lisbon-station/ps/")[0]["data"]
    assert (data["id"], data["mosquitto"]) == ("lisbon-station", "Running")


def test_a_beacon_that_is_wrong_says_so(site: System, tmp_path: Path) -> None:
    wrong = value(site, "cam-1", "beacons.add", "diskusage2", [{"/": "x"}, {"beacon_module": "diskusage"}])
    assert wrong["result"] is False
    assert "Configuration for diskusage beacon option / must be a percentage." in wrong["comment"]
