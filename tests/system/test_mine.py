"""The mine over real processes: agents refresh and read it, it survives cuts and kills, and masters have it too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from device_agent.errors import PolicyRefused
from tests.peers.system import Ended, System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

FUNCTIONS = {"test.echo": ["here"], "name": [{"mine_function": "grains.get"}, "id"]}
FRESH = {"mine_functions": FUNCTIONS, "mine_interval": 0.02}
"""Refreshed all the time, so that a test waits for no minutes."""


@pytest.fixture(scope="module")
def live() -> Iterator[System]:
    """Two sites below one master, with two cameras and a recorder at one and a recorder at the other."""
    with whole_system() as system:
        system.add_master(mine={"other_sites": True})
        for site in ("lisbon", "porto"):
            system.add_gateway(site, "central", mine={"other_sites": site == "porto"})
            system.join(site, grants=["changes"])
        system.add_agent("cam-1", "lisbon", FRESH, kind="camera")
        system.add_agent("cam-2", "lisbon", FRESH, kind="camera")
        system.add_agent("rec-1", "lisbon", kind="recorder")
        system.add_agent("rec-2", "porto", kind="recorder")
        system.present(4, "central")
        yield system


def run(system: System, station: str, tgt: str, fun: str, *arg: Any, **kwarg: Any) -> Ended:
    return system.ended(station, system.issue(station, tgt, fun, *arg, kwarg=kwarg))


def value(system: System, device: str, fun: str, *arg: Any, station: str = "lisbon", **kwarg: Any) -> Any:
    """What one device returned, once it did so well."""
    outcome = run(system, station, device, fun, *arg, **kwarg).by_device()[device]
    assert outcome.outcome == "ok", outcome
    return outcome.value


def told(system: System, station: str, *words: str) -> dict[tuple[str, str], Any]:
    """What the command line prints of the mine, by device and name."""
    done = system.command("mine", *words, "--json", station=station, status=0)
    return {(row["device"], row["name"]): row for row in map(json.loads, done.out.splitlines())}


def test_what_the_settings_say_is_refreshed_from_the_start_on_and_others_read_it(live: System) -> None:
    wanted = {"cam-1": "here", "cam-2": "here"}
    live.until(lambda: value(live, "rec-1", "mine.get", "*", "test.echo") == wanted, "both cameras are in the mine")
    assert value(live, "rec-1", "mine.get", "kind:camera", "name", tgt_type="grain") == {
        "cam-1": "cam-1",
        "cam-2": "cam-2",
    }
    several = value(live, "rec-1", "mine.get", "G@kind:camera and not cam-2", "name,test.echo", "compound")
    assert several == {"name": {"cam-1": "cam-1"}, "test.echo": {"cam-1": "here"}}
    assert value(live, "cam-1", "mine.get", "cam-[12]", "name", "pcre", exclude_minion=True) == {"cam-2": "cam-2"}
    assert value(live, "cam-1", "mine.valid") == {"test.echo": ["here"], "name": {"grains.get": ["id"]}}
    valid = value(live, "cam-1", "mine.valid", age=True)
    assert valid["test.echo"]["call"] == ["here"]
    first = told(live, "lisbon", "show", "cam-1")["cam-1", "test.echo"]
    assert first["value"] == "here"
    live.until(
        lambda: told(live, "lisbon", "show", "cam-1")["cam-1", "test.echo"]["kept"] > first["kept"], "another refresh"
    )
    assert "outstation_mine_oldest_seconds" in live.ask("lisbon", "GET", "/metrics")[1].decode()


def test_values_are_sent_kept_from_others_and_taken_back(live: System) -> None:
    sent = value(live, "rec-1", "mine.send", "secret", "x", mine_function="test.echo", allow_tgt="cam-1")
    assert sent is True
    assert value(live, "cam-1", "mine.get", "rec-1", "secret") == {"rec-1": "x"}
    assert value(live, "cam-2", "mine.get", "rec-1", "secret") == {}
    assert value(live, "rec-1", "mine.get", "rec-1", "secret") == {}
    shown = told(live, "lisbon", "show", "rec-1")["rec-1", "secret"]
    assert (shown["value"], shown["allow_tgt"]) == ("x", "cam-1")
    failed = run(live, "lisbon", "rec-1", "mine.send", "test.exception", "no film").by_device()["rec-1"]
    assert (failed.outcome, failed.value) == ("failed", False)
    wrong = run(
        live,
        "lisbon",
        "rec-1",
        "mine.send",
        "bad",
        "y",
        mine_function="test.echo",
        allow_tgt="(",
        allow_tgt_type="pcre",
    )
    assert "bad_target" in str(wrong.by_device()["rec-1"].why)
    large = run(live, "lisbon", "rec-1", "mine.send", "large", "y" * 70_000, mine_function="test.echo")
    assert "at most" in str(large.by_device()["rec-1"].why)
    assert value(live, "rec-1", "mine.delete", "secret") is True
    assert value(live, "cam-1", "mine.get", "rec-1", "secret") == {}
    assert value(live, "rec-1", "mine.send", "test.ping") is True
    assert value(live, "rec-1", "mine.flush") is True
    assert value(live, "cam-1", "mine.get", "rec-1", "test.ping") == {}
    assert live.command("mine", "show", "rec-1", station="lisbon").status == 2


def test_what_may_not_be_ordered_may_not_be_put_into_the_mine_either(live: System) -> None:
    for words in (("cmd.run", "id"), ("file.read", "/etc/shadow"), ("no.such",)):
        with pytest.raises(PolicyRefused, match="not granted to this site"):
            live.issue("lisbon", "rec-1", "mine.send", *words)


def test_masters_have_it_and_answer_other_sites_where_both_say_so(live: System) -> None:
    asked = ("get", "-G", "kind:camera", "name,test.echo")
    live.until(lambda: len(told(live, "central", *asked)) == 4, "the master is told of both by both cameras")
    found = told(live, "central", *asked)
    assert {key: row["value"] for key, row in found.items()} == {
        ("cam-1", "name"): "cam-1",
        ("cam-2", "name"): "cam-2",
        ("cam-1", "test.echo"): "here",
        ("cam-2", "test.echo"): "here",
    }
    assert {row["site"] for row in found.values()} == {"lisbon"}
    assert value(live, "rec-2", "mine.get", "cam-*", "name", station="porto") == {"cam-1": "cam-1", "cam-2": "cam-2"}
    # The other site's devices are answered with their own site alone.
    assert value(live, "rec-2", "mine.send", "test.ping", station="porto") is True
    live.until(lambda: told(live, "central", "get", "rec-2", "test.ping"), "the master is told of it")
    assert value(live, "rec-1", "mine.get", "rec-2", "test.ping") == {}
    assert value(live, "rec-1", "mine.send", "private", "x", mine_function="test.echo", allow_tgt="cam-*") is True
    live.until(lambda: told(live, "central", "get", "rec-1", "private"), "the master is told of this too")
    assert value(live, "rec-2", "mine.get", "rec-1", "private", station="porto") == {}
    assert value(live, "rec-2", "mine.flush", station="porto") is True
    live.until(lambda: not told(live, "central", "get", "rec-2", "test.ping"), "the master is told that it is gone")


def test_it_is_answered_at_the_site_without_masters_and_after_a_kill(live: System) -> None:
    assert value(live, "rec-1", "mine.send", "kept", "for long", mine_function="test.echo") is True
    before = told(live, "lisbon", "show", "rec-1")["rec-1", "kept"]["kept"]
    live.kill("central")
    assert value(live, "cam-1", "mine.get", "rec-*", "kept") == {"rec-1": "for long"}
    assert value(live, "rec-2", "mine.get", "*", "name", station="porto") == {}
    assert live.counters("porto")["mine_own_site_only"] >= 1
    live.kill("lisbon")
    live.restart("lisbon")
    live.until(lambda: live.is_here("cam-1", "lisbon"), "the camera is back")
    assert value(live, "cam-1", "mine.get", "rec-*", "kept") == {"rec-1": "for long"}
    assert told(live, "lisbon", "show", "rec-1")["rec-1", "kept"]["kept"] == before
    live.restart("central")
    live.until(lambda: told(live, "central", "get", "rec-1", "kept"), "the master is told what it has missed")
