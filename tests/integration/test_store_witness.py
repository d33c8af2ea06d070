"""A store that lost commits is noticed at the start by the witness beside it, and what is gone is counted."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from device_agent.clock import Clock
from device_agent.protocol.messages import decode_stored, encode
from gateway.checks import store as store_check
from gateway.spool.ledger import recount
from gateway.store import went_back
from gateway.store.opening import open_store
from gateway.store.trust_state import SOUND
from gateway.store.witness import SLOT_BYTES, read_witness, witness_path
from tests.peers.database import FIRST_JID, a_job, look, opened_rooms, spooled
from tests.peers.waiting import until
from tests.peers.witnessed_stores import epoch, gone, log_of, store_in, trust_of, witnessed

EARLY, LATE = 30, 80
MARK = b"m" * 16
Loss = Callable[[Path], None]


@pytest.fixture(scope="module")
def as_killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A gateway's state as ``kill -9`` leaves it: 30 events in the store's file, and 80 and an open job in its log."""
    folder, left = tmp_path_factory.mktemp("station"), tmp_path_factory.mktemp("left")

    async def live() -> None:
        async with opened_rooms(folder, masters=True) as rooms:
            events = [rooms.bus.event("door/open", {"n": n}) for n in range(EARLY + LATE)]
            await rooms.bus.fire(events[:EARLY])
            await rooms.writer.commit([("INSERT INTO marks (master, mark) VALUES (?, ?)", [("central", MARK)])])
            await rooms.writer._connection.empty_log(1000)
            for event in events[EARLY:]:
                await rooms.bus.fire([event])
            job = a_job()
            row = (job.jid, encode(job), "local", job.expires, job.issued)
            await rooms.writer.commit(
                [("INSERT INTO jobs (jid, body, origin, deadline, accepted) VALUES (?, ?, ?, ?, ?)", [row])]
            )
            await witnessed(store_in(folder))
            shutil.copytree(folder, left, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*-shm"))

    asyncio.run(live())
    return left


@pytest.fixture
def killed(as_killed: Path, tmp_path: Path) -> Path:
    """The store of such a state, in a folder of the test's own."""
    shutil.copytree(as_killed, tmp_path / "state")
    return store_in(tmp_path / "state")


def empty(store: Path) -> None:
    os.truncate(log_of(store), 0)


def half(store: Path) -> None:
    os.truncate(log_of(store), log_of(store).stat().st_size // 2)


def zeroed(store: Path) -> None:
    size = log_of(store).stat().st_size
    with log_of(store).open("r+b") as file:
        file.seek(size // 2)
        file.write(bytes(size - size // 2))


def other_time(store: Path) -> None:
    """A log that SQLite does not take, since it is of another time: its salts are others."""
    with closing(sqlite3.connect(store.with_name("other"))) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("CREATE TABLE t (x)")
        other.execute("BEGIN")
        for number in range(10):
            other.execute("INSERT INTO t VALUES (?)", (number,))
        other.execute("COMMIT")
        body = store.with_name("other-wal").read_bytes()
    log_of(store).write_bytes(body[:32] + bytes(len(body) - 32))


async def test_a_killed_station_that_lost_nothing_is_sound(killed: Path) -> None:
    before = epoch(killed)
    for _ in range(2):
        assert open_store(killed, Clock()) == before
        assert await trust_of(killed) == SOUND
    assert look(killed, "SELECT * FROM drops") == []


@pytest.mark.parametrize("loss", [gone, empty, half, zeroed, other_time])
async def test_what_was_in_a_lost_log_is_counted_by_number_and_time(loss: Loss, killed: Path) -> None:
    shutil.copy(killed, killed.with_name("copy"))
    before = epoch(killed.with_name("copy"))
    seen = read_witness(witness_path(killed))
    assert seen is not None
    loss(killed)
    fresh = open_store(killed, Clock())
    assert fresh != before
    trust = await trust_of(killed)
    assert (trust.state, trust.in_doubt) == ("went_back", True)
    assert "write-ahead log" in trust.reason
    assert 0 < trust.since < trust.until == seen.at
    lost = trust.missing["events"]
    assert 0 < lost <= LATE
    assert trust.numbers["events"] == (EARLY + LATE - lost + 1, EARLY + LATE)
    ledger = dict(look(killed, "SELECT class, accepted FROM ledger"))
    assert ledger["events"] == seen.accepted["events"]
    assert dict(look(killed, "SELECT class, count FROM drops WHERE reason = 'damage'")) == trust.missing
    assert all(each.equal for each in await recount(killed))
    assert look(killed, "SELECT * FROM marks") == []
    # The next start has nothing to add.
    assert open_store(killed, Clock()) == fresh
    assert await trust_of(killed) == trust


async def test_the_loss_is_reported_once_and_until_an_operator_acknowledges_it(killed: Path) -> None:
    gone(killed)
    for _ in range(2):
        async with opened_rooms(killed.parent, masters=True, working=True) as rooms:
            assert rooms.aftermath.trust.in_doubt
            (finding,) = await store_check.check(rooms.facts)
            assert (finding.severity, finding.about) == ("error", "history")
            assert f"{LATE} accepted events are gone" in finding.finding
    rows = look(killed, "SELECT data FROM events WHERE tag = 'outstation/station/lisbon/damaged'")
    assert len(rows) == 1
    told = decode_stored(rows[0][0])
    assert told["numbers"]["events"] == [EARLY + 1, EARLY + LATE]
    assert told["jobs"] == [str(FIRST_JID)]
    assert told["since"] < told["until"]
    async with opened_rooms(killed.parent, masters=True, working=True) as rooms:
        # It goes up with what else waits there.
        assert any(getattr(item, "tag", "") == "outstation/station/lisbon/damaged" for item in await spooled(rooms))
        await rooms.aftermath.acknowledge("ops")
        assert [each.severity for each in await store_check.check(rooms.facts)] == ["info"]
    async with opened_rooms(killed.parent, masters=True, working=True) as rooms:
        assert not rooms.aftermath.trust.in_doubt
        assert rooms.aftermath.trust.acknowledged == "ops"


async def test_a_store_of_a_release_without_a_witness_gets_one(killed: Path) -> None:
    witness_path(killed).unlink()
    with closing(sqlite3.connect(killed)) as file, file:
        # As the migration finds it.
        file.execute("DELETE FROM store_commits")
    before = epoch(killed)
    for _ in range(2):
        assert open_store(killed, Clock()) == before
        assert await trust_of(killed) == SOUND
    assert read_witness(witness_path(killed)) is not None


async def test_commits_of_a_release_without_a_witness_are_no_loss(killed: Path) -> None:
    """An older release that was put back leaves the commit number and the witness as they are."""
    with closing(sqlite3.connect(killed)) as file, file:
        file.execute("INSERT INTO spool_events (body) VALUES (x'00')")
        file.execute(
            "UPDATE ledger SET accepted = accepted + 1, pending_bytes = pending_bytes + 1 WHERE class = 'events'"
        )
    before = epoch(killed)
    assert open_store(killed, Clock()) == before
    assert await trust_of(killed) == SOUND


async def test_an_older_witness_is_no_loss_and_a_torn_slot_leaves_the_other(killed: Path) -> None:
    before, witness = epoch(killed), witness_path(killed)
    newest = read_witness(witness)
    assert newest is not None
    place = newest.serial % 2 * SLOT_BYTES
    body = bytearray(witness.read_bytes())
    body[place + 60] ^= 0xFF
    witness.write_bytes(body)
    older = read_witness(witness)
    assert older is not None
    assert older.serial == newest.serial - 1
    assert open_store(killed, Clock()) == before
    assert await trust_of(killed) == SOUND


@pytest.mark.parametrize("body", [None, b"", b"x" * 2 * SLOT_BYTES])
async def test_a_lost_witness_is_said_and_the_store_numbers_anew(body: bytes | None, killed: Path) -> None:
    before = epoch(killed)
    open_store(killed, Clock())
    witness_path(killed).unlink() if body is None else witness_path(killed).write_bytes(body)
    fresh = open_store(killed, Clock())
    assert fresh != before
    trust = await trust_of(killed)
    assert (trust.state, trust.missing) == ("went_back", {})
    assert "witness" in trust.reason
    assert look(killed, "SELECT * FROM drops") == []
    assert open_store(killed, Clock()) == fresh


async def test_the_witness_of_another_store_counts_nothing(killed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    open_store(other, Clock())
    open_store(killed, Clock())
    shutil.copy(witness_path(other), witness_path(killed))
    open_store(killed, Clock())
    trust = await trust_of(killed)
    assert (trust.state, trust.missing) == ("went_back", {})
    assert "another store" in trust.reason


async def test_a_store_that_is_gone_is_counted_as_lost(killed: Path) -> None:
    for file in (killed, log_of(killed)):
        file.unlink()
    open_store(killed, Clock())
    trust = await trust_of(killed)
    assert (trust.state, trust.missing["events"], trust.since) == ("went_back", EARLY + LATE, 0.0)
    assert all(each.equal for each in await recount(killed))


async def test_an_older_copy_of_a_store_that_was_closed_in_order_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    async with opened_rooms(folder, masters=True):
        pass
    shutil.copy(store_in(folder), tmp_path / "old")
    async with opened_rooms(folder, masters=True) as rooms:
        await rooms.bus.fire([rooms.bus.event("door/open", {"n": 1})])
    witness = read_witness(witness_path(store_in(folder)))
    assert witness is not None
    assert witness.closed
    assert not log_of(store_in(folder)).exists()
    before = epoch(store_in(folder))
    assert open_store(store_in(folder), Clock()) == before
    assert await trust_of(store_in(folder)) == SOUND
    shutil.copy(tmp_path / "old", store_in(folder))
    assert open_store(store_in(folder), Clock()) != before
    trust = await trust_of(store_in(folder))
    assert (trust.state, trust.missing) == ("went_back", {"events": 1})
    assert "earlier copy" in trust.reason


async def test_what_a_master_confirmed_of_the_lost_commits_is_delivered_and_no_damage(tmp_path: Path) -> None:
    folder, old = tmp_path / "state", tmp_path / "old"
    async with opened_rooms(folder, masters=True) as rooms:
        await rooms.bus.fire([rooms.bus.event("door/open", {"n": n}) for n in range(10)])
    shutil.copy(store_in(folder), old)
    async with opened_rooms(folder, masters=True) as rooms:
        await rooms.bus.fire([rooms.bus.event("door/open", {"n": n}) for n in range(20)])
        await rooms.spool.confirm("events", 25, "central")
    shutil.copy(old, store_in(folder))
    open_store(store_in(folder), Clock())
    trust = await trust_of(store_in(folder))
    assert trust.missing == {"events": 5}
    assert trust.numbers["events"] == (26, 30)
    assert look(store_in(folder), "SELECT accepted, delivered FROM ledger WHERE class = 'events'") == [(30, 15)]
    assert all(each.equal for each in await recount(store_in(folder)))


async def test_a_start_that_is_cut_short_counts_a_loss_once(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cut(Exception):
        pass

    def cut(*_: object) -> None:
        raise Cut

    gone(killed)
    with monkeypatch.context() as patched:
        patched.setattr(went_back, "make_witness", cut)
        with pytest.raises(Cut):
            open_store(killed, Clock())
    first = await trust_of(killed)
    open_store(killed, Clock())
    assert await trust_of(killed) == first
    assert look(killed, "SELECT count FROM drops WHERE class = 'events'") == [(LATE,)]


async def test_a_salvage_of_a_cut_log_counts_by_the_witness_as_well(killed: Path) -> None:
    log = log_of(killed)
    with log.open("r+b") as file:
        file.seek(32 + 20 * (24 + 4096) + 100)
        file.write(b"garbage")
    seen = read_witness(witness_path(killed))
    assert seen is not None
    open_store(killed, Clock())
    trust = await trust_of(killed)
    assert trust.state == "damaged"
    assert 0 < trust.missing["events"] < LATE
    assert trust.numbers["events"] == (EARLY + LATE - trust.missing["events"] + 1, EARLY + LATE)
    assert dict(look(killed, "SELECT class, accepted FROM ledger"))["events"] == seen.accepted["events"]
    assert all(each.equal for each in await recount(killed))


async def test_a_witness_that_cannot_be_written_holds_up_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    async with opened_rooms(folder, masters=True):
        pass
    witness_path(store_in(folder)).unlink()
    witness_path(store_in(folder)).mkdir()
    async with opened_rooms(folder, masters=True) as rooms:
        await rooms.bus.fire([rooms.bus.event("door/open", {"n": 1})])
        await until(lambda: rooms.writer.witness.file.failing != "")
        assert len(await spooled(rooms)) == 1
        (finding,) = [each for each in await store_check.check(rooms.facts) if each.about == "witness"]
        assert finding.severity == "warning"


async def test_a_witness_is_written_again_after_the_first_write_of_a_start_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "state"
    async with opened_rooms(folder, masters=True):
        pass
    sync = os.fdatasync

    def fails_once(_: int) -> None:
        monkeypatch.setattr(os, "fdatasync", sync)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with opened_rooms(folder, masters=True) as rooms:
        monkeypatch.setattr(os, "fdatasync", fails_once)
        await rooms.bus.fire([rooms.bus.event("door/open", {"n": 1})])
        await until(lambda: rooms.writer.witness.file.failing != "")
        await rooms.bus.fire([rooms.bus.event("door/open", {"n": 2})])
        await witnessed(store_in(folder))
        assert rooms.writer.witness.file.failing == ""


async def test_a_store_that_was_in_its_log_alone_is_counted_as_lost(tmp_path: Path) -> None:
    """Until SQLite first brings the log home, the file itself has no table."""
    folder, left = tmp_path / "state", tmp_path / "left"
    async with opened_rooms(folder, masters=True) as rooms:
        await rooms.bus.fire([rooms.bus.event("door/open", {"n": 1})])
        await witnessed(store_in(folder))
        shutil.copytree(folder, left)
    with closing(sqlite3.connect(tmp_path / "header")) as file:
        file.execute("PRAGMA auto_vacuum=INCREMENTAL")
        file.execute("PRAGMA journal_mode=WAL")
        file.execute("PRAGMA application_id=0")
    gone(store_in(left))
    shutil.copy(tmp_path / "header", store_in(left))
    open_store(store_in(left), Clock())
    trust = await trust_of(store_in(left))
    assert trust.state == "went_back"
    assert trust.missing["events"] == 1
