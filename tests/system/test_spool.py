"""The spool as an operator meets it: the ledger, its recount, and the drill, on real processes."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.rehearsal import program
from tests.peers.system import System, assert_exactly_once, one_site

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 10
IDS = [f"cam-{number:05d}" for number in range(DEVICES)]


@pytest.fixture(scope="module")
def site() -> Iterator[System]:
    with one_site(DEVICES) as system:
        yield system


def ledger(system: System, station: str = "lisbon") -> dict[str, dict[str, Any]]:
    (found,) = system.command("spool", "status", "--json", station=station, status=0).json("spool")
    return {entry["class"]: entry for entry in found["classes"]}


def drill_runs(system: System) -> bool:
    (found,) = system.command("spool", "status", "--json", station="lisbon", status=0).json("spool")
    return bool(found["drill"]["running"])


def adds_up(entries: dict[str, dict[str, Any]]) -> bool:
    return all(
        entry["accepted"] == entry["delivered"] + entry["pending"] + sum(entry["dropped"].values())
        for entry in entries.values()
    )


def test_the_ledger_of_a_site_adds_up_and_is_equal_to_its_rows(site: System) -> None:
    before = ledger(site)
    assert_exactly_once(site.ended("lisbon", site.issue("lisbon", "*", "test.ping")), IDS)
    site.until(lambda: ledger(site)["returns"]["pending"] == 0, "all has gone up")
    after = ledger(site)
    assert adds_up(after)
    # A definition, a page, an outcome of each and the close.
    assert after["returns"]["delivered"] - before["returns"]["delivered"] == DEVICES + 3
    (recount,) = site.command("spool", "verify", "--json", station="lisbon", status=0).json("recount")
    assert recount["equal"] is True
    table = site.command("spool", "status", station="lisbon", status=0).out.splitlines()
    assert table[0].split() == ["CLASS", "ACCEPTED", "DELIVERED", "PENDING", "SIZE", "OF", "DROPPED"]
    assert [line.split()[0] for line in table[1:]] == ["returns", "events", "audit", "telemetry"]
    status, metrics = site.ask("lisbon", "GET", "/metrics")
    assert status == 200
    assert f'outstation_spool_delivered_total{{class="returns"}} {after["returns"]["delivered"]}' in metrics.decode()


def test_a_master_shows_what_a_site_says_beside_what_has_come(site: System) -> None:
    def reconciled() -> bool:
        (found,) = site.command("spool", "status", "--json", status=0).json("spool")
        classes = {entry["class"]: entry for told in found["sites"] for entry in told["classes"]}
        mine = ledger(site)
        return bool(classes) and all(
            entry["missing"] == 0
            and entry["received"] == entry["confirmed"] == mine[name]["delivered"]
            and entry["accepted"] == mine[name]["accepted"]
            for name, entry in classes.items()
        )

    site.until(reconciled, "both say the same")


def test_a_drill_cuts_the_uplink_and_loses_nothing(site: System) -> None:
    before = len(_events(site, "outstation/station/lisbon/drill"))
    drill = subprocess.Popen(
        [*program(), "--socket", str(site.socket_of("lisbon")), "spool", "drill", "--for", "30s"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        site.until(lambda: drill_runs(site), "the drill")
        assert site.command("spool", "drill", "--for", "1s", station="lisbon").status == 2
        site.until(lambda: site.view("lisbon")["uplink"]["state"] == "cut", "the link is cut")
        jid = site.issue("lisbon", "*", "test.echo", "in the dark")
        assert_exactly_once(site.ended("lisbon", jid), IDS)
        out, error = drill.communicate(timeout=120)
    finally:
        drill.kill()
        drill.wait()
    assert drill.returncode == 0, error
    assert out.count("returns") == 2
    assert "none dropped" in error
    site.connected("lisbon")
    site.until(lambda: site.counts("central", jid) == {"ok": DEVICES}, "the master has what was done in the dark")
    told = [event["data"]["drill"] for event in _events(site, "outstation/station/lisbon/drill")]
    assert told[before:] == ["begun"]


def test_a_drill_ends_when_whoever_began_it_does_not_want_it_any_more(site: System) -> None:
    drill = subprocess.Popen(
        [*program(), "--socket", str(site.socket_of("lisbon")), "spool", "drill", "--for", "1h"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        site.until(lambda: drill_runs(site), "the drill")
        drill.send_signal(signal.SIGINT)
        assert drill.wait(timeout=60) == 130
    finally:
        drill.kill()
        drill.wait()
    assert not drill_runs(site)
    site.connected("lisbon")


def test_a_drill_is_ended_by_somebody_else_and_makes_no_sense_on_a_master(site: System) -> None:
    status, _ = site.ask("lisbon", "POST", "/spool/drill", b'{"seconds": 3600}', {"content-type": "application/json"})
    assert status == 200
    assert site.view("lisbon")["uplink"]["state"] in ("cut", "connected", "disconnected")
    finished = site.command("spool", "drill", "--end", station="lisbon", status=0)
    assert "mended" in finished.error
    site.connected("lisbon")
    refused = site.command("spool", "drill", "--for", "10s")
    assert (refused.status, refused.out) == (2, "")
    assert "no uplink to cut" in refused.error


@pytest.mark.parametrize("words", [["--for", "never"], [], ["--for", "10s", "--end"], ["--for", "2d"]])
def test_a_drill_without_a_length_is_a_mistake(words: list[str], site: System) -> None:
    assert site.command("spool", "drill", *words, station="lisbon").status == 2
    assert not drill_runs(site)


def _events(site: System, tag: str) -> list[dict[str, Any]]:
    words = ["events", tag, "--history", "100", "--no-follow", "--json"]
    return site.command(*words, station="lisbon", status=0).json("event")
