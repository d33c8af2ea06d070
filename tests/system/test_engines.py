"""Engines of a real station: files that were written for Salt run as they are, and none outlives its station."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from device_agent.clock import Clock
from tests.peers.processes import processes, runs
from tests.peers.released import RELEASE_KEY, lay, release
from tests.peers.system import ROOT, System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

ECHO = '''
"""Answers each question on the bus, with what the station itself says."""

import salt.utils.event


def start(tag, words="so"):
    with salt.utils.event.get_event("master", sock_dir=__opts__["sock_dir"], opts=__opts__, listen=True) as bus:
        for event in bus.iter_events(tag=tag, full=True):
            said = __salt__["test.echo"](event["data"]["say"])
            bus.fire_event({"said": said, "words": words, "heard": event["tag"]}, "site/answer/1")
            __salt__["event.send"]("site/answer/2", {"role": __opts__["__role"]}, site=__opts__["id"])
'''
RUNAWAY = """
import os, time

def start(pids):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        open(pids, "w").write(str(os.getpid()))
        time.sleep(10000)
    while True:
        pass
"""
CRASHING = "def start():\n    raise RuntimeError('no way')\n"
BROUGHT = "import time\n\ndef start():\n    print('brought and signed')\n    time.sleep(10000)\n"


def engines(system: System, station: str) -> dict[str, dict[str, Any]]:
    return {view["name"]: view for view in system.view(station, "/engines")["engines"]}


def metrics(system: System) -> str:
    return system.ask("lisbon", "GET", "/metrics")[1].decode()


def lines(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []


def events(system: System, station: str, pattern: str) -> list[dict[str, Any]]:
    done = system.command("events", pattern, "--no-follow", "--history", "100", "--json", station=station, status=0)
    return done.json("event")


def until_state(system: System, station: str, state: str, *names: str) -> None:
    system.until(lambda: all(engines(system, station)[name]["state"] == state for name in names), f"{names} {state}")


@pytest.fixture(scope="module")
def site() -> Iterator[System]:
    with whole_system() as system:
        folder = system.folder / "engines"
        folder.mkdir(mode=0o755)
        lay(folder, {"echo.py": ECHO, "runaway.py": RUNAWAY, "crashing.py": CRASHING})
        lay(folder, {"event_log.py": (ROOT / "examples" / "engines" / "event_log.py").read_text()})
        for file in folder.iterdir():
            file.chmod(0o644)
        system.add_gateway(
            "lisbon",
            engines_dirs=[str(folder)],
            engines=[
                "event_log",
                {"echo": {"tag": "site/question"}},
                {"runaway": {"pids": str(system.folder / "pids")}},
                "crashing",
                {"event_to_file": {"path": str(system.folder / "events.jsonl"), "tag": "site/"}},
                {"camera-log": {"engine_module": "logtail", **log_options(system.folder)}},
            ],
        )
        until_state(system, "lisbon", "running", "event_log", "echo", "runaway", "event_to_file", "camera-log")
        yield system


def log_options(folder: Path) -> dict[str, Any]:
    return {
        "path": str(folder / "cam*.log"),
        "pattern": r"user (?P<user>\w+) failed",
        "tag": "site/log/login",
        "interval": 0.1,
        "from_start": True,
    }


def test_a_file_written_for_salt_hears_the_bus_and_runs_unchanged(site: System) -> None:
    site.command("fire", "site/heard", "{door: north}", station="lisbon", status=0)
    site.until(lambda: '"door": "north"' in site.log("lisbon"), "the event is in the log")
    (line,) = [line for line in site.log("lisbon").splitlines() if '"door": "north"' in line]
    assert "INFO    gateway.engines.supervisor engine event_log: engines.event_log: {" in line


def test_it_fires_events_and_calls_functions_of_the_station(site: System) -> None:
    site.command("fire", "site/question", "{say: hello}", station="lisbon", status=0)
    site.until(lambda: events(site, "lisbon", "site/answer/2"), "both answers are there")
    (first,), (second,) = events(site, "lisbon", "site/answer/1"), events(site, "lisbon", "site/answer/2")
    assert {**first["data"], "_stamp": ""} == {
        "said": "hello", "words": "so", "heard": "site/question", "_stamp": ""
    }  # fmt: skip
    assert (second["data"]["role"], second["data"]["site"]) == ("master", "lisbon")


def test_events_go_to_a_file_and_lines_of_a_file_become_events(site: System) -> None:
    (site.folder / "cam-7.log").write_text("all well\nuser eve failed\n")
    written = site.folder / "events.jsonl"
    site.until(lambda: [each for each in lines(written) if each["data"].get("user") == "eve"], "the line came through")
    (found,) = [each for each in lines(written) if each["data"].get("user") == "eve"]
    assert found["data"]["line"] == "user eve failed"
    assert found["data"]["path"].endswith("cam-7.log")


def test_how_each_does_is_listed_counted_and_checked(site: System) -> None:
    site.until(lambda: engines(site, "lisbon")["crashing"]["starts"] >= 4, "it was started again and again")
    site.until(lambda: "engine crashing does not run" in site.command("check", station="lisbon").out, "it is found")

    def is_listed() -> bool:
        # While it is started once more nothing of it waits, and there is nothing to say.
        listed = site.command("engines", "list", station="lisbon")
        return listed.status == 1 and "crashing.py:2: RuntimeError: no way" in listed.error

    site.until(is_listed, "it is listed with why it ended")
    names = [view["name"] for view in site.command("engines", "list", "--json", station="lisbon").json("engine")]
    assert names == ["event_log", "echo", "runaway", "crashing", "event_to_file", "camera-log"]
    (site.folder / "cam-9.log").write_text("user bob failed\n")
    counted = 'outstation_engine_counted_total{engine="camera-log",what="fired"}'
    site.until(lambda: counted in metrics(site), "it is counted")
    assert 'outstation_engine_running{engine="echo"} 1' in metrics(site)
    # For a moment of each start it runs.
    site.until(lambda: 'outstation_engine_running{engine="crashing"} 0' in metrics(site), "it does not run")
    before = engines(site, "lisbon")["echo"]["pid"]
    site.command("engines", "restart", "echo", station="lisbon", status=0)
    site.until(lambda: engines(site, "lisbon")["echo"]["pid"] not in (None, before), "it is another process")
    site.command("engines", "restart", "nobody", station="lisbon", status=2)


def test_a_station_that_is_killed_leaves_no_process_of_an_engine(site: System) -> None:
    until_state(site, "lisbon", "running", "runaway")
    site.until((site.folder / "pids").exists, "it has got away")
    escaped = int((site.folder / "pids").read_text())
    assert runs(escaped)
    site.kill("lisbon")
    site.until(lambda: not runs(escaped), "what had got away has ended")
    site.until(
        lambda: not [each for each in processes(str(site.folder)) if "engines.warden" in each], "no engine is left"
    )
    site.restart("lisbon")
    until_state(site, "lisbon", "running", "event_log", "echo", "runaway")


def test_an_engine_comes_from_the_files_of_the_master_when_it_was_signed(tmp_path: Path) -> None:
    root = lay(tmp_path / "salt", {"_engines/door.py": BROUGHT})
    with whole_system() as system:
        system.add_master("central", file_roots={"base": [str(root)]}, files={"fresh_seconds": 0.0})
        roots = sorted(system.fleet.ceremony.folder.glob("root-*.key"))
        system.fleet.ceremony.add_release_key(RELEASE_KEY.public, roots, Clock().wall())
        system.publish_fleet("central")
        grants = ["looks", "saltutil.*"]
        system.add_gateway(
            "lisbon", "central", files={"fresh_seconds": 0.0}, station={"grants": grants}, engines=["door"]
        )
        system.join("lisbon")
        system.until(lambda: "there is no engine door" in engines(system, "lisbon")["door"]["why"], "it is not there")

        def synced() -> str:
            jid = system.issue("central", "lisbon-station", "saltutil.sync_engines")
            return system.ended("central", jid).words()["lisbon-station"]

        assert synced() == "failed"
        release(root)
        system.until(lambda: synced() == "ok", "it was brought")
        system.command("engines", "restart", "door", station="lisbon", status=0)
        until_state(system, "lisbon", "running", "door")
        assert engines(system, "lisbon")["door"]["source"] == "salt://_engines/door.py"
        system.until(lambda: "engine door: brought and signed" in system.log("lisbon"), "it has said so")
        kept = system.state_of("lisbon") / "custom" / "_engines" / "door.py"
        kept.write_text(BROUGHT + "# altered\n")
        system.command("engines", "restart", "door", station="lisbon", status=0)
        system.until(lambda: "altered" in engines(system, "lisbon")["door"]["why"], "what was altered does not run")
