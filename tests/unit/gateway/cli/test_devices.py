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
    assert (finished.status, finished.out, finished.error) == (0, "", "no device matched cam-1,cam-9 at site porto\n")
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


def test_a_target_is_previewed_with_reasons_and_numbers(api: ApiDouble, shell: Shell) -> None:
    here = {**device("cam-1"), "why": [{"term": "cam-1", "value": "cam-1"}, {"term": "not G@a:b", "value": None}]}
    away = {**device("cam-2", present=False), "why": [{"term": "G@os:Deb*", "value": "Debian\x1b"}]}
    facts = {"tgt": "cam-1 or G@os:Deb*", "tgt_type": "compound", "known": 1200, "matched": 2, "present": 1}
    pages = [{"devices": [here], "next": "1"}, {"devices": [away], "next": None}]
    api.matched = {**facts, "pages": pages}
    finished = shell.here("devices", "match", "-N", "dock", "--site", "lisbon")
    assert finished.status == 0
    assert finished.out.splitlines() == [
        "ID     SITE    PRESENT  WHY",
        "cam-1  lisbon  yes      cam-1, not G@a:b",
        r"cam-2  lisbon  no       G@os:Deb* (Debian\x1b)",
    ]
    assert finished.error.splitlines() == [
        "2 of 1,200 devices match: 1 here, 1 away",
        "signed as compound: cam-1 or G@os:Deb*",
    ]
    wanted = {"tgt": "dock", "tgt_type": "nodegroup", "site": "lisbon"}
    assert api.asked("POST", "/match") == [({}, wanted), ({}, {**wanted, "after": "1"})]
    lines = [json.loads(line) for line in shell.here("devices", "match", "x", "--json").out.splitlines()]
    assert [line["id"] for line in lines] == ["cam-1", "cam-2"]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (["-S", "192.0.2.0/24"], {"tgt": "192.0.2.0/24", "tgt_type": "ipcidr"}),
        (["-R", "cam[1-2]"], {"tgt": "cam[1-2]", "tgt_type": "range"}),
        (["-P", "os:a|b"], {"tgt": "os:a|b", "tgt_type": "grain_pcre"}),
        (["-G", "--delimiter", "|", "os|b"], {"tgt": "os|b", "tgt_type": "grain", "delimiter": "|"}),
        (["-I", "a:b"], {"tgt": "a:b", "tgt_type": "pillar"}),
        (["--target-type", "pillar_exact", "a:b"], {"tgt": "a:b", "tgt_type": "pillar_exact"}),
        (["--target-type", "nodegroup", "dock"], {"tgt": "dock", "tgt_type": "nodegroup"}),
    ],
)
def test_each_letter_is_a_kind_of_target(api: ApiDouble, shell: Shell, line: list[str], wanted: dict[str, str]) -> None:
    api.matched = {"pages": [{"devices": [], "next": None}]}
    shell.here("devices", "match", *line)
    assert api.asked("POST", "/match") == [({}, wanted)]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (["--target-type", "all", "a:b"], "found 'all'; there are glob, list,"),
        (["-N", "-S", "x"], "a target is of one kind, found ipcidr and nodegroup"),
        (["-E", "--delimiter", "|", "x"], "it is one character, with -G, -P, -I or -J; found '|'"),
    ],
)
def test_a_target_that_is_none_is_told_before_the_station_is_asked(
    api: ApiDouble, shell: Shell, line: list[str], error: str
) -> None:
    finished = shell.here("devices", "match", *line)
    assert finished.status == 2
    assert error in finished.error
    assert api.requests == []
