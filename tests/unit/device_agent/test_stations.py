"""device_agent/protocol/stations.py: which targets can mean a station."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from device_agent.protocol.stations import can_mean_stations, devices_alone, is_station, meanable, station_device


@dataclass(frozen=True)
class Known:
    site: str
    id: str


GATEWAY, CAMERA, OTHER = Known("lisbon", "lisbon-station"), Known("lisbon", "cam-1"), Known("porto", "lisbon-station")


def test_a_station_is_the_device_that_has_the_name_of_its_site() -> None:
    assert station_device("lisbon") == GATEWAY.id
    assert [is_station(device) for device in (GATEWAY, CAMERA, OTHER)] == [True, False, False]
    assert list(devices_alone([GATEWAY, CAMERA, OTHER])) == [CAMERA, OTHER]


@pytest.mark.parametrize(
    ("tgt", "meant"),
    [
        ("*", False),
        ("os:Debian", False),
        ("G@os:Debian or cam-*", False),
        ("lisbon-*", False),
        ("lisbon-station", True),
        ("*-station", True),
        ("cam-1,lisbon-station", True),
        ("G@station:gateway and G@os:Debian", True),
    ],
)
def test_only_a_target_that_says_the_word_can_mean_one(tgt: str, meant: bool) -> None:
    assert can_mean_stations(tgt) is meant
    assert list(meanable([GATEWAY, CAMERA], tgt)) == ([GATEWAY, CAMERA] if meant else [CAMERA])
