"""Compares a store with its witness before the station uses it, and counts what is gone.

A store that has fewer commits than its witness went back in time: its log is lost, or an older file took its place. It
goes on under a new epoch, so that no number means two things and masters take it for a new store and not for a copy.
"""

from __future__ import annotations

import dataclasses
import logging
import secrets
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from device_agent.clock import Clock
from device_agent.errors import StationFailed
from gateway.store import salvage
from gateway.store.damage import ROW, Damage, decode, encode, is_full
from gateway.store.reckoning import JUMP, REASON, STREAMS
from gateway.store.trust_state import State, StoreTrust, joined, keeping, read_trust
from gateway.store.witness import Position, make_witness, position, read_witness, witness_path

log = logging.getLogger(__name__)

LOST: Final = "the witness of the store is gone, so what the store lacks is not known"
FOREIGN: Final = "the witness beside the store belongs to another store, so what the store lacks is not known"
GONE: Final = "the store was gone and is made anew"
REPLACED: Final = "the store is older than when it was closed: an earlier copy of the file took its place"
BEHIND: Final = "the store lacks commits that were on disk"
SALVAGED: Final = "the store was damaged, and what reads of it was salvaged"


@dataclass(frozen=True, slots=True)
class Found:
    """What was there before the store was opened."""

    is_new: bool
    """No store was there."""
    log: str
    """The state of the write-ahead log in words."""
    salvage: Damage | None = None
    """What a salvage at this start found; None where there was none."""


def log_words(path: Path) -> str:
    """The state of a store's write-ahead log. SQLite may remove the log with the first connection that is closed."""
    try:
        size = path.with_name(f"{path.name}-wal").stat().st_size
    except FileNotFoundError:
        return "the write-ahead log is missing"
    return f"the write-ahead log ends early, at {size} bytes" if size else "the write-ahead log is empty"


def check_witness(path: Path, found: Found, clock: Clock) -> str:
    """Compare a store with its witness, and count what is gone; the store's epoch. Raises ``StationFailed``.

    The result and all counters are one commit. The witness is written after it, so a start that is cut short in
    between finds a store that is ahead, and nothing is counted twice.
    """
    seen = _read(path)
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as store:
            store.execute("PRAGMA synchronous=FULL")
            has, found = position(store), dataclasses.replace(found, salvage=_salvage(store))
            (witnessed,) = store.execute("SELECT witnessed FROM store_commits").fetchone()
            trust = _judged(store, has, seen, bool(witnessed), found, clock.wall())
            (epoch,) = store.execute("SELECT value FROM station WHERE key = 'epoch'").fetchone()
            if trust is not None or seen is None or seen.store != has.store:
                made = _made(path, position(store))
                store.execute("UPDATE store_commits SET witnessed = ?", (int(made),))
            elif not witnessed:
                store.execute("UPDATE store_commits SET witnessed = 1")
            return str(epoch)
    except sqlite3.Error as error:
        if is_full(error):
            raise _failed(path, "the disk is full", "store.disk_full", error) from None
        raise _failed(path, "the store cannot be compared with its witness", "store.witness", error) from None


def _judged(
    store: sqlite3.Connection, has: Position, seen: Position | None, witnessed: bool, found: Found, now: float
) -> StoreTrust | None:
    """The state of a store that lacks something, which is on disk with its counters; None for one that is sound."""
    witness = seen if seen is not None and _is_of(seen, has, witnessed) else None
    reason = _reason(has, seen, witness, witnessed, found)
    salvaged = found.salvage is not None and bool(found.salvage.incomplete or found.salvage.epoch_renewed)
    if not reason and not salvaged:
        _compared(store, found)
        return None
    state: State = "damaged" if salvaged else "went_back"
    trust = StoreTrust(
        state=state,
        at=now,
        since=has.at,
        until=witness.at if witness is not None and witness.at > has.at else 0.0,
        reason="; ".join(filter(None, (SALVAGED if salvaged else "", reason))),
    )
    store.execute("BEGIN IMMEDIATE")
    try:
        if witness is not None and reason:
            trust = replace(
                trust,
                missing=_count(store, has, witness, found),
                numbers=_numbers(has, witness, found),
                jobs=tuple(jid for jid in witness.jobs if not _has_job(store, jid)),
            )
        if reason:
            _begin_anew(store, has, witness)
        sql, rows = keeping(joined(read_trust(store), trust))
        store.executemany(sql, rows)
        _compared(store, found)
        store.execute("COMMIT")
    except BaseException:
        if store.in_transaction:
            store.execute("ROLLBACK")
        raise
    log.critical("the store is not what it was: %s", trust.words())
    return trust


def _made(path: Path, state: Position) -> bool:
    try:
        make_witness(witness_path(path), state)
    except OSError as error:
        # Without a witness the station works as before, and its writer tries again.
        log.error("the store's witness cannot be written path=%s error=%s", witness_path(path), error)
        return False
    return True


def _salvage(store: sqlite3.Connection) -> Damage | None:
    """The salvage that the store comes from, if it was not compared with a witness since."""
    row = store.execute("SELECT value FROM station WHERE key = ?", (ROW,)).fetchone()
    damage = decode(row[0]) if row else None
    # One that was told happened at an earlier start, perhaps of a release that knew no witness.
    return None if damage is None or damage.compared or damage.told else damage


def _compared(store: sqlite3.Connection, found: Found) -> None:
    if found.salvage is not None:
        found.salvage.compared = True
        store.execute("UPDATE station SET value = ? WHERE key = ?", (encode(found.salvage), ROW))


def _read(path: Path) -> Position | None:
    try:
        return read_witness(witness_path(path))
    except OSError as error:
        log.error("the store's witness cannot be read path=%s error=%s", witness_path(path), error)
        return None


def _is_of(seen: Position, has: Position, witnessed: bool) -> bool:
    """Whether a witness speaks of this store, so that its numbers can be compared."""
    # A store without a name of its own beside a witness has lost its name: with its log, or in a salvage.
    return seen.store == has.store or not witnessed


def _reason(has: Position, seen: Position | None, witness: Position | None, witnessed: bool, found: Found) -> str:
    """What the witness shows to be wrong with a store, in words; empty when nothing is."""
    if seen is None:
        return LOST if witnessed else ""
    if witness is None:
        return FOREIGN
    if found.is_new:
        return GONE
    if witness.commit > has.commit:
        return REPLACED if witness.closed else f"{BEHIND}: {found.log}"
    return ""


def _top(table: str, has: Position, found: Found) -> int:
    """The highest number of a table that the store still knows as given out; a salvage has gone on above it."""
    top = has.numbers[table][0]
    return max(0, top - JUMP) if found.salvage is not None else top


def _gone(name: str, has: Position, witness: Position, found: Found) -> tuple[int, int]:
    """Of one class, how many items the store lacks: those that a master has for certain, and those that are gone."""
    lacking = max(0, witness.accepted.get(name, 0) - has.accepted.get(name, 0))
    let_go = sum(max(0, witness.numbers[table][1] - _top(table, has, found)) for table in STREAMS[name])
    confirmed = max(0, witness.delivered.get(name, 0) - has.delivered.get(name, 0))
    delivered = min(lacking, let_go, confirmed)
    return delivered, lacking - delivered


def _numbers(has: Position, witness: Position, found: Found) -> dict[str, tuple[int, int]]:
    numbers = {}
    for table, (top, let_go) in witness.numbers.items():
        first = max(_top(table, has, found), let_go) + 1
        if first <= top:
            numbers[table.removeprefix("spool_")] = (first, top)
    return numbers


def _count(store: sqlite3.Connection, has: Position, witness: Position, found: Found) -> dict[str, int]:
    """Put into the ledger what the witness knows of and the store lacks; what is gone, by class."""
    missing = {}
    for name in STREAMS:
        delivered, gone = _gone(name, has, witness, found)
        store.execute("INSERT OR IGNORE INTO ledger (class) VALUES (?)", (name,))
        store.execute(
            "UPDATE ledger SET accepted = accepted + ?, delivered = delivered + ? WHERE class = ?",
            (delivered + gone, delivered, name),
        )
        if gone:
            missing[name] = gone
            store.execute(
                "INSERT INTO drops (class, reason, count) VALUES (?, ?, ?)"
                " ON CONFLICT (class, reason) DO UPDATE SET count = count + excluded.count",
                (name, REASON, gone),
            )
    return missing


def _has_job(store: sqlite3.Connection, jid: str) -> bool:
    return store.execute("SELECT 1 FROM jobs WHERE jid = ?", (jid,)).fetchone() is not None


def _begin_anew(store: sqlite3.Connection, has: Position, witness: Position | None) -> None:
    """Number under a new epoch, and above every number that was given out."""
    for table, (top, _) in has.numbers.items():
        highest = max(top, witness.numbers.get(table, (0, 0))[0] if witness is not None else 0)
        if highest:
            salvage.raise_sequence(store, table, highest + JUMP)
    store.execute("UPDATE station SET value = ? WHERE key = 'epoch'", (secrets.token_hex(8),))
    # Masters take a known epoch with unknown marks for a copy, and a new epoch without marks for a new store.
    store.execute("DELETE FROM marks")
    commit = max(has.commit, witness.commit if witness is not None else 0) + 1
    store.execute("UPDATE store_commits SET number = ?", (commit,))


def _failed(path: Path, what: str, error_id: str, error: Exception) -> StationFailed:
    return StationFailed(
        what,
        error_id=error_id,
        where=str(path),
        found=str(error),
        hint=f"look at the disk and its free space: dmesg; df -h {path.parent}",
    )
