"""gateway/checks/check_events.py: what of the findings becomes events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.bus import Bus
from gateway.checks.check_events import ROW, CheckEvents, event_data
from gateway.checks.finding import Finding, Severity
from gateway.metrics import Metrics
from gateway.spool.queue import Spool
from gateway.store.writer import StoreFailed
from tests.peers.clock import HandClock
from tests.peers.database import Store, opened_store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with opened_store(tmp_path) as opened:
        yield opened


def bus_of(store: Store, *, full: bool = False) -> Bus:
    spool = Spool(store.writer, store.reader, store.epoch, enabled=True)
    return Bus(store.writer, store.reader, spool, Metrics(HandClock()), HandClock(), "lisbon", lambda: full)


@pytest.fixture
def check_events(store: Store) -> CheckEvents:
    return CheckEvents(bus=bus_of(store), reader=store.reader)


def finding(check: str, severity: Severity, about: str = "", words: str = "so it is") -> Finding:
    return Finding(check=check, severity=severity, finding=words, meaning="it matters", fix="mend it", about=about)


async def said(check_events: CheckEvents, *findings: Finding) -> list[tuple[str, str, str]]:
    return [(news.check, news.severity, news.was) for news in await check_events.tell(findings)]


async def test_what_is_healthy_or_a_note_is_not_told(check_events: CheckEvents, store: Store) -> None:
    assert await said(check_events, finding("disk", "ok"), finding("refusals", "info")) == []
    assert store.look("SELECT count(*) FROM events") == [(0,)]


async def test_a_change_is_told_once_and_so_is_its_end(check_events: CheckEvents, store: Store) -> None:
    assert await said(check_events, finding("disk", "warning", words="12 GiB")) == [("disk", "warning", "ok")]
    assert await said(check_events, finding("disk", "warning", words="11 GiB")) == []
    assert await said(check_events, finding("disk", "error", words="0 GiB")) == [("disk", "error", "warning")]
    assert await said(check_events, finding("disk", "ok")) == [("disk", "ok", "error")]
    assert await said(check_events, finding("disk", "ok")) == []
    assert store.look("SELECT tag FROM events") == [("outstation/check/disk",)] * 3


async def test_one_more_thing_of_the_same_check_is_a_change(check_events: CheckEvents) -> None:
    lisbon, porto = finding("sites", "warning", "lisbon"), finding("sites", "warning", "porto")
    assert await said(check_events, lisbon) == [("sites", "warning", "ok")]
    assert await said(check_events, porto, lisbon) == [("sites", "warning", "warning")]
    assert await said(check_events, lisbon, porto) == []
    assert await said(check_events, porto) == [("sites", "warning", "warning")]


async def test_what_was_told_is_known_after_a_restart(check_events: CheckEvents, store: Store) -> None:
    await said(check_events, finding("disk", "warning"))
    again = CheckEvents(bus=bus_of(store), reader=store.reader)
    assert await said(again, finding("disk", "warning")) == []
    assert await said(again) == [("disk", "ok", "warning")]


async def test_what_a_full_disk_did_not_take_is_told_later(check_events: CheckEvents, store: Store) -> None:
    full = CheckEvents(bus=bus_of(store, full=True), reader=store.reader)
    with pytest.raises(StoreFailed):
        await said(full, finding("disk", "error"))
    assert await said(check_events, finding("disk", "error")) == [("disk", "error", "ok")]


async def test_a_row_of_another_release_is_as_none(check_events: CheckEvents, store: Store) -> None:
    await store.writer.commit([("INSERT INTO station (key, value) VALUES (?, ?)", [(ROW, "[1, 2]")])])
    assert await said(check_events, finding("disk", "error")) == [("disk", "error", "ok")]


async def test_an_event_says_what_it_means_and_has_its_bounds(check_events: CheckEvents) -> None:
    (news,) = await check_events.tell([finding("sites", "warning", f"site-{number:02}") for number in range(25)])
    data = event_data(news)
    assert (data["check"], data["severity"], data["was"], data["more"]) == ("sites", "warning", "ok", 5)
    findings = data["findings"]
    assert isinstance(findings, list)
    assert findings[0] == {
        "check": "sites",
        "severity": "warning",
        "finding": "so it is",
        "meaning": "it matters",
        "fix": "mend it",
        "about": "site-00",
    }
    assert len(findings) == 20
