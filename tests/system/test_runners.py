"""Runners of a live gateway: what they return at the command line, and what a kill in the middle of one leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.peers.system import System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

SLEEP = """\
wait:
  runner.test.sleep:
    - args:
      - s_time: {{ data['seconds'] }}
"""
PING = "ping: {local.test.ping: [{tgt: cam-1}]}\n"


@pytest.fixture(scope="module")
def site() -> Iterator[System]:
    with whole_system() as system:
        (system.folder / "sleep.sls").write_text(SLEEP)
        (system.folder / "ping.sls").write_text(PING)
        system.add_gateway("lisbon", reactor=[{"site/sleep": str(system.folder / "sleep.sls")}])
        system.add_agent("cam-1", "lisbon")
        system.until(lambda: system.is_here("cam-1", "lisbon"), "the device is here")
        yield system


def called(site: System, *words: str, status: int = 0) -> dict[str, Any]:
    """A runner's end, as the command line tells it to a script."""
    done = site.command("runner", *words, "--json", station="lisbon", status=status)
    (told,) = done.json("call")
    return dict(told)


def ended(site: System, jid: str) -> dict[str, Any]:
    """Wait until a call has ended."""
    site.until(lambda: site.view("lisbon", f"/calls/{jid}")["state"] != "open", f"call {jid} has ended")
    return dict(site.view("lisbon", f"/calls/{jid}"))


def test_runners_answer_at_the_command_line(site: System) -> None:
    assert called(site, "manage.status")["value"] == {"up": ["cam-1"], "down": []}
    assert called(site, "manage.up")["value"] == ["cam-1"]
    assert site.command("runner", "manage.present", station="lisbon", status=0).out == "- cam-1\n"
    job = called(site, "jobs.last_run", "function=test.ping")["value"]
    ((jid, told),) = job.items()
    assert (told["Function"], told["Result"]) == (
        "test.ping",
        {"cam-1": {"return": True, "retcode": 0, "success": True}},
    )
    assert called(site, "jobs.lookup_jid", jid)["value"] == {"cam-1": True}
    assert called(site, "event.send", "site/told", "{door: north}")["value"] is True
    help_text = site.command("runner", "doc.runner", "event.send", station="lisbon", status=0).out
    assert "Fire an event of this station" in help_text
    detached = site.command("runner", "test.sleep", "0.01", "--async", station="lisbon", status=0).out.strip()
    assert ended(site, detached)["value"] is True
    assert called(site, "test.sleep", "100", "--timeout", "1s", status=1)["state"] == "timed_out"
    site.command("runner", "manage.upp", station="lisbon", status=2)
    site.command("runner", "manage.up", "taget=x", station="lisbon", status=2)


def test_wheels_answer_at_the_command_line(site: System) -> None:
    done = site.command("wheel", "key.list_all", "--json", station="lisbon", status=0)
    (told,) = done.json("call")
    assert (told["value"]["minions"], told["value"]["minions_pre"]) == (["cam-1"], [])
    site.command("wheel", "config.apply", "log_level", "debug", station="lisbon", status=8)
    shown = site.command("wheel", "config.values", station="lisbon", status=0).out
    assert "name: lisbon" in shown
    assert called(site, "cache.grains", "cam-1")["value"]["cam-1"]["id"] == "cam-1"
    pillar = called(site, "cache.pillar", "cam-1")
    assert pillar["value"] == {"cam-1": {}}
    event = site.command("events", f"salt/run/{pillar['jid']}/ret", "--no-follow", "--json", station="lisbon").out
    assert json.loads(event)["data"]["return"] == "for who asked alone"


def test_a_rule_that_is_added_counts_at_once_and_after_a_restart(site: System) -> None:
    path = str(site.folder / "ping.sls")
    assert called(site, "reactor.add", "site/added", path)["value"] == {"status": True, "comment": "Reactor added."}

    def reacted(times: int) -> bool:
        done = site.command("reactor", "why", "site/added", "--json", station="lisbon")
        made = [json.loads(line) for line in done.out.splitlines()]
        return sum(bool(reaction["outcomes"]) for event in made for reaction in event["reactions"]) == times

    site.command("fire", "site/added", station="lisbon", status=0)
    site.until(lambda: reacted(1), "the rule was followed")
    site.kill("lisbon")
    site.restart("lisbon")
    site.command("fire", "site/added", station="lisbon", status=0)
    site.until(lambda: reacted(2), "the rule is there after a kill")
    assert {"site/added": [path]} in called(site, "reactor.list")["value"]
    listed = site.command("reactor", "list", station="lisbon", status=0).out
    assert [line.split()[1:] for line in listed.splitlines() if line.startswith("site/added ")] == [["added", path]]
    assert called(site, "reactor.delete", "site/added")["value"]["status"] is True


def test_a_gateway_killed_in_the_middle_of_a_call_ends_it_once(site: System) -> None:
    typed = site.command("runner", "test.sleep", "300", "--async", station="lisbon", status=0).out.strip()
    site.command("fire", "site/sleep", "{seconds: 3}", station="lisbon", status=0)

    def of_reaction() -> list[str]:
        calls = site.view("lisbon", "/calls")["calls"]
        return [call["jid"] for call in calls if call["user"] == "Reactor"]

    site.until(lambda: bool(of_reaction()), "the reaction's call is on disk")
    (jid,) = of_reaction()
    site.kill("lisbon")
    site.restart("lisbon")
    interrupted = ended(site, typed)
    assert (interrupted["state"], interrupted["retcode"]) == ("interrupted", 1)
    made = ended(site, jid)
    assert (made["state"], made["value"]) == ("ok", True)
    assert of_reaction() == [jid]
    told = site.command("reactor", "why", jid, station="lisbon", status=0).out
    assert "runner.test.sleep" in told
    assert "lisbon-station of lisbon: ok true" in told
    history = site.command("events", "salt/run/*/ret", "--history", "100", "--no-follow", "--json", station="lisbon")
    ends = [json.loads(line)["data"] for line in history.out.splitlines()]
    assert {each["jid"]: each["success"] for each in ends if each["jid"] in (typed, jid)} == {typed: False, jid: True}
    assert len([each for each in ends if each["jid"] in (typed, jid)]) == 2


def test_what_is_to_come_later_comes_also_after_a_kill_and_once(site: System) -> None:
    words = ("delay.runner", "4", "salt.execute", "[cam-1, test.echo, [late]]")
    jid = site.command("runner", *words, "--async", station="lisbon", status=0).out.strip()
    site.kill("lisbon")
    site.restart("lisbon")
    made = ended(site, jid)
    assert (made["state"], made["value"]) == ("ok", {"cam-1": "late"})
    assert made["ended"] - made["accepted"] >= 4
    inner = [call for call in site.view("lisbon", "/calls")["calls"] if call["parent"] == jid]
    assert [call["fun"] for call in inner] == ["salt.execute"]
    missed = called(site, "salt.execute", "cam-1", "test.false", status=0)
    assert missed["value"] == {"cam-1": False}
    assert called(site, "salt.execute", "none-*", "test.ping", status=1)["value"] == {}
