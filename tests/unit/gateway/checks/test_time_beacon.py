"""gateway/checks/time_beacon.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.checks.time_beacon import MISSING_SECONDS, check
from tests.peers.clock import STARTED_WALL
from tests.unit.gateway.checks.conftest import Told, a_box

MASTER, OTHER = "tcp://192.0.2.1:4510", "tcp://192.0.2.2:4510"


def link(address: str = MASTER, *, since: float, state: str = "connected", **more: Any) -> dict[str, Any]:
    return {"address": address, "state": state, "since": since, **more}


@pytest.fixture
def facts(facts: Told, tmp_path: Path) -> Told:
    facts.of_box = a_box(tmp_path)
    return facts


LONG_AGO = STARTED_WALL - MISSING_SECONDS
JUST_NOW = STARTED_WALL - MISSING_SECONDS + 1


@pytest.mark.parametrize("last", [None, LONG_AGO])
async def test_a_connected_master_without_a_beacon_for_hours_is_a_warning(facts: Told, last: float | None) -> None:
    facts.station["uplink"] = {"links": [link(since=LONG_AGO - 1000)]}
    facts.beacons = {} if last is None else {MASTER: last}
    (finding,) = await check(facts)
    assert (finding.severity, finding.about) == ("warning", MASTER)
    assert "brings no time beacon" in finding.finding
    assert ("the last new one came at" in finding.finding) is (last is not None)
    assert "0.1.0" in finding.fix


async def test_each_link_is_judged_by_itself(facts: Told) -> None:
    facts.station["uplink"] = {"links": [link(since=LONG_AGO), link(OTHER, since=LONG_AGO)]}
    facts.beacons = {MASTER: STARTED_WALL - 60}
    (finding,) = await check(facts)
    assert finding.about == OTHER


@pytest.mark.parametrize(
    ("links", "beacons"),
    [
        ([link(since=JUST_NOW)], {}),
        ([link(since=LONG_AGO)], {MASTER: JUST_NOW}),
    ],
)
async def test_a_link_that_is_new_or_brought_a_beacon_lately_is_fine(
    facts: Told, links: list[dict[str, Any]], beacons: dict[str, float]
) -> None:
    facts.station["uplink"], facts.beacons = {"links": links}, beacons
    (finding,) = await check(facts)
    assert finding.severity == "ok"


@pytest.mark.parametrize(
    "uplink",
    [
        None,
        {"links": []},
        {"links": [link(since=LONG_AGO, state="waiting")]},
        {"links": [link(since=LONG_AGO, lost_publishes=0)]},
    ],
)
async def test_without_a_connected_master_of_ours_there_is_nothing_to_say(
    facts: Told, uplink: dict[str, Any] | None
) -> None:
    facts.station["uplink"] = uplink
    assert await check(facts) == []
