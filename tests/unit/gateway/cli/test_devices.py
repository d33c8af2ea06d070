"""gateway/cli/devices.py."""

from __future__ import annotations

import json

import pytest

from tests.peers.api_double import ISSUED, ApiDouble, Fields
from tests.unit.gateway.cli.conftest import Shell


def device(name: str, **changed: object) -> Fields:
    return {
        "id": name,
        "site": "lisbon",
        "link": "mqtt",
        "present": True,
        "last_seen": ISSUED,
        "first_seen": ISSUED - 60,
        "agent": "0.1.0",
        "grains": {"os": "Linux", "number": 7},
        **changed,
    }


@pytest.fixture
def devices(api: ApiDouble) -> list[Fields]:
    gone = device("cam-2", present=False, last_seen=None, link=None, agent=None, grains=None)
    api.devices = [device("cam-1"), gone]
    return api.devices


def test_devices_are_a_table(devices: list[Fields], shell: Shell) -> None:
    finished = shell.run("devices", "list")
    assert finished.status == 0
    assert finished.out.splitlines() == [
        "ID     SITE    LINK  PRESENT  LAST SEEN             AGENT",
        "cam-1  lisbon  mqtt  yes      2026-11-21T03:15:00Z  0.1.0",
        "cam-2  lisbon  -     no       never                 -",
    ]


def test_a_target_a_site_and_a_limit_reach_the_station(api: ApiDouble, devices: list[Fields], shell: Shell) -> None:
    finished = shell.here("devices", "list", "-L", "cam-1,cam-9", "--site", "porto", "--limit", "3")
    assert (finished.status, finished.out, finished.error) == (0, "", "no device matched cam-1,cam-9\n")
    wanted = {"tgt": "cam-1,cam-9", "tgt_type": "list", "site": "porto", "limit": "3"}
    assert api.asked("GET", "/devices") == [(wanted, None)]


def test_json_is_one_device_per_line(devices: list[Fields], shell: Shell) -> None:
    lines = [json.loads(line) for line in shell.here("devices", "list", "--json").out.splitlines()]
    assert lines == [{"type": "device", **fields} for fields in devices]


def test_a_device_is_shown_with_its_grains(devices: list[Fields], shell: Shell) -> None:
    assert shell.here("devices", "show", "cam-1").out.splitlines() == [
        "id:          cam-1",
        "site:        lisbon",
        "link:        mqtt",
        "present:     yes",
        "last seen:   2026-11-21T03:15:00Z",
        "first seen:  2026-11-21T03:14:00Z",
        "agent:       0.1.0",
        "grain:       number = 7",
        "grain:       os = Linux",
    ]
    assert json.loads(shell.here("devices", "show", "cam-1", "--json").out) == {"type": "device", **devices[0]}


def test_what_was_refused_of_a_device_is_shown(api: ApiDouble, shell: Shell) -> None:
    api.devices = [device("cam-1", refused={"replayed_frame": 1, "bad_frame": 2})]
    assert "refused:     2 bad_frame, 1 replayed_frame" in shell.here("devices", "show", "cam-1").out.splitlines()


def test_grains_that_are_nonsense_are_shown_and_not_obeyed(api: ApiDouble, shell: Shell) -> None:
    api.devices = [device("cam-1", grains={"\x1b[2J": {"deep": ["\x07"]}, "": None}, agent="\x1b]0;x\x07")]
    finished = shell.here("devices", "show", "cam-1")
    assert finished.status == 0
    assert all(line.isprintable() for line in finished.out.splitlines())
    assert r"\x1b[2J = " in finished.out


def test_no_such_device_is_an_error(devices: list[Fields], shell: Shell) -> None:
    finished = shell.here("devices", "show", "cam-9")
    assert (finished.status, finished.out) == (2, "")
    assert finished.error.startswith("error: there is no such device")
