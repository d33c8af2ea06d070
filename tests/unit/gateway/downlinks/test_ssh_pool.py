"""Which connections stay open."""

from __future__ import annotations

import asyncio

import pytest

from gateway.downlinks.ssh_pool import Pool


class Connection:
    """A connection of paper."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.users = 0
        self.used = 0.0
        self.is_shut = False

    def shut(self) -> None:
        self.is_shut = True

    def use(self, users: int, at: float) -> None:
        self.users, self.used = users, at
        self.pool.touched(self)


async def opened(pool: Pool) -> Connection:
    async with asyncio.timeout(60):
        await pool.room()
    made = Connection(pool)
    pool.took(made)
    return made


async def test_the_one_used_longest_ago_gives_way() -> None:
    pool = Pool(2, 60.0)
    first, second = await opened(pool), await opened(pool)
    first.use(0, 5.0)
    await opened(pool)
    assert (first.is_shut, second.is_shut, len(pool)) == (False, True, 2)


async def test_one_that_is_used_never_gives_way_and_is_waited_for() -> None:
    pool = Pool(1, 60.0)
    first = await opened(pool)
    first.use(1, 0.0)
    async with asyncio.TaskGroup() as group:
        coming = group.create_task(opened(pool))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not coming.done()
        first.use(0, 1.0)
    assert first.is_shut
    assert len(pool) == 1


async def test_one_that_did_not_come_gives_its_place_back() -> None:
    pool = Pool(1, 60.0)
    await pool.room()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await pool.room()
    pool.gave_up()
    await opened(pool)


async def test_what_is_idle_for_long_is_closed_and_what_is_used_is_not() -> None:
    pool = Pool(9, 60.0)
    idle, used, recent = await opened(pool), await opened(pool), await opened(pool)
    used.use(1, 0.0)
    recent.use(0, 50.0)
    pool.close_idle(60.0)
    assert (idle.is_shut, used.is_shut, recent.is_shut) == (True, False, False)
    pool.close_all()
    assert used.is_shut
    assert len(pool) == 0
