"""gateway/devices/naming.py."""

from __future__ import annotations

import pytest

from device_agent.errors import Refused, UsageInvalid
from gateway.devices.naming import TEMPLATE_CHARACTERS, Names, check_template

DID = "a" * 26


def names(*taken: str) -> Names:
    return Names(lambda name: f"the device {DID}" if name in taken else None)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{serial}", "B8A44F"),
        ("cam-{serial}", "cam-B8A44F"),
        ("{model}-{serial}", "P3245-B8A44F"),
        ("{did}", DID),
        ("gate", "gate"),
        ("cam-{number}", "cam-1"),
        ("cam-{number:04}", "cam-0001"),
        ("{model}-{number:02}", "P3245-01"),
    ],
)
def test_a_template_becomes_a_name(template: str, name: str) -> None:
    assert names().choose(check_template(template), DID, "B8A44F", "P3245") == name


def test_numbers_go_on_where_names_are_taken_and_each_family_counts_for_itself() -> None:
    taken = {"cam-0001", "cam-0002"}
    given = Names(lambda name: "somebody" if name in taken else None)
    for wanted in ("cam-0003", "cam-0004"):
        assert given.choose("cam-{number:04}", DID, "s", "m") == wanted
        taken.add(wanted)
    assert given.choose("gate-{number:04}", DID, "s", "m") == "gate-0001"


def test_a_name_that_is_taken_says_by_whom() -> None:
    with pytest.raises(Refused) as refused:
        names("cam-1").choose("{serial}", DID, "cam-1", "m")
    assert refused.value.reason == "name_taken"
    assert DID in refused.value.detail


@pytest.mark.parametrize("serial", ["", "a b", "-x", "a/b", "x" * 129, "käfer", "{number}"])
def test_what_a_device_says_of_itself_is_no_name_only_because_it_says_so(serial: str) -> None:
    with pytest.raises(Refused) as refused:
        names().choose("{serial}", DID, serial, "m")
    assert refused.value.reason == "bad_name"


def test_a_serial_number_is_never_read_as_a_template() -> None:
    with pytest.raises(Refused):
        names().choose("cam-{serial}", DID, "{number}", "m")


@pytest.mark.parametrize(
    "template",
    [
        "",
        "a b",
        "{unknown}",
        "{",
        "}",
        "{serial",
        "{number:4}",
        "{number:00}",
        "-{serial}",
        "x" * (TEMPLATE_CHARACTERS + 1),
    ],
)
def test_a_template_from_which_no_name_can_come_is_refused(template: str) -> None:
    with pytest.raises(UsageInvalid) as error:
        check_template(template)
    assert "{number:04}" in str(error.value.allowed)
