"""gateway/cli/fire.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.peers.api_double import ApiDouble
from tests.unit.gateway.cli.conftest import Shell


@pytest.mark.parametrize(
    ("typed", "data"),
    [
        ([], {}),
        (["{door: north, badge: 4711}"], {"door": "north", "badge": 4711}),
        (['{"deep": [1, null, {"a": true}]}'], {"deep": [1, None, {"a": True}]}),
        (["door: north"], {"door": "north"}),
        (["{a: 2026-11-21}"], {"a": "2026-11-21"}),
        (["door=north", "badge=4711"], {"door": "north", "badge": 4711}),
        (["door=north", "{badge: 4711, door: south}"], {"door": "south", "badge": 4711}),
        (['{"text": "line 1\nline 2",\n\t"badge": 4711}'], {"text": "line 1\nline 2", "badge": 4711}),
        (["text=line 1\tline 2"], {"text": "line 1\tline 2"}),
    ],
)
def test_data_is_a_mapping_in_yaml_or_json(
    typed: list[str], data: dict[str, Any], api: ApiDouble, shell: Shell
) -> None:
    finished = shell.here("fire", "site/door", *typed)
    assert finished.status == 0
    assert finished.out == "2026-11-21T03:15:00.000001\t-\tsite/door\n"
    assert api.asked("POST", "/events") == [({}, {"events": [{"tag": "site/door", "data": data}]})]


@pytest.mark.parametrize(
    "typed",
    [
        *(["north"], ["[1, 2]"], ["{a: .inf}"], ["{"], [""], ["{1: a}"], ["{a: 1, a: 2}"], ["{a: !!bool maybe}"]),
        *(["{a: 1}", "{b: 2}"], ["a=1", "a=2"], ["a: 1\nb: 2"], ['{"a": "1\n2", "a": 3}'], ["[\n1]"], ["text=1\n2"]),
    ],
)
def test_what_is_no_mapping_is_not_fired(typed: list[str], api: ApiDouble, shell: Shell) -> None:
    finished = shell.here("fire", "site/door", *typed)
    assert (finished.status, finished.out) == (2, "")
    assert api.asked("POST", "/events") == []


@pytest.mark.usefixtures("api")
def test_what_cannot_be_read_is_named_with_its_place(shell: Shell) -> None:
    finished = shell.here("fire", "site/door", '{"door": 1')
    assert "expected ',' or '}', but got '<stream end>' (line 1, column 11) (DATA)" in finished.error
    finished = shell.here("fire", "site/door", "door: north\nbadge: 4711")
    assert "data of an event with a line break or a tab is read as JSON: Expecting value (line 1" in finished.error


@pytest.mark.usefixtures("api")
def test_json_has_the_stamp_of_the_station(shell: Shell) -> None:
    finished = shell.here("fire", "site/door", "{a: 1}", "--json")
    assert finished.status == 0, finished.error
    fired = json.loads(finished.out)
    assert (fired["type"], fired["tag"], fired["_stamp"]) == ("event", "site/door", "2026-11-21T03:15:00.000001")
    assert fired["data"] == {"a": 1}


def test_a_station_that_refuses_is_a_status_of_its_own(api: ApiDouble, shell: Shell) -> None:
    api.refusals["/events"] = (403, {"error": {"id": "policy.role", "what": "eve may not run jobs"}})
    finished = shell.here("fire", "site/door")
    assert (finished.status, finished.out) == (8, "")
    assert "eve may not run jobs" in finished.error
