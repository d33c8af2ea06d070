"""upstream/link_budget.py."""

from __future__ import annotations

import asyncio

import pytest

from device_agent.protocol import limits
from tests.peers.clock import HandClock
from upstream.link_budget import LinkBudget


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch, clock: HandClock) -> list[float]:
    """Who sleeps moves the clock."""
    times: list[float] = []

    async def sleep(seconds: float) -> None:
        times.append(seconds)
        clock.move(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return times


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


async def test_without_a_limit_nobody_waits(clock: HandClock, slept: list[float]) -> None:
    budget = LinkBudget(0, clock)
    for _ in range(100):
        await budget.room()
        budget.spend(limits.BATCH_BYTES)
    assert (slept, budget.most_bytes) == ([], limits.BATCH_BYTES)


async def test_what_is_sent_is_what_the_line_may_carry(clock: HandClock, slept: list[float]) -> None:
    budget = LinkBudget(10_000, clock)
    started = clock.monotonic()
    for _ in range(100):
        await budget.room()
        budget.spend(budget.most_bytes)
    passed = clock.monotonic() - started
    assert 100 * budget.most_bytes / 10_000 - 2.0 <= passed <= 100 * budget.most_bytes / 10_000


async def test_a_batch_is_half_a_second_of_the_line_so_that_an_urgent_item_does_not_wait_long(
    clock: HandClock, slept: list[float]
) -> None:
    budget = LinkBudget(10_000, clock)
    assert budget.most_bytes == 5_000
    for _ in range(20):
        await budget.room()
        budget.spend(budget.most_bytes)
    assert max(slept) <= 1.0
    assert LinkBudget(10**9, clock).most_bytes == limits.BATCH_BYTES
    assert LinkBudget(1, clock).most_bytes == 1


async def test_the_largest_item_passes_the_slowest_line_and_is_paid_for_afterwards(
    clock: HandClock, slept: list[float]
) -> None:
    budget = LinkBudget(1_000, clock)
    await budget.room()
    budget.spend(limits.ITEM_BYTES)
    assert slept == []
    await budget.room()
    assert slept == [pytest.approx((limits.ITEM_BYTES - 500) / 1_000)]


async def test_a_quiet_line_saves_up_one_batch_and_no_more(clock: HandClock, slept: list[float]) -> None:
    budget = LinkBudget(1_000, clock)
    clock.move(3600.0)
    assert budget.debt() == -500.0
