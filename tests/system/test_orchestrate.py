"""Orchestrations over real devices: from the command line, from a reaction, and through kills of the gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.peers.system import System, assert_executed_once, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 5
STEPS = 9
DEPLOY = """\
{% set version = pillar.get('version', 0) %}
announce:
  salt.runner:
    - name: event.send
    - tag: site/deploy/{{ version }}
    - data: {version: {{ version }}}
everywhere:
  salt.function:
    - name: test.echo
    - tgt: '*'
    - arg: ['version {{ version }}']
    - require: [{salt: announce}]
states:
  salt.state:
    - tgt: cam-00001
    - highstate: True
    - require: [{salt: everywhere}]
clean_up:
  salt.function:
    - name: test.ping
    - tgt: cam-00002
    - onfail: [{salt: states}]
"""
LONG = """\
{% for number in range(9) %}
step{{ number }}:
  salt.function:
    - name: test.sleep
    - tgt: '*'
    - arg: [0.5]
    {% if number %}- require: [{salt: step{{ number - 1 }}}]{% endif %}
{% endfor %}
"""
REACT = """\
go:
  runner.state.orchestrate:
    - args:
      - mods: orch.deploy
      - pillar:
          version: {{ data['version'] }}
"""


@pytest.fixture(scope="module")
def site() -> Iterator[System]:
    with whole_system() as system:
        orch = system.folder / "salt" / "orch"
        orch.mkdir(parents=True)
        (orch / "deploy.sls").write_text(DEPLOY)
        (orch / "long.sls").write_text(LONG)
        (system.folder / "react.sls").write_text(REACT)
        roots = {"base": [str(system.folder / "salt")]}
        rules = [{"site/wanted": str(system.folder / "react.sls")}]
        system.add_master()
        system.add_gateway("lisbon", "central", file_roots=roots, reactor=rules)
        system.join("lisbon", grants=["looks", "state.*"])
        system.add_swarm(DEVICES, "lisbon")
        system.present(DEVICES, "lisbon")
        yield system


def call(site: System, jid: str) -> dict[str, Any]:
    return site.view("lisbon", f"/calls/{jid}")


def steps(view: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["__id__"]: each for each in view["value"]["data"]["lisbon_master"].values()}


def test_an_orchestration_is_run_told_step_by_step_and_ends_with_salts_summary(site: System) -> None:
    done = site.command("runner", "state.orchestrate", "orch.deploy", "pillar={version: 7}", station="lisbon", status=1)
    assert "2 of 4: everywhere: ok; Function ran successfully." in done.error
    assert "Comment: Run failed on minions: cam-00001" in done.out
    assert "cam-00001: refused: unknown_function: there is no state.highstate here" in done.out
    assert "Succeeded: 3 (changed=4)\nFailed:    1" in done.out
    assert "cam-00004: version 7" in done.out
    words = ("events", "site/deploy/7", "--history", "9", "--no-follow", "--json")
    (event,) = [json.loads(line) for line in site.command(*words, station="lisbon", status=0).out.splitlines()]
    assert event["data"]["version"] == 7
    (job,) = [each for each in site.view("lisbon", "/jobs?limit=100")["jobs"] if each["fun"].startswith("state.")]
    assert (job["fun"], job["arg"], job["kwarg"]) == ("state.highstate", [], {"queue": False, "concurrent": False})
    shown = site.command("runner", "state.orchestrate_show_sls", "orch.deploy", station="lisbon", status=0).out
    assert "salt_|-everywhere_|-test.echo_|-function" in shown
    wrong = site.command("runner", "state.orch", "orch.none", station="lisbon", status=1).out
    assert "Specified SLS orch.none in saltenv base is not available" in wrong


def test_a_gateway_that_is_killed_in_the_middle_goes_on_and_makes_no_step_twice(site: System) -> None:
    before = {each["jid"] for each in site.view("lisbon", "/jobs?limit=1000")["jobs"]}

    def given() -> list[dict[str, Any]]:
        jobs = site.view("lisbon", "/jobs?limit=1000")["jobs"]
        return [each for each in jobs if each["jid"] not in before]

    jid = site.command("runner", "state.orchestrate", "orch.long", "--detach", station="lisbon", status=0).out.strip()
    for count in (2, 4, 6):
        site.until(lambda: len(given()) >= count, f"{count} steps are begun")  # noqa: B023 - called at once
        site.kill("lisbon")
        site.restart("lisbon")
    site.until(lambda: call(site, jid)["state"] != "open", "the orchestration has ended")
    ended = call(site, jid)
    assert ended["state"] == "ok", ended
    found = steps(ended)
    assert list(found) == [f"step{number}" for number in range(STEPS)]
    jobs = given()
    assert {each["__jid__"] for each in found.values()} == {each["jid"] for each in jobs}
    assert len(jobs) == STEPS
    report = site.report()
    for each in jobs:
        assert_executed_once(report, each["jid"], DEVICES)


def test_a_reaction_begins_one_with_what_its_event_says(site: System) -> None:
    site.command("fire", "site/wanted", "{version: 9}", station="lisbon", status=0)

    def told() -> list[dict[str, Any]]:
        done = site.command("reactor", "why", "site/wanted", "--json", station="lisbon")
        return [made for line in done.out.splitlines() for made in json.loads(line)["reactions"] if made["jid"]]

    site.until(lambda: bool(told()), "the reaction is made")
    jid = told()[0]["jid"]
    site.until(lambda: call(site, jid)["state"] != "open", "the orchestration has ended")
    assert steps(call(site, jid))["everywhere"]["changes"]["ret"]["cam-00000"] == "version 9"
