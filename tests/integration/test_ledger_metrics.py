"""Every number of `outstation spool status --json` is among the metrics, and is the same there."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gateway.api.server import ApiServer
from gateway.spool.numbers import COUNTERS
from gateway.spool.streams import CLASSES
from tests.peers.database import opened_rooms
from tests.peers.exposition import read_exposition
from tests.peers.station import ask

Numbers = dict[tuple[str, frozenset[tuple[str, str]]], int]


def of_rows(prefix: str, rows: list[dict[str, Any]], **labels: str) -> Iterator[tuple[str, dict[str, str], int]]:
    """Each number of a table of classes, under the name that it must have among the metrics."""
    for row in rows:
        for key, value in row.items():
            if key == "class":
                continue
            named = {**labels, "class": row["class"]}
            if key == "dropped":
                yield from ((f"{prefix}dropped_total", {**named, "reason": why}, n) for why, n in value.items())
            else:
                yield f"{prefix}{key}{'_total' if key in COUNTERS else ''}", named, value


def expected(view: dict[str, Any]) -> Numbers:
    found = list(of_rows("outstation_spool_", view["classes"]))
    for site in view["sites"]:
        found += of_rows("outstation_site_spool_", site["classes"], site=site["site"])
        found.append(("outstation_site_spool_told_seconds", {"site": site["site"]}, int(site["at"])))
    return {(name, frozenset(labels.items())): value for name, labels, value in found}


def said(text: str) -> Numbers:
    found: Numbers = {}
    for name, labels, value in re.findall(r"^(\w*spool_\w+)\{(.*)\} (\d+)$", text, re.MULTILINE):
        found[name, frozenset(re.findall(r'(\w+)="([^"]*)"', labels))] = int(value)
    return found


async def test_every_number_of_the_ledger_is_a_metric(tmp_path: Path) -> None:
    async with opened_rooms(tmp_path / "state", masters=True) as rooms:
        await rooms.writer.commit(
            [
                (
                    "UPDATE ledger SET accepted = 1000 + length(class), delivered = 900, pending_bytes = 70",
                    [()],
                ),
                *(
                    ("INSERT INTO drops (class, reason, count) VALUES (?, ?, ?)", [(name, reason, number)])
                    for number, name in enumerate(CLASSES, 1)
                    for reason in ("budget", "disk_full")
                ),
                (
                    "INSERT INTO site_received (site, class, received, refused) VALUES ('porto', 'events', 41, 2)",
                    [()],
                ),
                (
                    "INSERT INTO site_ledgers (site, body, at) VALUES ('porto', ?, 1795457479.5)",
                    [
                        (
                            msgspec.msgpack.encode(
                                [
                                    {
                                        "name": "events",
                                        "accepted": 90,
                                        "delivered": 50,
                                        "pending": 33,
                                        "pending_bytes": 4400,
                                        "dropped": {"budget": 7},
                                        "confirmed": 44,
                                    }
                                ]
                            ),
                        )
                    ],
                ),
            ]
        )
        path = tmp_path / "api.sock"
        async with ApiServer(path, rooms.operations(asyncio.Event()), on_stop=lambda: None):
            view = (await ask(path, "GET", "/spool")).json()
            text = (await ask(path, "GET", "/metrics")).body.decode()
    wanted = expected(view)
    assert len(wanted) >= 4 * 7 + 10, json.dumps(view)
    assert said(text) == wanted
    assert [name for name, family in read_exposition(text).items() if not family.help] == []


async def test_a_station_without_a_master_has_them_as_well(tmp_path: Path) -> None:
    async with opened_rooms(tmp_path / "state") as rooms:
        text = await rooms.facts.metrics_text()
    assert all(f'outstation_spool_pending{{class="{name}"}} 0' in text for name in CLASSES)
