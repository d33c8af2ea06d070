"""What whoever typed ``salt`` may do is what his list names; what is not understood of it grants nothing."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.devices.device import Device
from gateway.salt.allowed import refusals


def device(name: str) -> Device:
    return Device("lisbon", name, "mqtt", None, "1", {"os": "Debian"}, True, 0.0, 0.0, 1)


def allowed(auth_list: list[Any], *functions: str) -> set[str]:
    devices = [device("cam-1"), device("door")]
    refused = refusals(auth_list, functions or ["test.ping"], devices, "thatch")
    assert all(why.startswith("not_granted") for why in refused.values())
    return {device.id for device in devices} - refused.keys()


@pytest.mark.parametrize(
    ("auth_list", "who"),
    [
        ([], {"cam-1", "door"}),
        ([".*"], {"cam-1", "door"}),
        (["test.*"], {"cam-1", "door"}),
        (["test.version", "test.ping"], {"cam-1", "door"}),
        (["test.pin"], set()),
        (["@wheel", "@runner"], set()),
        ([{"cam-*": ["test.*"]}], {"cam-1"}),
        ([{"cam-*": "test.ping"}], {"cam-1"}),
        ([{"G@os:Debian and not door": [".*"]}], {"cam-1"}),
        ([{"cam-*": ["cmd.*"]}, {"door": [".*"]}], {"door"}),
        # Not understood: limits of arguments, broken and costly patterns, targets that are none.
        ([{"cam-*": [{"test.ping": {"args": ["x"]}}]}], set()),
        ([["test.*"], [".*"]], set()),
        (["test.[", "(test.ping)", ".*.*.*.*ping"], set()),
        ([{"( and": [".*"]}, {7: [".*"]}, 7, None], set()),
    ],
)
def test_a_list_grants_what_it_names(auth_list: list[Any], who: set[str]) -> None:
    assert allowed(auth_list) == who


@pytest.mark.parametrize(
    ("auth_list", "who"),
    [
        (["test.*", "cmd.run"], {"cam-1", "door"}),
        (["test.*"], set()),
        (["cmd.*"], set()),
        ([{"cam-*": ["test.*", "cmd.*"]}, {"door": ["test.*"]}], {"cam-1"}),
        (["test.*", {"door": ["cmd.run"]}], {"door"}),
    ],
)
def test_of_several_functions_each_has_to_be_granted(auth_list: list[Any], who: set[str]) -> None:
    assert allowed(auth_list, "test.ping", "cmd.run") == who
