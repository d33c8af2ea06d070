"""A device that nobody sent asks to join: it becomes a line in a list, and no operator lets it in by mistake."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from device_agent.errors import EXIT_USAGE
from device_agent.protocol import topics
from device_agent.trust.join_answer import NotYet, open_response
from gateway.broker.rules import ENROLL_PASSWORD, ENROLL_USER
from gateway.cli.key_client import KeyClient
from tests.peers.database import look
from tests.peers.joining import JoiningDevice, a_device
from tests.peers.system import System, assert_exactly_once, whole_system
from tests.peers.tap import Tap, lets_ask, lets_in

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

SITE, CAMERA = "lisbon", "cam-gate"


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with whole_system() as made:
        made.add_gateway(SITE)
        made.add_agent(CAMERA, SITE)
        made.present(1)
        KeyClient(made.stations[SITE]).open_window({"seconds": 600.0, "max": 50})
        made.until(lambda: lets_ask(broker(made)["enroll_port"]), "the door for joining is open")
        yield made


def broker(system: System) -> dict[str, Any]:
    """The site's broker, as its station says."""
    return system.stations[SITE].station().broker or {}


def at_the_door(system: System, device: JoiningDevice, *more: str) -> Tap:
    """A device at the door where everybody may ask."""
    return Tap(
        broker(system)["enroll_port"],
        topics.enrol_response(SITE, device.did),
        *more,
        client_id=device.did,
        username=ENROLL_USER,
        password=ENROLL_PASSWORD,
    )


def ask(system: System, device: JoiningDevice, tap: Tap) -> NotYet:
    """Ask to join; what the gateway answers, which proves itself."""
    tap.say([(topics.enrol_request(SITE), device.request())])
    answers = f"the answer to {device.name}"
    system.until(lambda: [topic for topic, _ in tap.heard() if topic.endswith(device.did)], answers)
    assert device.asked is not None
    root = bytes.fromhex(system.view(SITE, "/fleet")["root"])
    answer = open_response(tap.heard()[-1][1], device.asked, device.kem, site=SITE, pinned=root, floor=0.0)
    assert isinstance(answer, NotYet)
    return answer


def keys(system: System) -> dict[str, str]:
    """The state of every key, by did."""
    return {key["did"]: key["state"] for key in system.view(SITE, "/keys?kind=device")["keys"]}


def everything(system: System) -> dict[str, list[Any]]:
    """Every row of every table of the station's file."""
    path = system.state_of(SITE) / "station.sqlite"
    tables = [name for (name,) in look(path, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: look(path, f"SELECT * FROM {name}") for name in tables}


def test_a_stranger_gets_a_line_in_the_list_and_nothing_else(system: System) -> None:
    """He says that he is the camera at the gate: the serial number is the same."""
    stranger, before = a_device("a-stranger", serial=CAMERA), keys(system)
    genuine = next(iter(did for did, state in before.items() if state == "accepted"))
    others = [topics.enrol_response(SITE, genuine), "#", f"os/{SITE}/#", topics.trust(SITE), topics.group_job(SITE)]
    with at_the_door(system, stranger, *others) as tap:
        answer = ask(system, stranger, tap)
        assert (answer.state, answer.verified) == ("pending", True)
        # He says that he took an answer which he never got, and asks again and again.
        tap.say((topics.enrol_request(SITE), payload) for payload in [stranger.confirmation(), *asked_often(stranger)])
        assert_exactly_once(system.ended(SITE, system.issue(SITE, "*", "test.ping")), [CAMERA])
        for topic in (topics.device_up(SITE, stranger.did, "ses"), topics.group_job(SITE), topics.trust(SITE)):
            tap.try_to_say(topic, b"let me in")
        heard = tap.heard()
    assert {topic for topic, _ in heard} == {topics.enrol_response(SITE, stranger.did)}
    system.until(lambda: system.refusals(SITE)["enrollment", "unknown_device"], "his word is that of nobody")
    system.until(lambda: system.refusals(SITE)["enrollment", "too_often"], "he is not looked at each time")
    assert keys(system) == {**before, stranger.did: "pending"}
    for name, password in ((stranger.did, ""), (stranger.did, ENROLL_PASSWORD), (stranger.did, stranger.did)):
        assert not lets_in(system.ports[SITE], client_id=name, username=name, password=password)
    assert [device["id"] for device in system.view(SITE, "/devices")["devices"]] == [CAMERA]
    assert system.stations[SITE].station().present == 1
    listed = system.command("keys", "list", "--state", "pending", station=SITE, status=0).out
    assert stranger.fingerprint in listed


def asked_often(device: JoiningDevice) -> list[bytes]:
    return [device.request() for _ in range(20)]


def test_an_operator_who_types_another_fingerprint_is_stopped_before_anything_is_written(system: System) -> None:
    stranger, camera = a_device("another-stranger"), a_device("the-camera-he-hides")
    for device in (stranger, camera):
        with at_the_door(system, device) as tap:
            assert ask(system, device, tap).state == "pending"
    shown = stranger.fingerprint
    last = "a" if shown[-1] != "a" else "b"
    before, known = everything(system), keys(system)
    refused = system.command("keys", "accept", stranger.serial, "--fingerprint", camera.fingerprint, station=SITE)
    assert refused.status == EXIT_USAGE
    assert "this is not the fingerprint of the device: it may be another one that pretends" in refused.error
    for typed in (camera.fingerprint, shown[:-1] + last, shown[:-5], shown[:4], shown + "a", "*", " ", "", None):
        for called in (stranger.serial, stranger.did):
            body = json.dumps({"fingerprint": typed}).encode()
            status, _ = system.ask(SITE, "POST", f"/keys/{called}/accept", body)
            assert status == 400, typed
    assert everything(system) == before
    assert keys(system) == known
    # The test could have failed: with the right one he would be in.
    system.command("keys", "accept", stranger.serial, "--fingerprint", shown, station=SITE, status=0)
    assert keys(system) == {**known, stranger.did: "accepted"}
    assert everything(system) != before
    KeyClient(system.stations[SITE]).decide(stranger.did, "revoke", {"why": "the test is over"})
