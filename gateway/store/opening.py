"""Opens a station's store, also one that is damaged: it is set aside, what reads goes into a fresh one.

The steps of it are on disk before each is taken, so that a start that is cut short is done again by the next one. It
leaves the damaged file where it set it aside; ``Retention`` removes it.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sqlite3
from pathlib import Path
from typing import Final
from urllib.parse import quote

from device_agent.clock import Clock, iso
from device_agent.durable import read_regular, synced
from device_agent.errors import ConfigInvalid, StationFailed
from gateway.store import reckoning, salvage, schema_map, write_ahead_log
from gateway.store.damage import ROW, Damage, decode, encode, is_damage, mark_path
from gateway.store.migrate import migrate, steps
from gateway.store.went_back import Found, check_witness, log_words

log = logging.getLogger(__name__)

CHECKED_BYTES: Final = 64 * 2**20
"""A store up to this size is checked as a whole at every start; a larger one when something of it is read."""

LOG_CUT: Final = "commits in the write-ahead log cannot be read"
SIDES: Final = ("-wal", "-shm")
ASIDE: Final = ".damaged-"
NAME: Final = re.compile(r"\.damaged-\d{8}T\d{6}Z(-\d+)?$")


def open_store(path: Path, clock: Clock) -> str:
    """Make the store ready and return its epoch. Raises ``ConfigInvalid``, ``StationFailed``."""
    for end in ("", *SIDES):
        _refuse_irregular(_side(path, end))
    begun = _read_plan(path)
    is_new = begun is None and not (path.is_file() and path.stat().st_size)
    log_found = log_words(path)
    if begun is None and path.is_file():
        reason = look(path)
        if reason and (schema_map.map_path(path).exists() or _is_ours(path)):
            begun = _plan(path, reason, clock.wall())
    if begun is not None:
        _mend(path, begun)
    migrate(path)
    schema_map.keep(path)
    return check_witness(path, Found(is_new, log_found), clock)


def look(path: Path) -> str:
    """What is wrong with a store, in words of SQLite; empty when nothing is. What it costs has a bound."""
    if mark_path(path).exists():
        return _and_the_log(path, _mark_words(path) or "it was found damaged")
    if not path.stat().st_size:
        return ""
    if not write_ahead_log.has_header(_side(path, "-wal")):
        return "the write-ahead log does not begin as one"
    # One that cannot be opened at all is for ``migrate`` to speak of.
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as store,
    ):
        try:
            store.execute("PRAGMA busy_timeout=10000")
            (version,) = store.execute("PRAGMA user_version").fetchone()
            store.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if version > steps()[-1][0]:
                # Of a newer release, which knows better; ``migrate`` says so.
                return ""
            (_, frames, _) = store.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if write_ahead_log.commits_after(_side(path, "-wal"), max(frames, 0)) > write_ahead_log.TORN_COMMITS:
                return LOG_CUT
            if path.stat().st_size <= CHECKED_BYTES:
                (found,) = store.execute("PRAGMA quick_check(1)").fetchone()
                return "" if found == "ok" else " ".join(str(found).split())[:300]
        except sqlite3.Error as error:
            if is_damage(error):
                # Before the file is closed, which takes the log away.
                return _and_the_log(path, str(error))
            # Locked, or no room: ``migrate`` says what it is.
    return ""


def _refuse_irregular(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise ConfigInvalid(
            "a file of the store is not a regular file",
            where=str(path),
            found="a folder" if path.is_dir() else "a FIFO, a socket or a device",
            allowed="a file that the station has written, or none",
            hint=f"ls -ld {path}; move it away, and start the station again",
        )


def _mark_words(path: Path) -> str:
    try:
        return read_regular(mark_path(path)).decode(errors="replace").strip()[:300]
    except OSError as error:
        return f"its mark cannot be read: {error.strerror or error}"


def _and_the_log(path: Path, reason: str) -> str:
    return f"{reason}; {LOG_CUT}" if write_ahead_log.is_cut(_side(path, "-wal")) else reason


def _is_ours(path: Path) -> bool:
    """Whether a file without a map is a store: what never was one is no store of ours to set aside."""
    try:
        with contextlib.closing(_connect(path)) as store:
            return bool(store.execute("SELECT 1 FROM sqlite_schema WHERE name = 'station'").fetchone())
    except sqlite3.Error:
        return False


def set_aside(path: Path) -> list[Path]:
    """The damaged files that stand beside a store, without what belongs to each; oldest first."""
    return sorted(file for file in path.parent.glob(f"{path.name}{ASIDE}*") if NAME.search(file.name))


def belongings(aside: Path) -> list[Path]:
    """All files of one that was set aside."""
    return [file for file in aside.parent.glob(f"{aside.name}*") if file == aside or file.name[len(aside.name)] in "-."]


def _side(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def _plan_path(path: Path) -> Path:
    return path.with_name(path.name + ".salvage")


def _plan(path: Path, reason: str, at: float) -> Damage:
    stamp = iso(at).replace("-", "").replace(":", "")
    aside, number = _side(path, f"{ASIDE}{stamp}"), 1
    while aside.exists():
        number += 1
        aside = _side(path, f"{ASIDE}{stamp}-{number}")
    plan = Damage(at=at, reason=reason, aside=str(aside), log_lost="write-ahead log" in reason)
    _write(_plan_path(path), encode(plan))
    return plan


def _read_plan(path: Path) -> Damage | None:
    try:
        return decode(read_regular(_plan_path(path)).decode())
    except OSError:
        return None


def _mend(path: Path, plan: Damage) -> None:
    """Salvage, or go on where an earlier start was cut short. Raises ``StationFailed``."""
    aside = Path(plan.aside)
    try:
        if not (path.exists() and aside.exists()):
            log.critical("the store is damaged and set aside path=%s aside=%s reason=%s", path, aside, plan.reason)
            _move(path, aside)
            _salvage(path, aside, plan)
            log.critical("the store goes on: %s", plan.words())
        mark_path(path).unlink(missing_ok=True)
        _plan_path(path).unlink()
        synced(path.parent)
    except (sqlite3.Error, OSError, ConfigInvalid) as error:
        raise StationFailed(
            "the store is damaged and cannot be salvaged",
            error_id="store.not_salvaged",
            where=plan.aside,
            found=str(error),
            allowed=f"room for another file of its size in {path.parent}",
            hint=f"look at the free space: df -h {path.parent}; the next start tries it again",
        ) from None


def _move(path: Path, aside: Path) -> None:
    # The log last: as long as it is there without its store, moving is not finished.
    if not aside.exists():
        path.rename(aside)
    for end in SIDES:
        if _side(path, end).exists():
            _side(path, end).rename(_side(aside, end))
    synced(path.parent)


def _salvage(path: Path, aside: Path, plan: Damage) -> None:
    fresh_path = _side(path, ".new")
    for end in ("", *SIDES):
        _side(fresh_path, end).unlink(missing_ok=True)
    migrate(fresh_path)
    known = schema_map.read(path)
    with contextlib.closing(sqlite3.connect(fresh_path, isolation_level=None)) as fresh:
        # Nobody needs it after a crash: then it is made again.
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "cache_size=-16000", "foreign_keys=OFF"):
            fresh.execute(f"PRAGMA {pragma}")
        fresh.execute("BEGIN IMMEDIATE")
        with contextlib.closing(_open_damaged(aside, known, plan)) as old:
            plan.tables = salvage.copy(old, fresh)
        reckoning.reckon(fresh, plan)
        fresh.execute("INSERT OR REPLACE INTO station VALUES (?, ?)", (ROW, encode(plan)))
        fresh.execute("COMMIT")
    synced(fresh_path)
    fresh_path.rename(path)
    synced(path.parent)


def _open_damaged(aside: Path, known: schema_map.SchemaMap | None, plan: Damage) -> sqlite3.Connection:
    """The damaged file, read only, with the schema it had. An empty database when nothing can be read."""
    old = None
    try:
        old = _connect(aside)
        tables = {name for (name,) in old.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        if known is None or {name for kind, name, *_ in known.entries if kind == "table"} <= tables:
            return old
    except sqlite3.Error as error:
        log.error("the schema cannot be read aside=%s error=%s", aside, error)
    if old is not None:
        old.close()
    if known is None:
        return sqlite3.connect(":memory:")
    plan.schema_rebuilt = True
    schema_map.rebuild(aside, known)
    return _connect(aside)


def _connect(aside: Path) -> sqlite3.Connection:
    # Read only, so that closing it does not write the log into it; and with a schema that may be changed, by which
    # SQLite also reads a file that is shorter than it says.
    old = sqlite3.connect(f"file:{quote(str(aside))}?mode=ro", uri=True, isolation_level=None)
    for pragma in ("writable_schema=ON", "cell_size_check=ON", "cache_size=-4000", "mmap_size=0"):
        old.execute(f"PRAGMA {pragma}")
    return old


def _write(path: Path, text: str) -> None:
    fresh = _side(path, ".new")
    fresh.write_text(text)
    synced(fresh)
    fresh.rename(path)
    synced(path.parent)
