"""What a store says of itself, read only and by who else may run on it: counts, and never what devices said."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from device_agent.clock import iso

SECONDS: Final = 15.0
STEPS: Final = 100_000


def stored(path: Path, monotonic: Callable[[], float]) -> dict[str, Any]:
    """Schema, ledger, counts and what was denied last. Raises ``sqlite3.Error``, also when it takes too long."""
    end = monotonic() + SECONDS
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=2)) as store:
        store.set_progress_handler(lambda: int(monotonic() > end), STEPS)
        present = {name for (name,) in store.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        found: dict[str, Any] = {
            "schema": store.execute("PRAGMA user_version").fetchone()[0],
            "oldest_reader": store.execute("PRAGMA application_id").fetchone()[0],
            "bytes": path.stat().st_size,
            "tables": sorted(present),
        }
        for name, (table, query) in _QUERIES.items():
            if table in present:
                try:
                    found[name] = [list(row) for row in store.execute(query)]
                except sqlite3.Error as error:
                    # Too much to count in the time, or a damaged page: the rest is worth having.
                    found[name] = f"not read: {error}"
        denied = found.get("denied_last")
        if isinstance(denied, list):
            found["denied_last"] = [[iso(at), *rest] for at, *rest in denied]
    return found


_QUERIES: Final = {
    "ledger": ("ledger", "SELECT class, accepted, delivered, pending_bytes FROM ledger ORDER BY class"),
    "dropped": ("drops", "SELECT class, reason, count FROM drops ORDER BY class, reason"),
    "devices_by_state": ("enrolled", "SELECT state, count(*) FROM enrolled GROUP BY state ORDER BY state"),
    "sites_by_state": ("keys", "SELECT state, count(*) FROM keys GROUP BY state ORDER BY state"),
    "jobs": ("jobs", "SELECT origin, count(*) FROM jobs GROUP BY origin ORDER BY origin"),
    "salt_orders": ("salt_jobs", "SELECT master, count(*) FROM salt_jobs GROUP BY master ORDER BY master"),
    "outcomes": ("outcomes", "SELECT outcome, count(*) FROM outcomes GROUP BY outcome ORDER BY outcome"),
    "denied_last": (
        "audit",
        "SELECT at, door, action, why FROM audit WHERE verdict <> 'allow' ORDER BY id DESC LIMIT 100",
    ),
    "events": ("events", "SELECT count(*), min(stamp), max(stamp) FROM events"),
}
