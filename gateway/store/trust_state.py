"""Whether the store of this station has all that it acknowledged: it is sound, went back, was damaged, or was restored.

``open_store`` and ``gateway restore`` write this state before anything of the station runs. A consumer reads it once,
in its ``open``: work that the store has from before ``at`` may have run without the store knowing.
"""

from __future__ import annotations

import sqlite3
from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from device_agent.clock import iso
from gateway.store.reader import Reader
from gateway.store.rows import Statement

ROW: Final = "trust"
"""The key of this state in the table ``station``."""

MOST_JOBS: Final = 100

State = Literal["sound", "went_back", "damaged", "restored"]


class StoreTrust(Struct, frozen=True, kw_only=True):
    """What is known of the store's past.

    ``went_back``: commits that were acknowledged are gone. ``damaged``: a salvage lost rows or the end of the log.
    ``restored``: the store comes from a backup. Times are wall seconds.
    """

    state: State = "sound"
    at: float = 0.0
    """When this was noticed; the store counts on under a new epoch from then on."""
    since: float = 0.0
    """The last commit that the store still has; 0 where that is not known."""
    until: float = 0.0
    """The newest commit that the witness knew of; 0 where that is not known."""
    reason: str = ""
    missing: dict[str, int] = {}
    """By class of the ledger, items that were accepted and are gone: counted as dropped for ``damage``."""
    numbers: dict[str, tuple[int, int]] = {}
    """By stream of the spool, the first and the last number of what is gone."""
    jobs: tuple[str, ...] = ()
    """Jobs that were open and are gone, as far as the witness named them."""
    told: bool = False
    acknowledged: str = ""
    """The operator who acknowledged the loss; empty as long as none did."""

    @property
    def in_doubt(self) -> bool:
        """Whether the station may have done things that its store does not know, and no operator has said go on."""
        return self.state != "sound" and not self.acknowledged

    def words(self) -> str:
        """In one sentence."""
        parts = [self.reason]
        if self.since and self.until:
            parts.append(f"commits from {iso(self.since)} to {iso(self.until)} are gone")
        for name, count in sorted(self.missing.items()):
            parts.append(f"{count} accepted {name} are gone")
        for name, (first, last) in sorted(self.numbers.items()):
            parts.append(f"stream {name}: numbers {first} to {last}")
        if self.jobs:
            parts.append(f"jobs that were open and are gone: {', '.join(self.jobs)}")
        return "; ".join(parts)


SOUND: Final = StoreTrust(told=True)


async def load_trust(reader: Reader) -> StoreTrust:
    """The state of an open store. Raises ``StoreUnreadable``."""
    rows = await reader.rows("SELECT value FROM station WHERE key = ?", (ROW,))
    return decode(rows[0][0]) if rows else SOUND


def read_trust(connection: sqlite3.Connection) -> StoreTrust:
    """The same over a connection of SQLite."""
    row = connection.execute("SELECT value FROM station WHERE key = ?", (ROW,)).fetchone()
    return decode(row[0]) if row else SOUND


def decode(text: str) -> StoreTrust:
    """From its row. One that cannot be read says that something was wrong, and no more."""
    try:
        return msgspec.json.decode(text, type=StoreTrust)
    except msgspec.DecodeError:
        return StoreTrust(state="damaged", reason="the state of the store cannot be read", told=True)


def keeping(trust: StoreTrust) -> Statement:
    """The statement that puts the state on disk."""
    return ("INSERT OR REPLACE INTO station (key, value) VALUES (?, ?)", [(ROW, msgspec.json.encode(trust).decode())])


def acknowledged(trust: StoreTrust, user: str) -> StoreTrust:
    """The same, once an operator knows of it."""
    return replace(trust, acknowledged=user or "console")


def joined(before: StoreTrust, now: StoreTrust) -> StoreTrust:
    """What happens while an earlier loss is not acknowledged is added to it."""
    if not before.in_doubt or before.state == "restored":
        return now
    missing = {name: before.missing.get(name, 0) + now.missing.get(name, 0) for name in {*before.missing, *now.missing}}
    jobs = tuple(dict.fromkeys((*now.jobs, *before.jobs)))[:MOST_JOBS]
    return replace(now, since=min(before.since, now.since), missing=missing, jobs=jobs)
