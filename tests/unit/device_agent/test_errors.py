"""device_agent/errors.py."""

from __future__ import annotations

import pytest

from device_agent import errors
from device_agent.errors import ConfigInvalid, OutstationError, Refused


def test_an_error_prints_what_where_found_allowed_and_the_next_step() -> None:
    error = ConfigInvalid(
        "no such key", where="gateway.yaml:3", found="prot", allowed="port, host", hint="did you mean port?"
    )
    assert str(error) == (
        "no such key (gateway.yaml:3)\n  found:   prot\n  allowed: port, host\n  try:     did you mean port?"
    )


def test_what_is_not_known_is_not_printed() -> None:
    assert str(OutstationError("it broke")) == "it broke"
    assert OutstationError("it broke").fields() == {"id": "outstation.failed", "what": "it broke"}


def test_an_error_gives_its_facts_by_name() -> None:
    error = ConfigInvalid("no such key", error_id="config.unknown", where="a.yaml:1", found="", allowed="b", hint="c")
    assert error.fields() == {
        "id": "config.unknown",
        "what": "no such key",
        "where": "a.yaml:1",
        "found": "",
        "allowed": "b",
        "hint": "c",
    }


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (errors.UsageInvalid, 2),
        (errors.NotFound, 2),
        (errors.ConfigInvalid, 6),
        (errors.NotRunning, 7),
        (errors.PolicyRefused, 8),
        (errors.StationFailed, 1),
    ],
)
def test_each_kind_of_error_has_its_exit_status_and_an_id(kind: type[OutstationError], status: int) -> None:
    assert kind.exit_status == status
    assert kind("x").error_id.count(".") == 1


def test_a_refusal_is_counted_under_its_reason() -> None:
    refused = Refused("oversized", "300000 bytes")
    assert (refused.reason, refused.detail, refused.error_id) == ("oversized", "300000 bytes", "network.oversized")
    assert str(refused) == "oversized: 300000 bytes"
    assert str(Refused("malformed")) == "malformed"
