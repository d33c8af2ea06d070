"""tests/chaos/expect.py: a fault that no check names is found."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.cli.views import Finding as Found
from tests.chaos.expect import EXPECTED, Look, Watch
from tests.chaos.plan import Fault, sorts

DISK = Fault(0, 10, "disk", "gateway", "eio-write")


class Station:
    """Says what it is told to say."""

    def __init__(self, *findings: Found) -> None:
        self.said = list(findings)

    def findings(self) -> list[Found]:
        return self.said


def found(check: str, severity: str, words: str) -> Found:
    return Found(check=check, severity=severity, finding=words, meaning="", fix="")


def watched(station: Any, fault: Fault, seconds: float) -> list[str]:
    watch = Watch(station, lambda: {"uplink": {"links": []}}, lambda: 100.0)
    watch.begin(fault, seconds)
    watch.look_once()
    watch.end(fault)
    return [each.rule for each in watch.unnamed()]


def test_a_fault_has_to_be_named_by_its_check() -> None:
    assert watched(Station(found("store", "error", "nothing can be written")), DISK, 9) == []
    assert watched(Station(found("store", "ok", "never damaged")), DISK, 9) == ["not_named"]
    assert watched(Station(found("disk", "error", "full")), DISK, 9) == ["not_named"]


def test_a_fault_that_is_too_short_need_not_be_named() -> None:
    assert watched(Station(), DISK, 1) == []


@pytest.mark.parametrize(("subject", "named"), [("master-a", True), ("master-b", False)])
def test_the_master_that_is_away_is_named(subject: str, named: bool) -> None:
    station = Station(found("uplink", "warning", "waiting: no answer in 5 s (tcp://master-a.chaos:4510)"))
    assert watched(station, Fault(0, 20, "kill", subject), 20) == ([] if named else ["not_named"])


def test_every_expectation_is_of_a_fault_that_comes() -> None:
    assert set(EXPECTED) <= {(sort.kind, sort.subject) for sort in sorts(2)}


def test_healthy_findings_name_nothing() -> None:
    assert not Look([found("store", "ok", "never damaged"), found("store", "info", "x")]).says("store")
