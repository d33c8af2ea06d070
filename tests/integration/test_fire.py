"""Events that somebody fires: on disk and on their way up when it is answered, or not there at all."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from device_agent.protocol import limits
from device_agent.protocol.messages import AuditRecord, Event
from tests.peers.database import look, spooled
from tests.peers.office import Office, an_office

KEPT = "SELECT tag, site FROM events WHERE tag LIKE 'site/%' ORDER BY id"
RULES = """\
tokens: {anna: operator, bob: operator, eve: viewer}
rules:
  operator:
    - functions: [event.send]
      arguments:
        event.send: [{positional: [site/door/*, "*"]}]
      tokens: [anna]
    - functions: [event.send]
      hold: true
      tokens: [bob]
"""


async def fire(office: Office, *tags: str, user: str = "ada", data: Any = None) -> Any:
    events = [{"tag": tag, "data": data if data is not None else {"n": number}} for number, tag in enumerate(tags)]
    return await office.ask(user, "POST", "/events", {"events": events}, role="admin" if user == "ada" else None)


def kept(office: Office) -> list[Any]:
    return look(office.rooms.writer._path, KEPT)


async def test_what_is_answered_is_on_disk_spooled_heard_and_in_the_audit(tmp_path: Path) -> None:
    async with an_office(tmp_path, masters=True) as office:
        with office.rooms.bus.subscribe("site/*") as heard:
            answer = await fire(office, "site/a", "site/b")
            assert answer.status == 201
            assert [event["tag"] for event in answer.json()["events"]] == ["site/a", "site/b"]
            assert all(event["_stamp"] and event["site"] == "lisbon" for event in answer.json()["events"])
            assert heard.queue.qsize() == 2
        assert kept(office) == [("site/a", "lisbon"), ("site/b", "lisbon")]
        items = await spooled(office.rooms)
        assert [item.tag for item in items if isinstance(item, Event)] == ["site/a", "site/b"]
        (row,) = [item for item in items if isinstance(item, AuditRecord) and item.action == "fire"]
        assert (row.user, row.door, row.verdict, row.subject) == ("ada", "api", "allow", "site/a, site/b")


@pytest.mark.parametrize(
    ("tag", "found"),
    [
        ("salt/job/20261121211116003098/ret/cam-1", "event.own_tag"),
        ("salt/auth", "event.own_tag"),
        ("salt/key", "event.own_tag"),
        ("salt/minion/cam-1/start", "event.own_tag"),
        ("salt/presence/change", "event.own_tag"),
        ("outstation/device/cam-1/cloned", "event.own_tag"),
        ("", "usage.invalid"),
        ("x" * 513, "usage.invalid"),
        ("site/\x1b[2J", "event.tag"),
    ],
)
async def test_a_tag_that_is_not_ones_own_is_refused_and_takes_the_others_with_it(
    tag: str, found: str, tmp_path: Path
) -> None:
    async with an_office(tmp_path) as office:
        answer = await fire(office, "site/a", tag)
        assert (answer.status, answer.error["id"]) == (400, found)
        assert answer.error["allowed"]
        assert kept(office) == []


async def test_a_tag_that_only_looks_like_one_of_the_stations_is_anybodys(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        assert (await fire(office, "salt/authors", "outstations/a", "salt/beacon/cam-1/load")).status == 201


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ({"a": "x" * limits.EVENT_DATA_BYTES}, "event.too_large"),
        (deep(limits.VALUE_DEPTH + 1), "event.data"),
        ([1], "usage.invalid"),
    ],
)
async def test_data_that_is_too_large_or_no_mapping_is_refused(data: Any, found: str, tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        answer = await fire(office, "site/a", data=data)
        assert (answer.status, answer.error["id"]) == (400, found)
        assert kept(office) == []


async def test_too_many_at_once_are_refused(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        assert (await fire(office, *["site/a"] * limits.EVENTS_AT_ONCE)).status == 201
        assert (await fire(office, *["site/a"] * (limits.EVENTS_AT_ONCE + 1))).status == 400
        assert (await fire(office)).status == 400
        assert len(kept(office)) == limits.EVENTS_AT_ONCE


async def test_who_may_not_run_jobs_may_not_fire_and_rules_name_the_tags(tmp_path: Path) -> None:
    async with an_office(tmp_path, RULES) as office:
        assert (await fire(office, "site/door/north", user="anna")).status == 201
        for user, tag, words in [
            ("eve", "site/door/north", "may not run jobs"),
            ("anna", "site/alarm", "not granted with these arguments"),
            ("bob", "site/door/north", "cannot wait for a release"),
        ]:
            answer = await fire(office, tag, user=user)
            assert answer.status == 403
            assert words in answer.error["what"]
        assert kept(office) == [("site/door/north", "lisbon")]
        asked = "SELECT user, verdict, fun FROM audit WHERE action = 'fire' ORDER BY id"
        assert look(office.rooms.writer._path, asked) == [
            ("anna", "allow", "event.send"),
            ("eve", "deny", ""),
            ("anna", "deny", "event.send"),
            ("bob", "deny", "event.send"),
        ]


async def test_when_the_store_cannot_be_written_nothing_is_claimed(tmp_path: Path) -> None:
    async with an_office(tmp_path, masters=True) as office:
        assert (await fire(office, "site/before")).status == 201
        with closing(sqlite3.connect(office.rooms.writer._path)) as other:
            other.execute(
                "CREATE TRIGGER full BEFORE INSERT ON events WHEN NEW.tag LIKE 'site/%'"
                " BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END"
            )
            other.commit()
        with office.rooms.bus.subscribe("site/*") as heard:
            answer = await fire(office, "site/lost")
            assert (answer.status, answer.error["id"]) == (500, "store.failed")
            assert "disk is full" in answer.error["found"]
            assert heard.queue.empty()
        assert kept(office) == [("site/before", "lisbon")]
        items = await spooled(office.rooms)
        assert [item.tag for item in items if isinstance(item, Event)] == ["site/before"]
        assert [item.subject for item in items if isinstance(item, AuditRecord) and item.action == "fire"] == [
            "site/before"
        ]
