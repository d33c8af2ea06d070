"""The example settings are settings, and what they describe runs as they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from device_agent.config import AgentSettings
from device_agent.settings import load
from gateway.cli.client import StationClient
from gateway.config import StationSettings
from gateway.devices.policy import Allow, Deny, Operator
from gateway.devices.policy_file import load_policy
from gateway.rehearsal import join_token
from gateway.station_settings import settings_for
from tests.peers.broker import free_port
from tests.peers.system import ROOT, System, assert_exactly_once

EXAMPLES = ROOT / "examples"
ROLES = {"master": "master", "gateway": "gateway", "relay": "gateway", "agent": "agent"}
PROGRAMS = {"master": "outstation master", "gateway": "outstation gateway", "agent": "outstation-agent"}


def settings(name: str) -> msgspec.Struct:
    """An example through the same loader that its program uses."""
    path = EXAMPLES / f"{name}.yaml"
    if ROLES[name] == "agent":
        return load(AgentSettings, path)
    return settings_for("master" if ROLES[name] == "master" else "gateway", path)


def test_there_is_a_test_for_every_example() -> None:
    files = {path.name for path in EXAMPLES.iterdir() if path.is_file()}
    assert files == {"policy.yaml", *(f"{name}.yaml" for name in ROLES)}


def test_the_example_of_a_policy_is_one_and_grants_no_more_than_it_says() -> None:
    policy = load_policy(EXAMPLES / "policy.yaml")
    anna = Operator("anna", policy.roles("anna", frozenset()))
    assert anna.roles == {"operator"}
    for fun, arg, verdict in (
        ("test.ping", [], Allow),
        ("cmd.run", ["uptime"], Allow),
        ("cmd.run", ["df -h; reboot"], Deny),
        ("state.apply", [], Deny),
    ):
        judged = policy.judge(anna, fun, arg, {}, ["cam-1"], ["lisbon"], 0.0)
        assert isinstance(judged, verdict), (fun, judged)
    above = Operator("anna", frozenset(), "above")
    assert isinstance(policy.judge(above, "cmd.run", ["uptime"], {}, ["cam-1"], ["lisbon"], 0.0), Deny)


@pytest.mark.parametrize("name", list(ROLES))
def test_an_example_is_accepted_and_names_the_command_that_runs_it(name: str) -> None:
    table = settings(name)
    assert isinstance(table, AgentSettings if ROLES[name] == "agent" else StationSettings)
    text = (EXAMPLES / f"{name}.yaml").read_text()
    assert f"{PROGRAMS[ROLES[name]]} run --config examples/{name}.yaml" in text


@pytest.mark.parametrize("name", list(ROLES))
def test_a_default_that_an_example_writes_out_is_the_default(name: str) -> None:
    """A line such as ``# log_level: info`` below "The defaults" changes nothing when its mark is taken away."""
    lines = (EXAMPLES / f"{name}.yaml").read_text().partition("# The defaults, written out:\n")[2].splitlines()
    written = [line.removeprefix("# ").split("  ")[0].split(": ", 1) for line in lines]
    for key, value in written:
        found = getattr(settings(name), key)
        assert found is None or str(found) == value, key


@pytest.mark.system
@pytest.mark.timeout(300)
def test_what_the_examples_describe_runs_with_other_places_laid_over_them(system: System) -> None:
    """Only what is of this machine is changed, in pieces beside the copies: folders, sockets, ports and keys."""

    def lay_over(name: str, **changed: Any) -> Path:
        path = system.folder / f"{name}.yaml"
        path.write_text((EXAMPLES / f"{name}.yaml").read_text())
        pieces = system.folder / f"{name}.d"
        pieces.mkdir()
        (pieces / "10-here.yaml").write_text(json.dumps({"state_dir": str(system.folder / name), **changed}))
        return path

    def run(name: str, **changed: Any) -> StationClient:
        path = lay_over(name, socket=str(system.socket_of(name)), **changed)
        system.start(name, [ROLES[name], "run", "--config", str(path)])
        return system.answering(name)

    def broker() -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": free_port(), "enroll_port": free_port()}

    system.fleet.add_master("central", system.state_of("master"))
    for gateway in ("gateway", "relay"):
        system.fleet.pin(system.state_of(gateway))
    master = run("master", sites={"listen": "tcp://127.0.0.1:*"}).station()
    above = {"masters": [{"address": master.listen, "key": master.public_key}]}
    run("gateway", broker=broker(), **above)
    run("relay", sites={"listen": "tcp://127.0.0.1:*"}, broker=broker(), **above)
    for site, station in (("lisbon", "gateway"), ("iberia", "relay")):
        system.join(site, "master")
        system.certified(station)
    token = system.folder / "token"
    token.write_text(join_token(system.stations["gateway"], uses=1))
    system.start("agent", ["agent", "run", "--config", str(lay_over("agent", token_file=str(token)))])
    system.until(lambda: system.stations["master"].station().present == 1, "the camera is here")

    assert {view.site for view in system.stations["master"].sites()} == {"lisbon", "iberia"}
    jid = system.issue("master", "lens:tags:night", "grains.get", "floor", tgt_type="grain")
    ended = system.ended("master", jid)
    assert_exactly_once(ended, ["cam-007"])
    assert (ended.outcomes[0].site, ended.outcomes[0].value) == ("lisbon", 3)
