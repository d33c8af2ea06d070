"""What a Salt master ordered is kept as far as there is room; what gives way is never taken again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from gateway.salt.kept import FRESH_SECONDS
from gateway.salt.sender import SaltSender
from tests.peers.clock import HandClock
from tests.peers.database import FIRST_JID
from tests.peers.salt_above import SaltAboveDouble, published
from tests.peers.salt_gate import MASTER, OTHER, Gate, opened
from tests.peers.waiting import until

ROWS = 8


async def refused(gate: Gate, number: int, master: str = MASTER, arg: str = "reboot") -> str:
    """An order that is not granted: it is kept, and answered at once through the spool."""
    jid = str(FIRST_JID + number)
    await gate.orders.take(published(jid, "cmd.run", [arg]), master)
    return jid


async def kept(gate: Gate, master: str = MASTER) -> list[str]:
    return [jid for (jid,) in await gate.rooms.reader.rows("SELECT jid FROM salt_jobs WHERE master = ?", (master,))]


async def delivered(gate: Gate, clock: HandClock) -> None:
    """The master has confirmed every answer."""
    sender = SaltSender(
        spool=gate.rooms.spool,
        book=gate.book,
        reader=gate.rooms.reader,
        metrics=gate.rooms.metrics,
        clock=clock,
        gateway="lisbon",
        masters=lambda: [MASTER, OTHER],
    )

    async def emptied() -> bool:
        return await gate.rooms.spool.pending() == 0

    async with sender, SaltAboveDouble().linked(sender, MASTER), SaltAboveDouble().linked(sender, OTHER):
        sender.active(MASTER, True)
        gate.rooms.spool.added()
        await until(emptied)


async def test_what_is_answered_gives_way_and_is_never_taken_again(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks", rows=ROWS) as gate:
        gate.hello("cam-1")
        for number in range(ROWS):
            await refused(gate, number)
        other = await refused(gate, 100, OTHER)
        await delivered(gate, clock)
        clock.move(FRESH_SECONDS + 1)
        last = await refused(gate, ROWS)
        assert await kept(gate) == [str(FIRST_JID + number) for number in range(2, ROWS + 1)]
        assert await kept(gate, OTHER) == [other], "each master has its own room"
    async with opened(tmp_path, clock, "looks", rows=ROWS) as gate:
        gate.hello("cam-1")
        before = Counter(gate.rooms.metrics.refusals)
        await gate.orders.take(published(str(FIRST_JID + 1), "test.ping"), MASTER)
        assert Counter(gate.rooms.metrics.refusals) - before == {("salt", "let_go"): 1}
        assert gate.rooms.open_jobs.get(str(FIRST_JID + 1)) is None
        assert gate.told.values()["cam-1"].startswith("refused: let_go: ")
        await gate.orders.take(published(last, "cmd.run", ["reboot"]), MASTER)
        assert gate.rooms.metrics.counters["salt_orders_repeated"] == 1
        await gate.orders.take(published(str(FIRST_JID + 1_000_000), "test.ping"), MASTER)
        assert gate.rooms.open_jobs.get(str(FIRST_JID + 1_000_000)) is not None, "what is new is taken"


async def test_what_still_waits_stays_and_who_orders_more_is_told_so(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks", rows=ROWS) as gate:
        gate.hello("cam-1")
        for number in range(ROWS):
            await refused(gate, number)
        clock.move(FRESH_SECONDS + 1)
        more = str(FIRST_JID + 1_000_000)
        await gate.orders.take(published(more), MASTER)
        assert gate.rooms.metrics.refusals["salt", "orders_full"] == 1
        assert "too many orders" in gate.told.values()["cam-1"]
        assert len(await kept(gate)) == ROWS
        assert await gate.rooms.spool.pending() >= ROWS, "every answer still waits"
        await gate.orders.take(published(str(FIRST_JID + 1_000_001)), OTHER)
        assert gate.rooms.open_jobs.get(str(FIRST_JID + 1_000_001)) is not None
        await delivered(gate, clock)
        await gate.orders.take(published(more), MASTER)
        assert gate.rooms.open_jobs.get(more) is not None, "when they are answered there is room again"


async def test_a_job_that_runs_stays(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks", rows=ROWS) as gate:
        gate.hello("cam-1")
        runs = str(FIRST_JID)
        await gate.orders.take(published(runs), MASTER)
        for number in range(1, ROWS):
            await refused(gate, number)
        await delivered(gate, clock)
        clock.move(FRESH_SECONDS + 1)
        await refused(gate, ROWS)
        assert runs in await kept(gate)
        assert str(FIRST_JID + 1) not in await kept(gate)


async def test_large_definitions_give_way_by_their_bytes(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks", most_bytes=100_000) as gate:
        gate.hello("cam-1")
        for number in range(4):
            await refused(gate, number, arg="x" * 20_000)
        await delivered(gate, clock)
        clock.move(FRESH_SECONDS + 1)
        for number in range(4, 7):
            await refused(gate, number, arg="x" * 20_000)
        ((size,),) = await gate.rooms.reader.rows("SELECT sum(length(load) + length(ids)) FROM salt_jobs")
        assert size <= 100_000
        assert len(await kept(gate)) == 4
        assert not gate.rooms.metrics.refusals["salt", "orders_full"]


async def test_what_is_forgotten_with_age_is_not_counted_any_more(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks", rows=ROWS) as gate:
        gate.hello("cam-1")
        for number in range(ROWS):
            await refused(gate, number)
        await gate.book.prune(clock.wall() + 30 * 86_400.0)
        assert await gate.rooms.reader.rows("SELECT * FROM salt_kept") == []
        await refused(gate, ROWS)
        assert len(await kept(gate)) == 1


async def test_what_was_kept_is_counted_also_when_rows_were_forgotten_meanwhile(
    tmp_path: Path, clock: HandClock
) -> None:
    async with opened(tmp_path, clock, "looks", rows=ROWS) as gate:
        gate.hello("cam-1")
        for number in range(ROWS - 1):
            await refused(gate, number)
        # As when it comes between the look for room and the order itself.
        gate.book.kept.forget_counts()
        order = published(str(FIRST_JID + ROWS))
        await gate.rooms.writer.commit(gate.book.adding(order, "test.ping", MASTER, ["cam-1"], clock.wall()))
        await refused(gate, ROWS + 1)
        assert len(await kept(gate)) == ROWS
        assert gate.rooms.metrics.refusals["salt", "orders_full"] == 1
