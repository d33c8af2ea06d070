"""gateway/checks/open_files.py."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import pytest

from gateway.checks import open_files
from gateway.checks.open_files import check
from tests.unit.gateway.checks.conftest import Told, a_box


@pytest.fixture
def told(facts: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    """A station that has 100 of its 1,000 files open, and needs no more than 256."""
    monkeypatch.setattr(open_files, "_open_now", lambda: 100)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1000, 1000))
    facts.of_box = a_box(tmp_path)
    return facts


async def test_enough_is_fine(told: Told) -> None:
    (finding,) = await check(told)
    assert (finding.severity, finding.finding) == ("ok", "100 of 1,000 open, 256 may be needed")


@pytest.mark.parametrize(("opened", "severity"), [(799, "ok"), (800, "warning"), (949, "warning"), (950, "error")])
async def test_the_more_are_open_the_louder_it_is(
    opened: int, severity: str, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "_open_now", lambda: opened)
    (finding,) = await check(told)
    assert finding.severity == severity
    assert ("turned away" in finding.meaning) == (severity != "ok")


@pytest.mark.parametrize(
    "changed",
    [
        {"sites": 400},
        {"ssh": {"devices": 900}},
        {"broker": {"mode": "embedded"}, "devices": 900},
    ],
)
async def test_too_few_for_what_there_is_are_told_before_they_are_open(told: Told, changed: dict[str, Any]) -> None:
    told.station |= changed
    (finding,) = await check(told)
    assert finding.severity == "warning"
    assert finding.finding.startswith("this station may open 1,000 files, has 100 open, and may need 1,")
    assert finding.fix.startswith("systemctl edit outstation-gateway: [Service] LimitNOFILE=65536; ")


async def test_a_broker_of_its_own_needs_one_for_each_device(told: Told) -> None:
    hard = open_files._limit_of(os.getpid())
    assert hard is not None
    told.station |= {"broker": {"mode": "managed", "pid": os.getpid()}, "devices": hard, "present": 0}
    (finding,) = await check(told)
    assert (finding.severity, finding.about) == ("warning", "the broker")
    assert finding.fix.startswith("systemctl edit outstation-gateway: ")
    told.station |= {"devices": 0, "present": hard}
    (finding,) = await check(told)
    assert finding.severity == "error"
    told.station |= {"broker": {"mode": "service", "pid": os.getpid()}}
    (finding,) = await check(told)
    assert finding.fix.startswith("systemctl edit outstation-broker: ")


async def test_a_broker_that_has_just_ended_says_nothing(told: Told) -> None:
    told.station["broker"] = {"mode": "managed", "pid": 2**30}
    (finding,) = await check(told)
    assert finding.severity == "ok"


def test_this_process_can_be_counted() -> None:
    before = open_files._open_now()
    with Path("/dev/null").open():
        assert open_files._open_now() == before + 1


async def test_a_door_that_could_not_accept_is_told_for_a_while(told: Told) -> None:
    told.station |= {"accept_failed": [{"door": "api.socket", "at": told.now() - 60, "why": "Too many open files"}]}
    (finding,) = await check(told)
    assert (finding.severity, finding.about) == ("error", "api.socket")
    assert "no connection could be accepted at api.socket, last at " in finding.finding
    assert finding.finding.endswith(": Too many open files")
    assert "LimitNOFILE=65536" in finding.fix
    told.station["accept_failed"][0]["at"] = told.now() - 3600
    (finding,) = await check(told)
    assert finding.severity == "ok"
