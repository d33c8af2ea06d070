"""What the stations of a chaos run have on disk in the end, read from their SQLite files."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from device_agent.protocol.messages import decode_stored
from tests.chaos.coordinator import Book, Evidence, Order
from tests.chaos.plant import MASTERS, SITE, Plant

READ_SECONDS = 30.0


def rows(path: Path, sql: str) -> list[Any]:
    """The answer of a station's store; nothing when it has no such table."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=READ_SECONDS)) as store:
            return store.execute(sql).fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return []
        raise


def book(path: Path) -> Book:
    """What one station has."""
    events = [
        decode_stored(data)["id"]
        for (data,) in rows(path, "SELECT data FROM events WHERE tag LIKE '%chaos/%' ORDER BY id")
    ]
    outcomes: dict[str, dict[str, str]] = defaultdict(dict)
    executions: dict[str, dict[str, int]] = defaultdict(dict)
    for jid, device, outcome, times in rows(path, "SELECT jid, device, outcome, executions FROM outcomes"):
        outcomes[jid][device] = outcome
        executions[jid][device] = times
    orders = {
        jid: Order(closed is not None, expected or 0, bool(cancelled))
        for jid, closed, expected, cancelled in rows(path, "SELECT jid, closed, expected, cancelled FROM jobs")
    }
    return Book(events, orders, outcomes, executions)


def drops(path: Path) -> Counter[tuple[str, str]]:
    """The drops that a site's ledger names, by class and reason; none where there is no ledger or it cannot be read."""
    found: Counter[tuple[str, str]] = Counter()
    with contextlib.suppress(sqlite3.Error):
        for name, reason, count in rows(path, "SELECT class, reason, count FROM drops"):
            found[name, reason] = count
    return found


def open_jobs(path: Path) -> list[str]:
    """Jobs that have not ended at a station."""
    return [jid for (jid,) in rows(path, "SELECT jid FROM jobs WHERE closed IS NULL ORDER BY jid")]


def gather(plant: Plant, *, endings: Sequence[str], drops_outside: Sequence[str], undrained: str) -> Evidence:
    """Everything that the coordinator looks at."""
    site = plant.store_of(SITE)
    by_class: dict[str, dict[str, int]] = defaultdict(dict)
    for (name, reason), count in drops(site).items():
        by_class[name][reason] = count
    received: Counter[str] = Counter()
    for master in MASTERS:
        for name, count, refused in rows(
            plant.store_of(master), f"SELECT class, received, refused FROM site_received WHERE site = '{SITE}'"
        ):
            received[name] += count - refused
    verified, words = verify(plant)
    return Evidence(
        masters={master: book(plant.store_of(master)) for master in MASTERS},
        site_name=SITE,
        site=book(site),
        reports={name: report["executed"] for name, report in plant.reports.items()},
        drops=by_class,
        drops_outside=drops_outside,
        delivered=dict(rows(site, "SELECT class, delivered FROM ledger")),
        received=received,
        endings=endings,
        verified=verified,
        verify_words=words,
        undrained=undrained,
        ran=plant.ssh.ran(),
    )


def verify(plant: Plant) -> tuple[bool | None, str]:
    """What the recount of the site's spool says; None when there is no such command."""
    done = plant.command("spool", "verify", "--json", station=SITE)
    if done.status == 2 and "no such command" in done.error.lower():
        return None, "there is no such command"
    return done.status == 0, " ".join((done.out + done.error).split())


def kept(plant: Plant, findings: Sequence[str], facts: Mapping[str, Any], folder: Path) -> None:
    """Leave what a failure is looked into with: the findings, the logs, and every store but the keys."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "findings.txt").write_text("\n".join(findings) + "\n", encoding="utf-8")
    (folder / "facts.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    for path in plant.folder.glob("*.log"):
        (folder / path.name).write_bytes(path.read_bytes())
    for name, path in _stores(plant):
        with (
            closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store,
            closing(sqlite3.connect(folder / f"{name}.sqlite")) as copy,
        ):
            store.backup(copy)


def _stores(plant: Plant) -> Iterator[tuple[str, Path]]:
    for name in (*MASTERS, SITE):
        if plant.store_of(name).exists():
            yield name, plant.store_of(name)
