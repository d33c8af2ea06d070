"""Schedules over real processes: of a gateway, of a master and of a device, through kills and a cut uplink."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from device_agent.clock import Clock
from tests.peers.system import System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


def soon(seconds: float) -> str:
    return datetime.fromtimestamp(Clock().wall() + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@pytest.fixture(scope="module")
def live() -> Iterator[System]:
    """A master, and a site with a broker that outlives its gateway, and a camera with a schedule of its own."""
    with whole_system() as system:
        system.add_master()
        system.add_gateway(
            "lisbon",
            "central",
            broker=system.add_broker(),
            timezone="UTC",
            schedule={
                "often": {"function": "test.ping", "target": "cam-*", "seconds": 2},
                "own": {"function": "test.ping", "minutes": 60},
                "runner": {"function": "runner.manage.up", "minutes": 60},
                "bare": {"function": "jobs.active", "minutes": 60},
                "fails": {"function": "test.fail", "job_args": ["broken"], "target": "cam-1", "minutes": 60},
                "refused": {"function": "cmd.run", "job_args": ["id"], "target": "cam-1", "minutes": 60},
                "unmatched": {"function": "test.ping", "target": "door-*", "minutes": 60},
                "later": {"function": "test.ping", "target": "cam-1", "cron": "0 5 1 1 *"},
            },
        )
        system.join("lisbon", grants=["changes"])
        schedule = {"beat": {"function": "test.echo", "args": ["here"], "seconds": 2}}
        system.add_agent("cam-1", "lisbon", {"schedule": schedule})
        system.present(1, "central")
        yield system


def entry(system: System, name: str, station: str = "lisbon") -> dict[str, Any]:
    done = system.command("schedule", "show", name, "--runs", "100", "--json", station=station, status=0)
    return dict(json.loads(done.out))


def runs(system: System, name: str) -> list[dict[str, Any]]:
    return list(entry(system, name)["runs"])


def last_ends(system: System, name: str, station: str = "lisbon") -> dict[str, int]:
    return dict((entry(system, name, station)["last"] or {}).get("ends", {}))


def returns(system: System, station: str) -> list[dict[str, Any]]:
    done = system.command(
        "events", "salt/job/*/ret/cam-1", "--history", "1000", "--no-follow", "--json", station=station, status=0
    )
    found = [json.loads(line) for line in done.out.splitlines()]
    return [event["data"] for event in found if event["data"].get("schedule") == "beat"]


def test_what_a_station_runs_are_jobs_for_devices_for_itself_and_calls(live: System) -> None:
    live.until(lambda: last_ends(live, "often") == {"ok": 1}, "a job for the camera is done")
    for name in ("own", "runner", "bare"):
        # At its first start the gateway belonged to no fleet yet.
        live.command("schedule", "run", name, station="lisbon", status=0)
        live.until(lambda: last_ends(live, name) == {"ok": 1}, f"{name} is done")  # noqa: B023 - called at once
    assert [entry(live, name)["makes"] for name in ("often", "own", "runner", "bare")] == ["job", "own", "call", "call"]
    job = live.view("lisbon", f"/jobs/{runs(live, 'own')[0]['jid']}")
    assert (job["user"], job["why"]) == ("schedule", "schedule own")
    listed = live.command("schedule", "list", station="lisbon", status=0).out
    assert "0 refused" not in listed


def test_what_fails_is_named_by_the_check_with_the_next_command(live: System) -> None:
    for name in ("fails", "refused"):
        live.command("schedule", "run", name, station="lisbon", status=0)
    live.until(lambda: last_ends(live, "fails"), "it failed")
    live.until(lambda: runs(live, "refused")[0]["state"] != "waiting", "it was refused")
    refused = entry(live, "refused")["last"]
    assert (refused["state"], refused["jid"]) == ("refused", None), refused
    found = live.command("check", station="lisbon").out
    assert "the last run of fails in the schedule did not succeed: 1 failed" in found
    assert "outstation schedule show fails" in found
    assert "the last run of refused in the schedule did not succeed: refused" in found
    assert "run of often" not in found


def test_a_run_that_no_device_matched_is_not_under_way_for_ever(live: System) -> None:
    live.command("schedule", "run", "unmatched", station="lisbon", status=0)
    live.until(lambda: runs(live, "unmatched")[0].get("job") == "closed", "its job is closed")
    assert "no device matched" in live.command("schedule", "show", "unmatched", station="lisbon", status=0).out


def test_an_entry_is_run_and_switched_by_hand_and_that_lasts(live: System) -> None:
    before = len(runs(live, "later"))
    live.command("schedule", "run", "later", station="lisbon", status=0)
    live.until(lambda: last_ends(live, "later") == {"ok": 1}, "it ran")
    assert len(runs(live, "later")) == before + 1
    assert runs(live, "later")[0]["kind"] == "asked"
    live.command("schedule", "disable", "later", station="lisbon", status=0)
    live.kill("lisbon")
    live.restart("lisbon")
    assert entry(live, "later")["enabled"] is False
    assert entry(live, "later")["next"] is None
    live.command("schedule", "enable", "later", station="lisbon", status=0)
    assert entry(live, "later")["next_local"].endswith("-01-01T05:00:00")
    live.command("schedule", "disable", station="lisbon", status=0)
    assert "switched off" in live.command("schedule", "list", station="lisbon", status=0).error
    live.command("schedule", "enable", station="lisbon", status=0)
    assert "there is no such entry" in live.command("schedule", "show", "nobody", station="lisbon", status=2).error


def test_a_gateway_that_is_killed_makes_each_run_and_none_twice(live: System) -> None:
    for _ in range(4):
        # No more are listed than asked for, so that they cannot be counted.
        newest = runs(live, "often")[0]["due"]
        live.until(lambda: runs(live, "often")[0]["due"] != newest, "it runs")  # noqa: B023 - called at once
        live.kill("lisbon")
        live.restart("lisbon")
    live.until(lambda: all(each["state"] != "waiting" for each in runs(live, "often")), "each run was made")
    found = runs(live, "often")
    made = [each["jid"] for each in found if each["state"] == "issued"]
    assert len(made) == len(set(made))
    dues = [each["due"] for each in found if each["kind"] == "due"]
    assert len(dues) == len(set(dues))
    jobs = live.view("lisbon", "/jobs?limit=1000")["jobs"]
    given = [job["jid"] for job in jobs if job["why"] == "schedule often"]
    assert set(given) >= set(made)
    # Each job has a run of its own, as far back as runs are listed: no run was made into two jobs.
    listed = {each["jid"] for each in runs(live, "often") if each["jid"]}
    assert {jid for jid in given if jid >= min(listed)} <= listed


def test_with_the_uplink_cut_everything_goes_on_and_is_told_afterwards(live: System) -> None:
    live.until(lambda: returns(live, "central"), "the master hears of the camera's runs")
    live.kill("central")
    here, ran = len(returns(live, "lisbon")), len(runs(live, "often"))
    live.until(lambda: len(returns(live, "lisbon")) > here + 2, "the camera's schedule goes on")
    live.until(lambda: len(runs(live, "often")) > min(ran + 2, 99), "the gateway's goes on")
    told = {each["jid"] for each in returns(live, "lisbon")}
    live.restart("central")
    live.until(lambda: {each["jid"] for each in returns(live, "central")} >= told, "all of it is told")
    # The camera goes on meanwhile: all that follows is about one answer.
    heard = returns(live, "central")
    one = heard[-1]
    assert (one["id"], one["fun"], one["return"], one["outcome"]) == ("cam-1", "test.echo", "here", "ok")
    assert len(heard) == len({each["jid"] for each in heard})


def test_what_was_missed_is_run_once_late_and_said(live: System) -> None:
    live.add_gateway("porto", timezone="UTC")
    live.kill("porto")
    once = {"function": "test.ping", "once": soon(-100), "run_missed": True}
    live.change("porto", schedule={"once": once})
    for _ in range(2):
        live.restart("porto")
        live.until(lambda: last_ends(live, "once", "porto") == {"ok": 1}, "it ran")
        live.kill("porto")
    live.restart("porto")
    (run,) = entry(live, "once", "porto")["runs"]
    assert run["late_seconds"] > 60
    missed = "outstation/schedule/once/missed"
    done = live.command("events", missed, "--no-follow", "--json", station="porto", status=0)
    (event,) = [json.loads(line) for line in done.out.splitlines()]
    assert (event["data"]["name"], event["data"]["runs"]) == ("once", True)


def test_what_is_wrong_is_refused_with_file_entry_and_field(live: System) -> None:
    wrong = live.folder / "wrong.yaml"
    wrong.write_text("name: x\nschedule:\n  nightly:\n    function: test.ping\n    cron: 61 * * * *\n")
    said = live.command("gateway", "run", "--config", str(wrong), station="lisbon", status=6).error
    for part in (f"{wrong}:5", "schedule.nightly.cron", "61 * * * *", "allowed"):
        assert part in said, said
