"""What a restored store must not do again: give out its numbers, keep its doors open, start jobs, use its group key.

Between the backup and now the station may have gone on. Masters and devices know what it did; the store does not.
"""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from device_agent.clock import iso
from device_agent.errors import ConfigInvalid
from device_agent.protocol.jid import JidMaker
from device_agent.protocol.messages import AuditRecord, encode
from device_agent.trust.epochs import EPOCH_MAX, GROUP_KEY_BYTES
from gateway.audit.book import bounded, keeping
from gateway.backup.refusals import BackupRefused
from gateway.downlinks.ssh_journal import HORIZON_ROW
from gateway.spool.ledger import accepted
from gateway.store.migrate import migrate
from gateway.store.told import FENCES_KEY
from gateway.store.trust_state import StoreTrust
from gateway.store.trust_state import keeping as keeping_trust

EPOCHS_SKIPPED: Final = 65_536
"""Far more group keys than a station makes in its life, and far fewer than there are numbers."""

_WHY = "the gateway was restored from a backup"


@dataclass(frozen=True, slots=True)
class Restoration:
    """What is written down of it: which site's backup of when was restored when by whom, and with which site key."""

    site: str
    taken: int
    at: float
    user: str
    kid: bytes
    new_keys: bool


def check_store(store: Path, where: str) -> None:
    """Whether this is a sound store, which it is brought to the newest schema for. Raises ``BackupRefused``."""
    try:
        with closing(sqlite3.connect(store)) as connection:
            found = [row[0] for row in connection.execute("PRAGMA integrity_check(3)")]
        if found != ["ok"]:
            raise BackupRefused("bad_store", where, "; ".join(map(str, found))[:300])
        migrate(store)
    except (sqlite3.Error, ConfigInvalid) as error:
        found_words = (error.found or error.what) if isinstance(error, ConfigInvalid) else str(error)
        raise BackupRefused("bad_store", where, found_words) from None


def renew_store(store: Path, told: Restoration) -> None:
    """Make a store the beginning of something new, in one transaction."""
    record = AuditRecord(
        mark=f"{secrets.token_hex(8)}-1",
        site=told.site,
        at=told.at,
        user=bounded(told.user, 128),
        door="console",
        action="gateway.restore",
        subject=f"site {told.site}, backup of {iso(told.taken)}",
        verdict="allow",
        why="with new keys" if told.new_keys else "with its keys",
    )
    adding, rows = keeping([record])
    body = encode(record)
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        for pragma in ("synchronous=FULL", "secure_delete=ON"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("BEGIN IMMEDIATE")
        # Masters have had items under the numbers that come next: another name for whoever numbers them.
        connection.execute("UPDATE station SET value = ? WHERE key = 'epoch'", (secrets.token_hex(8),))
        # By another name it is another store to them, and none that was copied.
        connection.execute("DELETE FROM marks")
        connection.execute("DELETE FROM station WHERE key = ?", (FENCES_KEY,))
        # What SSH devices have run since the backup is remembered by nobody else: what is as old as this runs no more.
        row = (HORIZON_ROW, f"restored {JidMaker().next(told.at)}")
        connection.execute("INSERT OR REPLACE INTO station VALUES (?, ?)", row)
        # No witness of this file exists, and the one of the store that it is a copy of says nothing of it.
        connection.execute("UPDATE store_commits SET store = ?, witnessed = 0", (secrets.token_hex(8),))
        why = f"{_WHY} of {iso(told.taken)}"
        trust = StoreTrust(state="restored", at=told.at, since=float(told.taken), reason=why, told=True)
        connection.executemany(*keeping_trust(trust))
        # Nobody here knows what became of these: they are asked after and never started, and end as the rest did.
        connection.execute("UPDATE jobs SET deadline = accepted WHERE closed IS NULL")
        connection.execute(
            "UPDATE join_windows SET closed = ?, why = ? WHERE closed IS NULL",
            (told.at, _WHY),
        )
        _renew_group_key(connection, told)
        connection.executemany(adding, rows)
        connection.execute("INSERT INTO spool_audit (body) VALUES (?)", (body,))
        connection.executemany(*accepted("audit", 1, len(body)))
        connection.execute("COMMIT")


def _renew_group_key(connection: sqlite3.Connection, told: Restoration) -> None:
    """Another key under a number that is above any that devices and masters can have seen of this site key.

    They take none but a higher one. A new site key begins anew, which the station does by itself.
    """
    (highest,) = connection.execute("SELECT max(epoch) FROM epochs WHERE kid = ?", (told.kid,)).fetchone()
    connection.execute("DELETE FROM epochs")
    if highest is not None and not told.new_keys:
        number = min(highest + EPOCHS_SKIPPED, EPOCH_MAX)
        connection.execute(
            "INSERT INTO epochs (kid, epoch, key, made, revocation) VALUES (?, ?, ?, ?, 1)",
            (told.kid, number, secrets.token_bytes(GROUP_KEY_BYTES), told.at),
        )
