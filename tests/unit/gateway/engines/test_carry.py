"""gateway/engines/carry.py: again while it cannot be done, not for ever, and what is lost is counted and named."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import cast

import pytest

from gateway.engines.carry import NotTaken, TryLater, carry
from gateway.engines.feed import Feed, Heard
from gateway.engines.report import Report


class Batches:
    """Two batches, and what was said to be done."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def batches(self, most: int) -> Iterator[list[Heard]]:
        for number in range(2):
            yield [Heard(f"e-{number}", "site/door", {}, "", "lisbon")]

    def done(self, batch: list[Heard]) -> None:
        self.kept += [event.id for event in batch]


@pytest.fixture
def report() -> Iterator[tuple[Report, int]]:
    read, write = os.pipe()
    yield Report(write), read
    os.close(read)
    os.close(write)


def counted(report: tuple[Report, int]) -> dict[str, int]:
    report[0].tell()
    found: dict[str, int] = json.loads(os.read(report[1], 4096).splitlines()[-1])["counts"]
    return found


def run(
    failures: list[Exception], report: tuple[Report, int], give_up_hours: float = 1.0
) -> tuple[list[str], list[str]]:
    """The ids that were sent, and those that were done."""
    feed, sent = Batches(), list[str]()

    def send(events: list[Heard]) -> None:
        if failures:
            raise failures.pop(0)
        sent.extend(event.id for event in events)

    carry(cast("Feed", feed), send, report[0], give_up_hours=give_up_hours)
    return sent, feed.kept


def test_what_fails_for_now_is_sent_again_before_what_comes_after(report: tuple[Report, int]) -> None:
    assert run([TryLater("busy")], report) == (["e-0", "e-1"], ["e-0", "e-1"])
    assert counted(report) == {"tried_again": 1, "carried": 2}


def test_what_is_not_taken_is_named_and_passed_over(
    report: tuple[Report, int], caplog: pytest.LogCaptureFixture
) -> None:
    assert run([NotTaken("400")], report) == (["e-1"], ["e-0", "e-1"])
    assert counted(report) == {"not_taken": 1, "carried": 1}
    assert "events=e-0 site/door" in caplog.text


def test_one_event_of_a_batch_that_is_never_taken_takes_no_others_along(
    report: tuple[Report, int], caplog: pytest.LogCaptureFixture
) -> None:
    batch = [Heard(f"e-{number}", "site/door", {}, "", "lisbon") for number in range(7)]
    sent: list[str] = []

    class One(Batches):
        def batches(self, most: int) -> Iterator[list[Heard]]:
            yield batch

    def send(events: list[Heard]) -> None:
        if "e-4" in (ids := [event.id for event in events]):
            raise NotTaken("400")
        sent.extend(ids)

    feed = One()
    carry(cast("Feed", feed), send, report[0], batch=7)
    assert sent == ["e-0", "e-1", "e-2", "e-3", "e-5", "e-6"]
    assert feed.kept == [f"e-{number}" for number in range(7)]
    assert counted(report) == {"not_taken": 1, "carried": 6}
    assert "events=e-4 site/door" in caplog.text


def test_what_nobody_takes_is_given_up_after_its_time(
    report: tuple[Report, int], caplog: pytest.LogCaptureFixture
) -> None:
    assert run([TryLater("away"), TryLater("away")], report, give_up_hours=1e-9) == (["e-1"], ["e-0", "e-1"])
    assert counted(report)["given_up"] == 1
    assert "events=e-0 site/door" in caplog.text


def test_bounds_that_make_no_sense_are_refused(report: tuple[Report, int]) -> None:
    with pytest.raises(ValueError, match="batch is 1 to 1000"):
        carry(cast("Feed", Batches()), lambda _: None, report[0], batch=0)
